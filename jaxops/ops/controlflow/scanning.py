"""A scan: a body run along an axis of its inputs."""

__all__ = ["scan"]

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag, integer, ints
from jaxops.dtypes import as_traced, is_string
from jaxops.errors import ArgumentError, ShapeError, SignatureError, shape_text
from jaxops.ops.controlflow.state import rows_of, same_state, value_of
from jaxops.ops.tensor.reordering import transpose
from jaxops.static import UNKNOWN, Array, Ints, Subgraph, Tracer, array

Body: TypeAlias = Annotated[
    Callable[..., Sequence[Any]], Subgraph(first=0, carries=True, not_carried="num_scan_inputs")
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
    """Runs `body` along an axis of its inputs, handing a state on.

    initial_state_and_scan_inputs: arrays: the state before the first iteration, then the inputs, the last
    `num_scan_inputs` ones, of one size on the axis.
    body: (*state, *slice of each input) → (*state, *what each output gains). rng: a key; each iteration then gets
    a key of its own, as `rng` of body.
    scan_input_axes: the axis of each input, 0 by default; scan_input_directions: 1 for one that is read from its end.
    scan_output_axes: the new axis of each output, 0 by default; scan_output_directions: 1 for one that grows forward,
    the last gain first.
    Returns the last state, then the outputs. It is `lax.scan`; with strings, or a body that needs known values, it
    is a loop in Python, unrolled under tracing.
    Raises ShapeError for inputs of several lengths, and when a state changes its shape, AxisError, SignatureError for
    a list of the wrong length.
    Source: ONNX Scan, opsets 9–25.

    >>> scan([np.array(0), np.arange(4)], lambda total, x: (total + x, total), num_scan_inputs=1)
    (Array(6, dtype=int32), Array([0, 0, 1, 3], dtype=int32))
    """
    values = [array(value) for value in initial_state_and_scan_inputs]
    count = integer("scan", "num_scan_inputs", num_scan_inputs)
    if not 1 <= count <= len(values):
        raise SignatureError(
            f"scan: `num_scan_inputs` is {count}; of {len(values)} operands 1 to {len(values)} may be inputs"
        )
    if rng is not None:
        values, body = [rng, *values], _drawing(body)
    state, sources = values[:-count], values[-count:]
    places = _listed("scan_input_axes", scan_input_axes, len(sources))
    turned = _listed("scan_input_directions", scan_input_directions, len(sources))
    rows = []
    for source, place, turn in zip(sources, places, turned, strict=True):
        at = resolve_axis("scan", place, source.ndim, operand="scan_input_axes")
        rows.append(_turned(_moved(source, at, 0), 0, flag("scan", "scan_input_directions", turn)))
    length = _length([row.shape[0] for row in rows])

    def step(state: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        values = [value_of(value) for value in body(*state, *slices)]
        if len(values) < len(state):
            raise SignatureError(f"scan: body returns {len(values)} values, but the state has {len(state)}")
        return values[: len(state)], values[len(state) :]

    last, gained = _scan(state, rows, length, step)
    axes = _listed("scan_output_axes", scan_output_axes, len(gained))
    turned = _listed("scan_output_directions", scan_output_directions, len(gained))
    outputs = []
    for gain, place, turn in zip(gained, axes, turned, strict=True):
        at = resolve_axis("scan", place, gain.ndim, operand="scan_output_axes")
        outputs.append(_turned(_moved(gain, 0, at), at, flag("scan", "scan_output_directions", turn)))
    return (*(last if rng is None else last[1:]), *outputs)


def _drawing(body: Callable[..., Sequence[Any]]) -> Callable[..., list[Any]]:
    """The body of a scan whose first state is a key: each iteration draws its own random numbers."""

    def drawing(key: Any, *values: Any) -> list[Any]:
        following, own = jax.random.split(key)
        return [following, *body(*values, rng=own)]

    return drawing


def _listed(name: str, values: Ints | None, count: int) -> tuple[int, ...]:
    given = (0,) * count if values is None else ints("scan", name, values)
    if len(given) != count:
        raise SignatureError(f"scan: `{name}` {given} has {len(given)} items; there must be {count}, one for each")
    return given


def _length(lengths: Sequence[Any]) -> Any:
    if any(length != lengths[0] for length in lengths):
        raise ShapeError(f"scan: the inputs have the sizes {shape_text(lengths)} on the scanned axis; they must be one")
    return lengths[0]


def _moved(values: Array, source: int, target: int) -> Array:
    if source == target:
        return values
    order = [i for i in range(values.ndim) if i != source]
    order.insert(target, source)
    return transpose(values, perm=tuple(order))


def _turned(values: Array, at: int, turn: bool) -> Array:
    if not turn:
        return values
    return np.flip(values, at) if isinstance(values, np.ndarray) else lax.rev(values, (at,))


def _scan(
    state: list[Array], rows: list[Array], length: Any, step: Callable[..., Any]
) -> tuple[Sequence[Any], Sequence[Any]]:
    def one(state: Any, slices: Any) -> Any:
        after, gained = step(state, slices)
        return same_state("scan", state, after), [as_traced(gain) for gain in gained]

    words = any(isinstance(value, np.ndarray) and is_string(value) for value in (*state, *rows))
    if not words:
        try:
            return lax.scan(one, [as_traced(value) for value in state], [as_traced(row) for row in rows])
        except UNKNOWN:
            # In Python the slices of known inputs are known.
            if not isinstance(length, int) or all(isinstance(value, Tracer) for value in (*state, *rows)):
                raise
    if not isinstance(length, int) or length == 0:
        raise ArgumentError(f"scan: over {length} rows, the outputs of body, which has no trace, have no known shape")
    outputs = []
    for k in range(length):
        state, gained = step(state, [array(row[k]) for row in rows])
        outputs.append(gained)
    return state, rows_of("scan", outputs)
