"""Puts a part of a graph into a function, a branch, or the body of a Loop or Scan, which changes no result."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from random_nodes import one

_HOW = ("", "", "function", "If", "Loop", "Scan")
# Before these opsets a Loop has a state, a Scan a batch, and the bodies' outputs types of their own.
_SINCE = {"Loop": 11, "Scan": 9}


def outlined(
    rng: Any,
    nodes: Sequence[Any],
    outputs: Sequence[str],
    values: Mapping[str, Any],
    opsets: Mapping[str, int],
) -> tuple[list[Any], list[Any], str]:
    """The nodes, with a run of them in a body of its own; the functions; and what was done."""
    how = one(rng, *_HOW)
    if opsets[""] < _SINCE.get(how, 1):
        how = "function"
    start = int(rng.integers(0, len(nodes)))
    part = list(nodes[start : start + int(rng.integers(1, 7))])
    rest = [*nodes[:start], *nodes[start + len(part) :]]
    made = [name for n in part for name in n.output if name]
    read = {name for n in rest for name in n.input} | set(outputs)
    results = [name for name in made if name in read]
    # A tensor whose value is unknown may be a sequence, which no Loop stacks.
    if not how or not results or (how != "function" and not all(_is_tensor(values.get(name)) for name in results)):
        return list(nodes), [], ""
    before, after = list(nodes[:start]), list(nodes[start + len(part) :])
    if how == "function":
        call, function = _function(rng, part, made, results, opsets)
        return [*before, call, *after], [function], f" | {len(part)} in a function"
    if how == "If":
        return [*before, *_if(rng, part, made, results, values), *after], [], f" | {len(part)} in an If"
    return [*before, *_stacked(rng, how, part, made, results), *after], [], f" | {len(part)} in a {how}"


def _is_tensor(value: Any) -> bool:
    return value is not None and not isinstance(value, list)


def _renamed(part: Sequence[Any], made: Sequence[str], suffix: str) -> list[Any]:
    """Copies of nodes; what they make has other names."""
    names = {name: f"{name}{suffix}" for name in made}
    copies = []
    for node in part:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for field in (copy.input, copy.output):
            field[:] = [names.get(name, name) for name in field]
        copies.append(copy)
    return copies


def _infos(names: Sequence[str], suffix: str) -> list[Any]:
    return [helper.make_empty_tensor_value_info(f"{name}{suffix}") for name in names]


def _function(
    rng: Any, part: Sequence[Any], made: Sequence[str], results: Sequence[str], opsets: Mapping[str, int]
) -> tuple[Any, Any]:
    read = dict.fromkeys(name for n in part for name in n.input if name and name not in set(made))
    body = _renamed(part, made, "")
    attributes, given = [], {}
    places = [(n, a) for n in body for a in n.attribute if a.type in (1, 2, 3, 6, 7)]
    if places and rng.uniform() < 0.5:  # an attribute comes from the call
        _, found = places[rng.integers(len(places))]
        attributes, given = ["k"], {"k": helper.get_attribute_value(found)}
        reference = onnx.AttributeProto(name=found.name, type=found.type, ref_attr_name="k")
        found.CopyFrom(reference)
    imports = [helper.make_opsetid(*item) for item in opsets.items()]
    function = helper.make_function("fuzz", "F", list(read), list(results), body, imports, attributes)
    return helper.make_node("F", list(read), list(results), domain="fuzz", **given), function


def _if(
    rng: Any, part: Sequence[Any], made: Sequence[str], results: Sequence[str], values: Mapping[str, Any]
) -> list[Any]:
    taken = bool(rng.integers(2))
    same = helper.make_graph(_renamed(part, made, " t"), "taken", [], _infos(results, " t"))
    # The other branch does the same, or gives zeros of the same shapes.
    if any(values[name].dtype.kind == "O" for name in results) or rng.uniform() < 0.3:
        other = helper.make_graph(_renamed(part, made, " e"), "other", [], _infos(results, " e"))
    else:
        nodes = [_constant(f"{name} e", np.zeros_like(values[name])) for name in results]
        other = helper.make_graph(nodes, "other", [], _infos(results, " e"))
    then, otherwise = (same, other) if taken else (other, same)
    condition = f"{results[0]} condition"
    nodes = [_constant(condition, np.bool_(taken))]
    if rng.uniform() < 0.5:  # known when it runs only: an element of an array that draws nothing away
        nodes.append(helper.make_node("Not", [condition], [f"{condition}!"]))
        nodes.append(helper.make_node("Not", [f"{condition}!"], [f"{condition}!!"]))
        condition += "!!"
    return [*nodes, helper.make_node("If", [condition], list(results), then_branch=then, else_branch=otherwise)]


def _stacked(rng: Any, how: str, part: Sequence[Any], made: Sequence[str], results: Sequence[str]) -> list[Any]:
    """Runs the part several times; one of the equal results is taken."""
    count, stem = int(rng.integers(1, 4)), results[0]
    body = _renamed(part, made, " b")
    stacked = [f"{name} all" for name in results]
    nodes = [_constant(f"{stem} place", np.int64(rng.integers(count)))]
    if how == "Loop":
        body.append(helper.make_node("Identity", [f"{stem} keep"], [f"{stem} kept"]))
        inputs = [
            helper.make_tensor_value_info(f"{stem} i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{stem} keep", onnx.TensorProto.BOOL, []),
        ]
        graph = helper.make_graph(body, "body", inputs, _infos([f"{stem} kept", *(f"{n} b" for n in results)], ""))
        nodes += [_constant(f"{stem} count", np.int64(count)), _constant(f"{stem} go", np.bool_(True))]
        given = [f"{stem} count", one(rng, "", f"{stem} go")]
        nodes.append(helper.make_node("Loop", given, stacked, body=graph))
    else:
        inputs = [helper.make_tensor_value_info(f"{stem} row", onnx.TensorProto.FLOAT, [2])]
        graph = helper.make_graph(body, "body", inputs, _infos(results, " b"))
        nodes.append(_constant(f"{stem} rows", np.ones((count, 2), np.float32)))
        nodes.append(helper.make_node("Scan", [f"{stem} rows"], stacked, body=graph, num_scan_inputs=1))
    nodes += [
        helper.make_node("Gather", [every, f"{stem} place"], [name], axis=0)
        for every, name in zip(stacked, results, strict=True)
    ]
    return nodes


def _constant(name: str, value: Any) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value)))
