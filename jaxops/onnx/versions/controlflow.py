"""Scan of opset 8, which runs over the second axis of batches of sequences."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, ShapeError, message, shape_text
from jaxops.onnx.registry import version
from jaxops.ops import scan
from jaxops.signature import Subgraph
from jaxops.static import Tracer, array

# Behind the lengths of the sequences.
Body: TypeAlias = Annotated[Any, Subgraph(first=1, carries=True, not_carried="num_scan_inputs")]


@version("Scan", 8)
def scan_8(
    sequence_lens: Any,
    initial_state_and_scan_inputs: Sequence[Any],
    *,
    num_scan_inputs: int,
    body: Body,
    directions: tuple[int, ...] | None = None,
    rng: Any = None,
) -> tuple[Any, ...]:
    """The first axis is a batch, the second one is scanned. Sequences may differ in length."""
    operands = [as_traced(value) for value in initial_state_and_scan_inputs]
    batch, steps = operands[-1].shape[:2]
    keys = [] if rng is None else [jax.vmap(partial(jax.random.fold_in, rng))(jnp.arange(batch))]
    turned = directions or (0,) * num_scan_inputs

    def whole(*values: Any) -> tuple[Any, ...]:
        key, operands = (values[0], values[1:]) if keys else (None, values)
        return scan(operands, body, num_scan_inputs=num_scan_inputs, scan_input_directions=turned, rng=key)

    if sequence_lens is None:
        return jax.vmap(whole)(*keys, *operands)
    lengths = _lengths(sequence_lens, batch, steps)

    def ragged(length: Any, *values: Any) -> tuple[Any, ...]:
        key, operands = (values[0], values[1:]) if keys else (None, values)
        state, sources = operands[:-num_scan_inputs], operands[-num_scan_inputs:]
        time = jnp.arange(steps, dtype=lengths.dtype)
        # onnxruntime reads a reversed sequence from its own end, and puts zeros after its outputs.
        back = jnp.clip(length - 1 - time, 0, None)
        inputs = [jnp.take(x, back, axis=0) if turn else x for x, turn in zip(sources, turned, strict=True)]

        def iteration(*values: Any, **key: Any) -> list[Any]:
            before, now, slices = values[: len(state)], values[len(state)], values[len(state) + 1 :]
            after = body(*before, *slices, **key)
            kept = [*before, *(jnp.zeros_like(gain) for gain in after[len(state) :])]
            return [jnp.where(now < length, new, old) for new, old in zip(after, kept, strict=True)]

        return scan([*state, time, *inputs], iteration, num_scan_inputs=len(inputs) + 1, rng=key)

    return jax.vmap(ragged)(lengths, *keys, *operands)


def _lengths(values: Any, batch: Any, steps: Any) -> jax.Array:
    given = array(values)
    if given.ndim != 1 or given.shape[0] != batch:
        raise ShapeError(
            f"scan: `sequence_lens` of {shape_text(given.shape)} must be ({batch},), a length for each sequence"
        )
    if not isinstance(given, Tracer) and isinstance(steps, int):
        known = np.asarray(given)
        if known.size and (known.min() < 0 or known.max() > steps):
            raise ArgumentError(message(f"scan: `sequence_lens` must be in [0, {steps}]", sequence_lens=known))
    return as_traced(given)


version("Scan", 9)(scan)
