"""A graph in several ways: as onnxruntime computes its nodes, compiled, op by op, with x64 on and off.

Where an output differs, the node is looked for that differs on the operands that onnxruntime gave it. If there is none,
the small differences of several nodes have grown (an ArgMax of equal numbers, a Round at a half): compiled and op by
op must agree then.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from known import known
from random_graphs import RandomGraph, Step
from random_nodes import decoded, difference

from jaxops.errors import JaxopsError, OutOfRangeError
from jaxops.onnx import load
from jaxops.onnx.lenient import tolerant


class Finding(NamedTuple):
    """what: "exception", "refused", "wrong", "static", "compiled" or "x64 off". where: the operator, mostly."""

    what: str
    where: str
    text: str


def outputs_of(model: Any, feeds: Mapping[str, Any], names: Sequence[str], *, prepared: bool = False) -> list[Any]:
    """The outputs of a model as NumPy arrays, by position; None for what is no array.

    prepared: what depends on the parameters alone is computed first, by a program of its own.
    """
    given = model.params if prepared else dict(model.params)
    found = model.apply(given, dict(feeds), outputs=list(names))
    found = found if isinstance(found, tuple) else (found,)
    return [_as_numpy(y) for y in found]


def _as_numpy(y: Any) -> Any:
    """Lists stay lists; None for a map."""
    if isinstance(y, list):
        return [np.asarray(item) for item in y]
    return None if y is None or isinstance(y, dict | tuple) else np.asarray(y)


def check(graph: RandomGraph, ways: Sequence[str] = ("prepared", "op by op", "x64 off")) -> list[Finding] | None:
    """What is wrong with a graph; None where small differences grew into large ones, so that nothing can be said."""
    if wrong := statically(graph):
        return wrong
    names = [value.name for value in graph.model.graph.output]
    expected = [graph.values.get(name) for name in names]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with jax.enable_x64(True):
            try:
                model = load(graph.model)
                found = outputs_of(model, graph.feeds, names, prepared="prepared" in ways)
            except JaxopsError as error:
                return _refused(graph, error)
            except Exception as error:  # what the whole file looks for
                return [Finding("exception", type(error).__name__, f"{error!r:.500}")]
            wrong = _different(names, found, expected)
            if wrong:
                blamed = blame(graph)
                if blamed:
                    return [f for f in blamed if f is not None]
            if wrong or "op by op" in ways:
                apart = _compiled_and_not(model, graph, names, found)
                if apart is not None:
                    return apart
            if wrong:
                return None
        return _narrow(graph, names, found) if "x64 off" in ways else []


def statically(graph: RandomGraph) -> list[Finding]:
    """What is wrong with the nodes that NumPy computes."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [f._replace(what="static") for f in blame(graph, static=True) if f is not None]


def _different(names: Sequence[str], found: Sequence[Any], expected: Sequence[Any]) -> str:
    """What differs from an expected value, or nothing."""
    pairs = [(n, a, b) for n, a, b in zip(names, found, expected, strict=True) if a is not None and b is not None]
    texts = [f"'{n}': {text}" for n, a, b in pairs if (text := difference([a], [b]))]
    return texts[0] if texts else ""


def ours(step: Step, inputs: Sequence[Any], opset: int, *, static: bool = False) -> list[Any]:
    """The outputs of one node on these operands, op by op. static: NumPy computes them, as it does sizes."""
    case = step.case
    operator = tolerant(case.op, case.domain, opset)
    operator.check_arity([x is not None for x in inputs], case.n_outputs)
    given = [x if static or operator.mark(i) else _on_device(x) for i, x in enumerate(inputs)]
    operator.check(given)
    found = operator.call(given, operator.complete(decoded(case.attributes)), n_outputs=case.n_outputs, rng=None)
    return [_as_numpy(y) for y in found[: case.n_outputs]]


def _on_device(x: Any) -> Any:
    if isinstance(x, list):
        return [_on_device(item) for item in x]
    return x if x is None or x.dtype.kind in "UO" else jnp.asarray(x)


def blame(graph: RandomGraph, *, static: bool = False) -> list[Finding | None]:
    """The first node that differs on onnxruntime's operands; None stands for a difference that is known.

    static: only of those that NumPy computes where their operands are known.
    """
    for step in graph.steps:
        if static and not tolerant(step.case.op, step.case.domain, graph.opsets[step.case.domain]).foldable:
            continue
        expected = [graph.values.get(name) for name in step.outputs]
        if any(y is None for y in expected) or any(n and n not in graph.values for n in step.inputs):
            continue
        inputs = [graph.values[name] if name else None for name in step.inputs]
        try:
            found = ours(step, inputs, graph.opsets[step.case.domain], static=static)
        except JaxopsError as error:
            found, text = [], str(error)
        except Exception as error:
            return [Finding("exception", step.case.op, f"{said(step, inputs)}\n{error!r:.500}")]
        else:
            text = difference(found, expected)
        if text and known(step.case, inputs, found, expected):
            return [None]
        if text:
            return [Finding("wrong", step.case.op, f"{said(step, inputs)}\n{text}")]
    return []


def said(step: Step, inputs: Sequence[Any]) -> str:
    """A node with its operands."""
    case = step.case._replace(inputs=list(inputs))
    with np.printoptions(threshold=40):
        return f"{case}\n" + "\n".join(f"  {x}" for x in inputs if x is not None)


def _refused(graph: RandomGraph, error: JaxopsError) -> list[Finding]:
    """Nothing where onnxruntime refuses a node, too."""
    if any(name not in graph.values for step in graph.steps for name in step.outputs):
        return []
    blamed = blame(graph)
    if blamed == [None]:
        return []
    return [Finding("refused", type(error).__name__, f"{error}" + "".join(f"\n{f.text}" for f in blamed if f))]


def _compiled_and_not(
    model: Any, graph: RandomGraph, names: Sequence[str], found: Sequence[Any]
) -> list[Finding] | None:
    """A finding where op by op gives something else from the same operands; [] where small differences grew."""
    try:
        with jax.disable_jit():
            alone = outputs_of(model, graph.feeds, names)
    except JaxopsError as error:
        return [Finding("compiled", type(error).__name__, f"op by op it is refused: {error}")]
    except Exception as error:
        return [Finding("exception", type(error).__name__, f"op by op: {error!r:.500}")]
    if not (text := _different(names, found, alone)):
        return None
    # All tensors of both: the first node that differs on equal operands.
    every = [n for step in graph.steps for n in step.outputs if n in graph.values and n in _made(graph)]
    compiled = dict(zip(every, outputs_of(model, graph.feeds, every), strict=True)) if every else {}
    with jax.disable_jit():
        apart = dict(zip(every, outputs_of(model, graph.feeds, every), strict=True)) if every else {}
    for step in graph.steps:
        if not all(n in compiled for n in step.outputs):
            continue
        if difference([compiled[n] for n in step.outputs], [apart[n] for n in step.outputs]):
            same = all(_same(compiled[n], apart[n]) for n in step.inputs if n in compiled)
            return [Finding("compiled", step.case.op, text)] if same else []
    # The first to differ may stand in a body, where only each node alone can be looked at.
    hidden = any(n not in _made(graph) for step in graph.steps for n in step.outputs)
    return [] if hidden and not blame(graph) else [Finding("compiled", "outputs", text)]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _made(graph: RandomGraph) -> set[str]:
    """The tensors of the graph that no body hides."""
    return {name for node in graph.model.graph.node for name in node.output}


def _narrow(graph: RandomGraph, names: Sequence[str], found: Sequence[Any]) -> list[Finding]:
    """With x64 off it gives the same, or says what 32 bits do not hold."""
    try:
        with jax.enable_x64(False):
            narrow = outputs_of(load(graph.model), graph.feeds, names)
    except OutOfRangeError:
        return []
    except JaxopsError as error:
        wide = not all(_fits(x) for x in graph.values.values())
        return [] if wide else [Finding("x64 off", type(error).__name__, str(error))]
    except Exception as error:
        return [Finding("exception", type(error).__name__, f"x64 off: {error!r:.500}")]
    for name, a, b in zip(names, narrow, found, strict=True):
        if a is None or isinstance(a, list) or a.dtype.kind not in "fiu":
            continue
        if text := difference([a.astype(b.dtype)], [b]):
            return [Finding("x64 off", graph.text, f"'{name}': {text}")]
    return []


def _fits(x: Any) -> bool:
    if isinstance(x, list):
        return all(map(_fits, x))
    if x.dtype.kind not in "iu" or x.dtype.itemsize < 8 or not x.size:
        return x.dtype != np.float64
    return bool(abs(int(x.max())) < 2**31 and abs(int(x.min())) < 2**31)
