"""The loop with a trip count and a condition."""

__all__ = ["loop"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import as_traced, canonical, is_string
from jaxops.errors import ArgumentError, ShapeError, SignatureError, StaticError, describe
from jaxops.ops.controlflow.branching import if_
from jaxops.ops.controlflow.state import carried, condition, rows_of, same_state, value_of
from jaxops.static import UNKNOWN, Tracer, is_symbolic, tracing

_TRUE = np.array(True)
_LIMIT = "the condition that body returns"


def loop(trip_count: Any, cond: Any, initial: Sequence[Any], body: Callable[..., Sequence[Any]]) -> tuple[Any, ...]:
    """Repeats `body` while `cond` holds, at most `trip_count` times.

    trip_count: one integer; None for no limit. cond: one boolean; None: what body says about it does not count.
    initial: the state before the first iteration: arrays, sequences (lists) of arrays, None.
    body: (number of the iteration, condition, *state) → (condition, *state, *scan outputs).
    Returns the last state, then each scan output stacked along a new first axis, one row an iteration.

    Outside `jit`, and while all that body makes is static, this is a loop in Python. Under tracing it is `lax.scan`,
    which can be differentiated, when the trip count is known and body hands the condition on as it came. It is
    unrolled when the state changes its shape or holds sequences, or when body needs a known number of the
    iteration. Else it is `lax.while_loop`, which has no scan outputs. In both of JAX's loops a static state
    becomes JAX arrays.
    Raises StaticError when the number of iterations must be known and is traced, ArgumentError for a loop without
    an end, DTypeError and ShapeError when the state or a scan output changes its type or shape.
    Source: ONNX Loop, opsets 1–25.

    >>> loop(4, None, [np.array(1)], lambda i, keep, n: (keep, n * 2, n))
    (array(16), array([1, 2, 4, 8]))
    """
    if trip_count is None and cond is None:
        raise ArgumentError("loop: it never ends without `trip_count` and `cond`; give one of them")
    state = [value_of(value) for value in initial]

    def step(number: Any, keep: Any, state: Sequence[Any]) -> Any:
        after, *values = map(value_of, body(number, keep, *state))
        if len(values) < len(state):
            raise SignatureError(
                f"loop: body returns {len(values)} values behind the condition, state has {len(state)}"
            )
        return after, values[: len(state)], values[len(state) :]

    keep = True if cond is None else condition("loop", "`cond`", cond)
    job = _Loop(_count(trip_count), keep, cond is not None, state, step)
    return job.run()


def _count(value: Any) -> Any:
    """The trip count: None, a number, a symbolic dimension, or a traced scalar."""
    if isinstance(value, Tracer):
        if value.size != 1:
            raise ShapeError(f"loop: `trip_count` must be one integer, but is {describe(value)}")
        return lax.reshape(value, ()) if value.ndim else value
    if value is None:
        return None
    count = integer("loop", "trip_count", value)
    return max(count, 0) if isinstance(count, int) else count


@dataclass(frozen=True)
class _Look:
    """What one iteration does, seen in a trace that is thrown away."""

    problem: str = ""  # why the loop must be unrolled
    static: bool = False  # whether all that the iteration gives is static
    exits: bool = True  # whether it may end the loop
    scans: Sequence[Any] = ()  # shapes and types of what the scan outputs gain


@dataclass(frozen=True)
class _Loop:
    count: Any
    keep: Any  # the condition; a bool while it is known
    heeded: bool  # whether the condition ends the loop
    state: list[Any]
    step: Callable[[Any, Any, Sequence[Any]], Any]

    def run(self) -> tuple[Any, ...]:
        if isinstance(self.keep, bool) and not isinstance(self.count, jax.Array):
            leaves = jax.tree.leaves(self.state)
            eager = not tracing() and not any(isinstance(leaf, Tracer) for leaf in leaves)
            static = not any(isinstance(leaf, jax.Array) for leaf in leaves)
            if self.keep is False or eager or (static and self.look(traced=False).static):
                found = self.unrolled()
                if found is not None:
                    return found
        return self.traced()

    def look(self, *, traced: bool) -> _Look:
        """Looks at an iteration under a condition that holds, with a traced or a static number and state."""
        seen: list[_Look] = []

        def trace(number: Any, *state: Any) -> None:
            keep, after, scans = self.step(number, _TRUE, state)
            goes_on = isinstance(keep, np.ndarray) and bool(keep.all())
            static = all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves([keep, after, scans]))
            sizes = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in scans]
            seen.append(_Look(_change(state, after) if traced else "", static, self.heeded and not goes_on, sizes))

        if not traced:
            jax.eval_shape(lambda: trace(np.array(0), *self.state))
        elif any(isinstance(leaf, np.ndarray) and is_string(leaf) for leaf in jax.tree.leaves(self.state)):
            return _Look("the state holds strings")
        else:
            try:
                jax.eval_shape(trace, as_traced(np.array(0)), *map(carried, self.state))
            except UNKNOWN as error:
                return _Look(f"body needs a known value; {str(error).splitlines()[0]}")
        return seen[0]

    def unrolled(self) -> tuple[Any, ...] | None:
        """Iteration by iteration; None when the condition turns out to be traced."""
        keep, state, rows = np.array(self.keep), self.state, []
        while (self.count is None or len(rows) < self.count) and (keep or not self.heeded):
            keep, state, scans = self.step(np.array(len(rows)), keep, state)
            rows.append(scans)
            if self.heeded:
                keep = condition("loop", _LIMIT, keep)
                if isinstance(keep, jax.Array):
                    return None
                keep = np.array(keep)
        if rows:
            return (*state, *rows_of("loop", rows))
        scans = self.look(traced=False).scans
        # NumPy has no arrays of symbolic sizes.
        spaces = [jnp if any(map(is_symbolic, scan.shape)) else np for scan in scans]
        return (*state, *(xp.zeros((0, *s.shape), s.dtype) for xp, s in zip(spaces, scans, strict=True)))

    def traced(self) -> tuple[Any, ...]:
        """As `lax.scan`, unrolled, or as `lax.while_loop`."""
        look = self.look(traced=True)
        counted = self.count is not None and not isinstance(self.count, jax.Array)
        if not look.problem and counted and not look.exits:
            if self.keep is True:
                return self.scanned()
            if not look.scans:
                return if_(self.keep, self.scanned, lambda: self.state)
        if not look.problem and not look.scans:
            return self.repeated()
        known = isinstance(self.keep, bool) and not isinstance(self.count, jax.Array)
        found = self.unrolled() if known else None
        if found is None:
            raise self.unknown(look.problem or "a scan output has one row an iteration")
        return found

    def unknown(self, reason: str) -> StaticError:
        which = "`cond`" if isinstance(self.keep, jax.Array) else _LIMIT
        which = "`trip_count`" if isinstance(self.count, jax.Array) else which
        return StaticError(
            f"loop: the number of iterations must be known while tracing, but {which} is traced\n"
            f"  needed  {reason}\n"
            f"  hint    run it outside jit, or make {which} known (a NumPy value); a state of fixed size, as an array "
            f"that is filled row by row, needs neither"
        )

    def scanned(self) -> tuple[Any, ...]:
        def one(carry: Any, number: Any) -> Any:
            flag, after, scans = self.advance(number, *carry)
            return (flag, after), [as_traced(scan) for scan in scans]

        (_, state), scans = lax.scan(one, self.start(), lax.iota(canonical(np.int64), self.count))
        return (*state, *scans)

    def repeated(self) -> tuple[Any, ...]:
        number_type = canonical(np.int64)
        limit = self.count
        if limit is not None:
            # A limit beyond the numbers there are, as INT64_MAX, is none.
            limit = min(limit, np.iinfo(number_type).max) if isinstance(limit, int) else limit
            limit = as_traced(limit if isinstance(limit, jax.Array) else np.array(limit), number_type)

        def goes_on(carry: Any) -> Any:
            number, (flag, _) = carry
            inside = _TRUE if limit is None else number < limit
            return lax.bitwise_and(as_traced(inside), flag) if self.heeded else inside

        def one(carry: Any) -> Any:
            number, state = carry
            flag, after, _ = self.advance(number, *state)
            return number + np.ones((), number_type), (flag, after)

        return tuple(lax.while_loop(goes_on, one, (as_traced(np.array(0)), self.start()))[1][1])

    def start(self) -> tuple[Any, list[Any]]:
        return _flag(self.keep), [carried(value) for value in self.state]

    def advance(self, number: Any, flag: Any, state: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        """One iteration in a loop of JAX: where the condition counts it holds, so body sees it as known."""
        keep, after, scans = self.step(number, _TRUE if self.heeded else flag, state)
        return _flag(keep), same_state("loop", state, after), scans


def _flag(value: Any) -> jax.Array:
    return as_traced(np.asarray(found) if isinstance(found := condition("loop", _LIMIT, value), bool) else found)


def _change(before: Sequence[Any], after: Sequence[Any]) -> str:
    """The first state that an iteration gives another shape, in words; DTypeError for one of another type."""
    try:
        same_state("loop", before, after)
    except ShapeError as error:
        return str(error)
    return ""
