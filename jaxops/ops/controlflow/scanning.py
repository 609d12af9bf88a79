"""The scan: a body that runs along an axis of its inputs."""

__all__ = ["scan"]

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag, integer, ints
from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, ShapeError, SignatureError, amount, shape_text
from jaxops.ops.controlflow.state import has_strings, rows_of, same_state, value_of
from jaxops.ops.tensor.reordering import transpose
from jaxops.signature import Subgraph
from jaxops.static import UNKNOWN, Array, Ints, Tracer, array

Body: TypeAlias = Annotated[
    Callable[..., Sequence[Any]],
    Subgraph(
        first=0, carries=True, not_carried="num_scan_inputs", of_rows=("scan_output_axes", "scan_output_directions")
    ),
]


def scan(
    initial_state_and_scan_inputs: Sequence[Any],
    body: Body,
    *,
    num_scan_inputs: int,
    scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None,
    scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
    rng: Any = None,
) -> tuple[Any, ...]:
    """Runs `body` on each slice of its inputs, passing a state from one iteration to the next.

    initial_state_and_scan_inputs: arrays; the state before the first iteration, then `num_scan_inputs` inputs, which
    have one size along the scanned axis.
    body: (*state, *slice of each input) → (*state, *slice of each output). rng: a random key; each iteration passes a
    key of its own to body, as `rng`.
    scan_input_axes: the scanned axis of each input, 0 by default; scan_input_directions: 1 reads an input backwards.
    scan_output_axes: the new axis of each output, 0 by default; scan_output_directions: 1 puts later slices first.
    Returns the last state, then the outputs. Runs as `lax.scan`; with strings, or a body that needs known values, as
    a Python loop, unrolled under tracing.
    Raises ShapeError when the inputs differ in length or the state changes its shape, AxisError, SignatureError for
    an attribute that does not have one value per input or output.
    Source: ONNX Scan, opsets 9–25.

    >>> scan([np.array(0), np.arange(4)], lambda total, x: (total + x, total), num_scan_inputs=1)
    (Array(6, dtype=int32), Array([0, 0, 1, 3], dtype=int32))
    """
    values = [array(value) for value in initial_state_and_scan_inputs]
    count = integer("num_scan_inputs", num_scan_inputs)
    if not 1 <= count <= len(values):
        raise SignatureError(
            f"`num_scan_inputs` is {count}; it must be from 1 to {len(values)}, the number of operands"
        )
    if rng is not None:
        values, body = [rng, *values], _drawing(body)
    state, sources = values[:-count], values[-count:]
    axes = _listed("scan_input_axes", scan_input_axes, len(sources))
    directions = _listed("scan_input_directions", scan_input_directions, len(sources))
    rows = []
    for source, axis, direction in zip(sources, axes, directions, strict=True):
        along = resolve_axis(axis, source.ndim, operand="scan_input_axes")
        rows.append(_reversed(_moved(source, along, 0), 0, flag("scan_input_directions", direction)))
    length = _length([row.shape[0] for row in rows])

    def step(state: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        values = [value_of(value) for value in body(*state, *slices)]
        if len(values) < len(state):
            returned = amount(len(values), "value")
            raise SignatureError(f"body returns {returned}, but the state has {len(state)}")
        return values[: len(state)], values[len(state) :]

    last, stacked = _scan(state, rows, length, step)
    axes = _listed("scan_output_axes", scan_output_axes, len(stacked))
    directions = _listed("scan_output_directions", scan_output_directions, len(stacked))
    outputs = []
    for output, axis, direction in zip(stacked, axes, directions, strict=True):
        along = resolve_axis(axis, output.ndim, operand="scan_output_axes")
        outputs.append(_reversed(_moved(output, 0, along), along, flag("scan_output_directions", direction)))
    return (*(last if rng is None else last[1:]), *outputs)


def _drawing(body: Callable[..., Sequence[Any]]) -> Callable[..., list[Any]]:
    """The body of a scan with a random key as its first state; each iteration gets a key of its own."""

    def drawing(key: Any, *values: Any) -> list[Any]:
        next_key, body_key = jax.random.split(key)
        return [next_key, *body(*values, rng=body_key)]

    return drawing


def _listed(name: str, values: Ints | None, count: int) -> tuple[int, ...]:
    numbers = (0,) * count if values is None else ints(name, values)
    if len(numbers) != count:
        each = "scan input" if "input" in name else "scan output"
        has = amount(len(numbers), "value")
        raise SignatureError(f"`{name}` {numbers} has {has}; it needs {count}, one per {each}")
    return numbers


def _length(lengths: Sequence[Any]) -> Any:
    if any(length != lengths[0] for length in lengths):
        raise ShapeError(f"all inputs must have one size on the scanned axis, but have {shape_text(lengths)}")
    return lengths[0]


def _moved(values: Array, source: int, target: int) -> Array:
    if source == target:
        return values
    order = [i for i in range(values.ndim) if i != source]
    order.insert(target, source)
    return transpose(values, perm=tuple(order))


def _reversed(values: Array, axis: int, reverse: bool) -> Array:
    if not reverse:
        return values
    return np.flip(values, axis) if isinstance(values, np.ndarray) else lax.rev(values, (axis,))


class _Strings(Exception):
    """A body stacks strings."""


def _scan(
    state: list[Array], rows: list[Array], length: Any, step: Callable[..., Any]
) -> tuple[Sequence[Any], Sequence[Any]]:
    def one(state: Any, slices: Any) -> Any:
        after, outputs = step(state, slices)
        if has_strings(outputs):
            raise _Strings
        return same_state(state, after), [as_traced(output) for output in outputs]

    if not has_strings([*state, *rows]):
        try:
            return lax.scan(one, [as_traced(value) for value in state], [as_traced(row) for row in rows])
        except _Strings:
            pass
        except UNKNOWN:
            # A Python loop keeps the slices of known inputs known.
            if not isinstance(length, int) or all(isinstance(value, Tracer) for value in (*state, *rows)):
                raise
    if not isinstance(length, int) or length == 0:
        raise ArgumentError(f"over {length} rows the shapes of the outputs are unknown, because body cannot be traced")
    outputs = []
    for k in range(length):
        state, output = step(state, [array(row[k]) for row in rows])
        outputs.append(output)
    return state, rows_of(outputs)
