"""Damaged models: operators, attributes, tensors, sizes, names, functions, external data; `STEPS` lists them."""

import random
import struct
from collections.abc import Callable
from typing import Any

import onnx
from changed_fields import FLOATS, NUMBERS, OPERATORS, WORDS, changed, copied
from onnx import AttributeProto, TensorProto, defs

HUGE = (10**6, 10**9, 2**31 - 1, 2**31, 2**32, 10**12, 2**40, 2**48, 2**60, 2**62, 2**63 - 1, -(2**63), -1, 0)
PLACES = (
    "w.bin",
    "nope.bin",
    "../w.bin",
    "/etc/hostname",
    "",
    ".",
    "a\0b",
    "/dev/zero",
    "link.bin",
    "w.bin/x",
    "\ud7ff",
)


def _nodes(model: Any) -> list[Any]:
    """All nodes, of subgraphs and functions too."""
    found, left = [], [model.graph, *model.functions]
    while left:
        for node in left.pop().node:
            found.append(node)
            left += [a.g for a in node.attribute if a.HasField("g")] + [g for a in node.attribute for g in a.graphs]
    return found


def _in_a_node(rng: random.Random, model: Any, donor: Any) -> str:
    nodes = _nodes(model)
    return changed(rng, rng.choice(nodes), donor) if nodes else "no node"


def _operator(rng: random.Random, model: Any, donor: Any) -> str:
    nodes = _nodes(model)
    if not nodes:
        return "no node"
    node = rng.choice(nodes)
    old = node.op_type
    node.op_type, node.domain = rng.choice(OPERATORS)
    return f"{old} is {node.op_type}"


def _attribute(rng: random.Random, model: Any, donor: Any) -> str:
    """An attribute of the donor, one that the operator has, or one doubled."""
    nodes = _nodes(model)
    if not nodes:
        return "no node"
    node = rng.choice(nodes)
    given = [a for n in _nodes(donor) for a in n.attribute]
    names = sorted(defs.get_schema(node.op_type, node.domain).attributes) if defs.has(node.op_type, node.domain) else []
    if names and rng.random() < 0.6:
        new = AttributeProto(
            name=rng.choice(names), type=rng.choice(("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS"))
        )
        new.f, new.i, new.s = rng.choice(FLOATS), rng.choice(NUMBERS), rng.choice(WORDS).encode()
        new.floats.extend(rng.choices(FLOATS, k=rng.randrange(5)))
        new.ints.extend(rng.choices(NUMBERS, k=rng.randrange(5)))
        new.strings.extend(w.encode() for w in rng.choices(WORDS, k=rng.randrange(3)))
    elif given:
        new = copied(rng.choice(given))
    else:
        return "no attribute"
    if rng.random() < 0.9:  # in place of one of that name
        kept = [copied(a) for a in node.attribute if a.name != new.name]
        del node.attribute[:]
        node.attribute.extend(kept)
    node.attribute.append(new)
    return f"{node.op_type} has `{new.name}` of type {new.type}: {new!s:.80}"


def _tensors(model: Any) -> list[Any]:
    return [*model.graph.initializer, *(a.t for n in _nodes(model) for a in n.attribute if a.HasField("t"))]


def _in_a_tensor(rng: random.Random, model: Any, donor: Any) -> str:
    tensors = _tensors(model)
    return changed(rng, rng.choice(tensors), donor) if tensors else _in_a_node(rng, model, donor)


# Sizes.


def _huge_number(rng: random.Random, model: Any, donor: Any) -> str:
    """A declared size, a size of a tensor, an integer attribute or an element of an integer tensor."""
    places: list[Callable[[int], str]] = []

    def element(owner: Any, at: int, what: str) -> Callable[[int], str]:
        def put(value: int) -> str:
            owner[at] = value
            return f"{what}[{at}] is {value}"

        return put

    for attribute in (a for n in _nodes(model) for a in n.attribute):
        if attribute.type == AttributeProto.INT:
            places.append(lambda v, a=attribute: (setattr(a, "i", v), f"`{a.name}` is {v}")[1])
        places += [element(attribute.ints, k, attribute.name) for k in range(len(attribute.ints))]
    for tensor in _tensors(model):
        places += [element(tensor.dims, k, f"dims of {tensor.name}") for k in range(len(tensor.dims))]
        if tensor.data_type == TensorProto.INT64 and tensor.raw_data:
            places += [_raw_element(tensor, k) for k in range(min(len(tensor.raw_data) // 8, 16))]
        places += [element(tensor.int64_data, k, tensor.name) for k in range(len(tensor.int64_data))]
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            places.append(lambda v, d=dim: (setattr(d, "dim_value", v), f"a declared size is {v}")[1])
    return rng.choice(places)(rng.choice(HUGE)) if places else "no number"


def _raw_element(tensor: TensorProto, at: int) -> Callable[[int], str]:
    def put(value: int) -> str:
        raw = bytearray(tensor.raw_data)
        raw[8 * at : 8 * at + 8] = struct.pack("<q", value)
        tensor.raw_data = bytes(raw)
        return f"{tensor.name}[{at}] is {value}"

    return put


def _constant_sizes(rng: random.Random, model: Any, donor: Any) -> str:
    """An input of integers becomes an initializer, whose numbers may then be changed."""
    inputs = [v for v in model.graph.input if v.type.tensor_type.elem_type == TensorProto.INT64]
    if not inputs:
        return "no integers"
    value = rng.choice(inputs)
    sizes = [min(d.dim_value, 8) for d in value.type.tensor_type.shape.dim]
    count = 1
    for size in sizes:
        count *= max(size, 0)
    numbers = [rng.choice((1, 2, 3, rng.choice(HUGE))) for _ in range(count)]
    tensor = TensorProto(name=value.name, data_type=TensorProto.INT64, dims=sizes)
    tensor.raw_data = struct.pack(f"<{count}q", *numbers)
    model.graph.initializer.append(tensor)
    model.graph.input.remove(value)
    return f"{value.name} is {numbers}"


# Structure.


_AROUND = {"ModelProto", "GraphProto", "FunctionProto", "OperatorSetIdProto", "ValueInfoProto", "TypeProto"}
_AROUND |= {"SparseTensorProto"}


def _around(rng: random.Random, model: Any, donor: Any) -> str:
    """A graph, a function, what is imported: fields that are no node's."""
    return changed(rng, model, donor, _AROUND)


def _subgraph(rng: random.Random, model: Any, donor: Any) -> str:
    graphs = [a.g for n in _nodes(model) for a in n.attribute if a.HasField("g")] or [model.graph]
    return changed(rng, rng.choice(graphs), donor, {"GraphProto", "ValueInfoProto", "NodeProto"})


def _renamed(rng: random.Random, model: Any, donor: Any) -> str:
    """A name among the inputs and outputs of nodes becomes another: cycles, doubles, what nobody makes."""
    nodes = [n for n in _nodes(model) if n.input or n.output]
    if not nodes:
        return "no node"
    node, other = rng.choice(nodes), rng.choice(nodes)
    names = [*other.input, *other.output, rng.choice(WORDS)]
    owner = node.input if node.input and (not node.output or rng.random() < 0.7) else node.output
    at = rng.randrange(len(owner))
    owner[at], old = rng.choice(names), owner[at]
    return f"'{old}' is '{owner[at]:.60}'"


def _function(rng: random.Random, model: Any, donor: Any) -> str:
    """Some nodes become functions, which may call themselves, or a function of the donor comes in."""
    nodes = _nodes(model)
    if donor.functions and rng.random() < 0.3:
        model.functions.append(rng.choice(donor.functions))
        return "a function of another model"
    if not nodes:
        return "no node"
    node = rng.choice(nodes)
    body = model.functions.add(name=node.op_type, domain=rng.choice((node.domain, "loc", "")))
    body.input.extend(dict.fromkeys(node.input) if rng.random() < 0.8 else node.input)
    body.output.extend(node.output)
    body.node.append(node)
    body.attribute.extend(a.name for a in node.attribute if rng.random() < 0.3)
    body.opset_import.extend(model.opset_import)
    if rng.random() < 0.5:
        node.domain = body.domain
        model.opset_import.add(domain="loc", version=1)
    return f"{node.op_type} is a function of domain '{body.domain}'"


def _external(rng: random.Random, model: Any, donor: Any) -> str:
    tensors = _tensors(model)
    if not tensors:
        return "no tensor"
    tensor = rng.choice(tensors)
    tensor.data_location = TensorProto.EXTERNAL
    if rng.random() < 0.8:
        for field in ("raw_data", "float_data", "int64_data", "int32_data"):
            tensor.ClearField(field)
    entries = [("location", rng.choice(PLACES))]
    for key in ("offset", "length", "checksum", "location", "nonsense"):
        if rng.random() < 0.35:
            entries.append(
                (key, rng.choice(("0", "4", "-1", "", "x", "1e3", " 8", str(2**63), str(2**70), "4096", "w.bin", "１")))
            )
    rng.shuffle(entries)
    for key, value in entries:
        tensor.external_data.add(key=key, value=value)
    return f"{tensor.name} is external: {entries}"


def _grafted(rng: random.Random, model: Any, donor: Any) -> str:
    """A node of the donor, as it is, or with operands of this model."""
    own, theirs = _nodes(model), _nodes(donor)
    if not own or not theirs:
        return "no node"
    node = copied(rng.choice(theirs))
    names = [name for n in own for name in n.input]
    for k in range(len(node.input)):
        if names and rng.random() < 0.7:
            node.input[k] = rng.choice(names)
    model.graph.node.append(node)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    domains = {o.domain for o in model.opset_import}
    model.opset_import.extend(o for o in donor.opset_import if o.domain not in domains)
    return f"{node.op_type} grafted"


STEPS = {
    "nodes": (_in_a_node, _in_a_node, _operator, _attribute, _attribute, _in_a_tensor, _renamed, _grafted),
    "sizes": (_huge_number, _huge_number, _huge_number, _constant_sizes),
    "structure": (_around, _around, _subgraph, _renamed, _function, _external, _grafted),
}
