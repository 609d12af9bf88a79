"""The loop with a trip count and a condition."""

__all__ = ["loop"]

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import as_traced, canonical, is_string
from jaxops.errors import ArgumentError, ShapeError, SignatureError, StaticError, describe
from jaxops.ops.controlflow.branching import if_
from jaxops.ops.controlflow.state import carried, condition, rows_of, same_state, value_of
from jaxops.static import UNKNOWN, Subgraph, Tracer, is_symbolic, traced_once, tracing

_TRUE = np.array(True)
_LIMIT = "the condition that body returns"

Body: TypeAlias = Annotated[
    Callable[..., Sequence[Any]], Subgraph(decided_by=("M", "cond"), first=0, own=1, carries=True)
]


def loop(m: Any, cond: Any, v_initial: Sequence[Any], body: Body, *, rng: Any = None) -> tuple[Any, ...]:
    """Repeats `body` while `cond` holds, at most `m` times.

    m: the trip count, one integer; None for no limit. cond: one boolean; with None the condition returned by body is
    ignored. v_initial: the state before the first iteration: arrays, sequences (lists) of arrays, None.
    body: (number of the iteration, condition, *state) → (condition, *state, *scan outputs). rng: a key; each iteration
    then gets a key of its own, as `rng` of body.
    Returns the last state, then each scan output stacked along a new first axis, one row an iteration.

    Outside `jit`, and while all that body makes is static, this is a loop in Python. Under tracing it is `lax.scan`,
    which can be differentiated, when the trip count is known and body hands the condition on as it came. It is
    unrolled when the state changes its shape or holds sequences, or when body needs a known number of the
    iteration. Else it is `lax.while_loop`, which has no scan outputs. In both of JAX's loops a static state
    becomes JAX arrays, and body is traced once.
    Raises StaticError when the number of iterations must be known and is traced, ArgumentError for a loop without
    an end, DTypeError and ShapeError when the state or a scan output changes its type or shape.
    Source: ONNX Loop, opsets 1–25.

    >>> loop(4, None, [np.array(1)], lambda i, keep, n: (keep, n * 2, n))
    (array(16), array([1, 2, 4, 8]))
    """
    if m is None and cond is None:
        raise ArgumentError("loop: it never ends without `m`, the trip count, and `cond`; give one of them")
    state = [value_of(value) for value in v_initial]

    def step(number: Any, keep: Any, state: Sequence[Any]) -> Any:
        # Each iteration draws its own random numbers.
        key = {} if rng is None else {"rng": jax.random.fold_in(rng, number)}
        after, *values = map(value_of, body(number, keep, *state, **key))
        if len(values) < len(state):
            raise SignatureError(f"loop: body returns {len(values)} values after the condition, state has {len(state)}")
        return after, values[: len(state)], values[len(state) :]

    keep = True if cond is None else condition("loop", "`cond`", cond)
    job = _Loop(_count(m), keep, cond is not None, state, step)
    return job.run()


def _count(value: Any) -> Any:
    """The trip count: None, a number, a symbolic dimension, or a traced scalar."""
    if isinstance(value, Tracer):
        if value.size != 1:
            raise ShapeError(f"loop: `m`, the trip count, must be one integer, but is {describe(value)}")
        return lax.reshape(value, ()) if value.ndim else value
    if value is None:
        return None
    count = integer("loop", "m", value)
    return max(count, 0) if isinstance(count, int) else count


class _NotStatic(Exception):
    """An iteration with a static state makes something traced."""


# Whether such an iteration is being tried: then a loop inside it that is not static ends the trial at once.
_TRYING: ContextVar[bool] = ContextVar("trying", default=False)


@dataclass(frozen=True)
class _Look:
    """What one iteration does, as its trace shows."""

    problem: str = ""  # why the loop must be unrolled
    exits: bool = True  # whether it may end the loop
    scans: int = 0  # how many scan outputs there are
    again: Callable[..., Any] | None = None  # (number, condition, state) → the same with scan outputs


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
            first = self.first() if static and not eager and self.keep else None
            if self.keep is False or eager or first:
                found = self.unrolled(first)
                if found is not None:
                    return found
        if _TRYING.get():
            raise _NotStatic
        return self.traced()

    def first(self) -> Any:
        """What the first iteration gives while its state is static; None if some of that is traced."""
        seen: list[Any] = []
        outermost = not _TRYING.get()
        token = _TRYING.set(True)
        try:
            jax.eval_shape(lambda: seen.append(self.step(np.array(0), _TRUE, self.state)))
        except _NotStatic:
            if not outermost:
                raise
            return None
        finally:
            _TRYING.reset(token)
        return seen[0] if all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(seen)) else None

    def unrolled(self, first: Any = None) -> tuple[Any, ...] | None:
        """Iteration by iteration; None when the condition turns out to be traced. first: what the first one gave."""
        keep, state, rows = np.array(self.keep), self.state, []
        while (self.count is None or len(rows) < self.count) and (keep or not self.heeded):
            keep, state, scans = first if first and not rows else self.step(np.array(len(rows)), keep, state)
            rows.append(scans)
            if self.heeded:
                keep = condition("loop", _LIMIT, keep)
                if isinstance(keep, jax.Array):
                    return None
                keep = np.array(keep)
        if rows:
            return (*state, *rows_of("loop", rows))
        shapes: list[Any] = []
        jax.eval_shape(lambda: shapes.extend(self.step(np.array(0), _TRUE, self.state)[2]))
        # NumPy has no arrays of symbolic sizes.
        spaces = [jnp if any(map(is_symbolic, scan.shape)) else np for scan in shapes]
        return (*state, *(xp.zeros((0, *s.shape), s.dtype) for xp, s in zip(spaces, shapes, strict=True)))

    def traced(self) -> tuple[Any, ...]:
        """As `lax.scan`, unrolled, or as `lax.while_loop`."""
        look = self.look()
        counted = self.count is not None and not isinstance(self.count, jax.Array)
        again = look.again
        if again and counted and not look.exits:
            if self.keep is True:
                return self.scanned(again)
            if not look.scans:
                return if_(self.keep, lambda: self.scanned(again), lambda: self.state)
        if again and not look.scans:
            return self.repeated(again)
        known = isinstance(self.keep, bool) and not isinstance(self.count, jax.Array)
        found = self.unrolled() if known else None
        if found is None:
            raise self.unknown(look.problem or "a scan output has one row an iteration")
        return found

    def look(self) -> _Look:
        """Traces an iteration, once, with a traced number and state; where the condition counts it holds."""
        if any(isinstance(leaf, np.ndarray) and is_string(leaf) for leaf in jax.tree.leaves(self.state)):
            return _Look("the state holds strings")
        seen: list[_Look] = []

        def iteration(number: Any, flag: Any, state: Sequence[Any]) -> Any:
            keep, after, scans = self.step(number, _TRUE if self.heeded else flag, state)
            goes_on = isinstance(keep, np.ndarray) and bool(keep.all())
            try:
                after = same_state("loop", state, after)
            except ShapeError as error:
                seen.append(_Look(str(error)))
                return ()
            seen.append(_Look("", self.heeded and not goes_on, len(scans)))
            return _flag(keep), after, [as_traced(scan) for scan in scans]

        try:
            again = traced_once(iteration, as_traced(np.array(0)), *self.start())
        except UNKNOWN as error:
            return _Look(f"body needs a known value; {str(error).splitlines()[0]}")
        found = seen[0]
        return found if found.problem else _Look("", found.exits, found.scans, again)

    def unknown(self, reason: str) -> StaticError:
        which = "`cond`" if isinstance(self.keep, jax.Array) else _LIMIT
        which = "`m`, the trip count," if isinstance(self.count, jax.Array) else which
        return StaticError(
            f"loop: the number of iterations must be known while tracing, but {which} is traced\n"
            f"  needed  {reason}\n"
            f"  hint    run it outside jit, or make {which} known (a NumPy value); a state of fixed size, as an array "
            f"that is filled row by row, needs neither"
        )

    def scanned(self, again: Callable[..., Any]) -> tuple[Any, ...]:
        def one(carry: Any, number: Any) -> Any:
            flag, after, scans = again(number, *carry)
            return (flag, after), scans

        (_, state), scans = lax.scan(one, self.start(), lax.iota(canonical(np.int64), self.count))
        return (*state, *scans)

    def repeated(self, again: Callable[..., Any]) -> tuple[Any, ...]:
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
            flag, after, _ = again(number, *state)
            return number + np.ones((), number_type), (flag, after)

        return tuple(lax.while_loop(goes_on, one, (as_traced(np.array(0)), self.start()))[1][1])

    def start(self) -> tuple[Any, list[Any]]:
        return _flag(self.keep), [carried(value) for value in self.state]


def _flag(value: Any) -> jax.Array:
    return as_traced(np.asarray(found) if isinstance(found := condition("loop", _LIMIT, value), bool) else found)
