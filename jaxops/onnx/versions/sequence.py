"""Operators on sequences whose attributes or subgraphs need a translation."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxops.errors import ShapeError
from jaxops.onnx.graph import Graph
from jaxops.onnx.registry import version
from jaxops.static import Array


@version("SequenceMap", 17)
def _(
    input_sequence: Sequence[Array],
    additional_inputs: Sequence[Any],
    *,
    body: Graph,
    run: Callable[..., list[Any]],
    rng: Any = None,
) -> tuple[list[Any], ...]:
    """`body` for each item; a tensor among the other inputs goes to every one."""
    count = len(input_sequence)
    rows = []
    for position, value in enumerate(additional_inputs, 1):
        if isinstance(value, list) and len(value) != count:
            raise ShapeError(
                f"sequence_map: input {position} is a sequence of {len(value)}, but `input_sequence` has {count} items"
            )
    for k, item in enumerate(input_sequence):
        others = [value[k] if isinstance(value, list) else value for value in additional_inputs]
        key = None if rng is None else jax.random.fold_in(rng, k)  # each item draws its own random numbers
        rows.append(run(body, item, *others, rng=key))
    return tuple([row[output] for row in rows] for output in range(len(body.outputs)))
