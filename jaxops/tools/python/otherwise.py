"""Writes calls for operators whose adapters cannot run on placeholders."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops import ops
from jaxops.tools.python.call_arguments import arguments, written
from jaxops.tools.python.expressions import Group, call, flat
from jaxops.tools.python.operands import Operand

# An expression, and the known facts about its results.
Written = tuple[Group, Sequence[Any] | None]


def _scan_8(inputs: Sequence[Any], attributes: Mapping[str, Any], _: int) -> Written | None:
    """Scan of opset 8, over each sequence of a batch; None with `sequence_lens`, which newer versions lack."""
    lengths, *operands = inputs
    if lengths is not None:
        return None
    kwargs = {name: attributes[name] for name in ("num_scan_inputs", "body")}
    if any(attributes.get("directions") or ()):
        kwargs["scan_input_directions"] = attributes["directions"]
    one = arguments(ops.scan, "jo.scan", [Operand("xs")], kwargs)
    return call(f"jax.vmap(lambda *xs: {flat(one)})", [written(x, Any) for x in operands]), None


def _gradient_1(inputs: Sequence[Any], attributes: Mapping[str, Any], _: int) -> Written:
    """Gradient: that of the sum of the differentiated value by the first operands."""
    by = tuple(range(len(attributes["xs"])))
    body = written(attributes["differentiated"], Any)
    return call(f"jax.grad(lambda *xs: jnp.sum({body}(*xs)[0]), {by})", [written(x, Any) for x in inputs]), None


def _even_split(inputs: Sequence[Any], attributes: Mapping[str, Any], count: int) -> Written | None:
    """Split into equal parts along an axis whose size is known only when the package runs."""
    x, *lengths = inputs
    if any(option is not None for option in (*lengths, attributes.get("split"))):
        return None
    axis = attributes.get("axis") or 0
    if not x.traceable:
        return arguments(ops.split, "jo.split", [x], {"axis": axis, "num_outputs": count}), None
    sizes = list(x.shape)
    sizes[axis] //= count
    each = jax.ShapeDtypeStruct(sizes, x.dtype)
    parts = np.array([sizes[axis]] * count, object)
    return arguments(ops.split, "jo.split", [x, parts], {"axis": axis}), [each] * count


# The function of an operator → how it is written: of its inputs, its attributes and the number of its results.
OTHERWISE: dict[str, Callable[[Sequence[Any], Mapping[str, Any], int], Written | None]] = {
    "scan_8": _scan_8,
    "gradient_1": _gradient_1,
    "split_1": _even_split,
    "split_2": _even_split,
}
