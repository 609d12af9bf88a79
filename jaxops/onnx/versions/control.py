"""If, Loop and Scan: the subgraphs of a node become the callables of `jaxops.ops`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, ShapeError, message, shape_text
from jaxops.onnx.graph import Graph
from jaxops.onnx.registry import version
from jaxops.ops import if_, loop, scan
from jaxops.static import Ints, Tracer, array

Run = Callable[..., list[Any]]


@version("If", 1)
def _(cond: Any, *, then_branch: Graph, else_branch: Graph, run: Run) -> Any:
    return if_(cond, partial(run, then_branch), partial(run, else_branch))


@version("Loop", 1)
def _(m: Any, cond: Any, v_initial: Sequence[Any], *, body: Graph, run: Run, rng: Any = None) -> Any:
    def iteration(number: Any, *values: Any) -> list[Any]:
        # Each iteration draws its own random numbers.
        key = None if rng is None else jax.random.fold_in(rng, number)
        return run(body, number, *values, rng=key)

    return loop(m, cond, v_initial, iteration)


@version("Scan", 8)
def _(
    sequence_lens: Any,
    initial_state_and_scan_inputs: Sequence[Any],
    *,
    num_scan_inputs: int,
    body: Graph,
    directions: tuple[int, ...] | None = None,
    run: Run,
    rng: Any = None,
) -> tuple[Any, ...]:
    """The first axis is a batch, the second one is scanned; a sequence may end before the others do."""
    operands = [as_traced(value) for value in initial_state_and_scan_inputs]
    batch, steps = operands[-1].shape[:2]
    step = partial(run, body)
    if rng is not None:
        operands, step = [jax.vmap(partial(jax.random.fold_in, rng))(jnp.arange(batch)), *operands], _drawing(step)
    split = len(operands) - num_scan_inputs
    if sequence_lens is None:

        def whole(*values: Any) -> tuple[Any, ...]:
            return scan(values[:split], values[split:], step, scan_input_directions=directions)

        found = jax.vmap(whole)(*operands)
        return found if rng is None else found[1:]
    turned = directions or (0,) * num_scan_inputs
    lengths = _lengths(sequence_lens, batch, steps)

    def ragged(length: Any, *values: Any) -> tuple[Any, ...]:
        time = jnp.arange(steps, dtype=lengths.dtype)
        # onnxruntime reads a turned sequence from its own end, and leaves zeros behind the outputs.
        back = jnp.clip(length - 1 - time, 0, None)
        inputs = [jnp.take(x, back, axis=0) if turn else x for x, turn in zip(values[split:], turned, strict=True)]

        def iteration(now: Any, *values: Any) -> list[Any]:
            after = step(*values)
            before = [*values[:split], *(jnp.zeros_like(gain) for gain in after[split:])]
            return [jnp.where(now < length, new, old) for new, old in zip(after, before, strict=True)]

        return scan(values[:split], [time, *inputs], lambda *v: iteration(v[split], *v[:split], *v[split + 1 :]))

    found = jax.vmap(ragged)(lengths, *operands)
    return found if rng is None else found[1:]


def _drawing(step: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The step of a scan whose first state is a key: each draws its own random numbers."""

    def drawing(key: Any, *values: Any) -> list[Any]:
        following, own = jax.random.split(key)
        return [following, *step(*values, rng=own)]

    return drawing


def _lengths(values: Any, batch: Any, steps: Any) -> jax.Array:
    given = array(values)
    if given.ndim != 1 or given.shape[0] != batch:
        raise ShapeError(
            f"scan: `sequence_lens` of {shape_text(given.shape)} must be ({batch},), a length for each sequence"
        )
    if not isinstance(given, Tracer) and isinstance(steps, int):
        known = np.asarray(given)
        if known.size and (known.min() < 0 or known.max() > steps):
            raise ArgumentError(message("scan", f"`sequence_lens` must be in [0, {steps}]", sequence_lens=known))
    return as_traced(given)


@version("Scan", 9)
def _(
    initial_state_and_scan_inputs: Sequence[Any],
    *,
    num_scan_inputs: int,
    body: Graph,
    scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None,
    scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
    run: Run,
    rng: Any = None,
) -> tuple[Any, ...]:
    split = len(initial_state_and_scan_inputs) - num_scan_inputs
    initial, inputs = initial_state_and_scan_inputs[:split], initial_state_and_scan_inputs[split:]
    step = partial(run, body)
    found = scan(
        initial if rng is None else [rng, *initial],
        inputs,
        step if rng is None else _drawing(step),
        scan_input_axes=scan_input_axes,
        scan_input_directions=scan_input_directions,
        scan_output_axes=scan_output_axes,
        scan_output_directions=scan_output_directions,
    )
    return found if rng is None else found[1:]
