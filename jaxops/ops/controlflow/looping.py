"""The loop with a trip count and a condition."""

__all__ = ["loop"]

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, zip_longest
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import as_traced, canonical
from jaxops.errors import (
    ArgumentError,
    JaxopsError,
    ShapeError,
    SignatureError,
    SizeError,
    StaticError,
    UnboundedError,
    amount,
    describe,
)
from jaxops.lazy_sequences import GrowingSequence, SplitSequence
from jaxops.memory import bounded
from jaxops.ops.common.result_sizes import bounded_like, check_counts
from jaxops.ops.controlflow.branching import if_
from jaxops.ops.controlflow.counting import counted
from jaxops.ops.controlflow.ended_by_data import ITERATIONS, EndedByData
from jaxops.ops.controlflow.state import carried, condition, has_strings, rows_of, same_state, value_of
from jaxops.signature import Static, Subgraph, operator
from jaxops.static import CUTTABLE, UNKNOWN, Dim, FromSizes, Tracer, Undecided, is_symbolic, traced_once, tracing

_TRUE = np.array(True)
# A loop whose state grows is unrolled. With more iterations than this, and if the program may be cut (`CUTTABLE`), it
# runs step by step outside of the program instead.
_UNROLLED = 8
_LIMIT = "the condition that body returns"

Body: TypeAlias = Annotated[
    Callable[..., Sequence[Any]], Subgraph(decided_by=("M", "cond"), first=0, leading=1, carries=True)
]


@operator(data_size=ITERATIONS)
def loop(
    m: Any, cond: Any, v_initial: Sequence[Any], body: Body, *, size: Static = None, rng: Any = None
) -> tuple[Any, ...]:
    """Repeats `body` while `cond` holds, at most `m` times.

    m: the trip count, one integer; None for no limit. cond: one boolean; None ignores the condition
    that body returns. v_initial: the state before the first iteration: arrays, sequences (lists) of arrays, None.
    body: (iteration number, condition, *state) → (condition, *state, *scan outputs). rng: a random key; each iteration
    passes a key of its own to body, as `rng`.
    size: static, the largest number of iterations where data decide how many there are. Each scan output has `size`
    rows then, padded with zeros. If the loop has not ended after so many, its results are NaN, -1, False, or the
    largest number of a type without a sign.
    Returns the last state, then each scan output stacked along a new first axis, one row per iteration.

    Outside `jit`, and while body computes only static values, this is a Python loop. Under tracing it is one of three:
    - `lax.scan`, which can be differentiated, when the number of iterations is known. That number is `m` where body
      returns the condition unchanged; or it follows from a condition such as i < n, which compares counters with known
      numbers.
    - a loop unrolled by Python, when the state changes its shape or holds sequences, or when body needs a known
      iteration number.
    - `lax.while_loop` otherwise. It has a derivative in reverse mode if `m` is known and at most 1,000, or with
      `size`: that of a scan of so many steps. Scan outputs need `size`.
    `lax.scan` and `lax.while_loop` turn a static state into JAX arrays; only the last value of a counter of a scan
    stays static.
    Raises StaticError when the number of iterations must be known but is traced, ArgumentError for an endless loop,
    DTypeError and ShapeError when the state or a scan output changes its type or shape.
    Source: ONNX Loop, opsets 1–25.

    >>> loop(4, None, [np.array(1)], lambda i, keep, n: (keep, n * 2, n))
    (array(16), array([1, 2, 4, 8]))
    """
    if m is None and cond is None:
        raise ArgumentError("without `m`, the trip count, and without `cond` it never ends; give one of them")
    state = [value_of(value) for value in v_initial]

    def step(number: Any, keep: Any, state: Sequence[Any]) -> Any:
        # A key per iteration, so that each draws other random numbers.
        key = {} if rng is None else {"rng": jax.random.fold_in(rng, as_traced(number))}
        after, *values = body(number, keep, *state, **key)
        after = after if isinstance(after, FromSizes) else value_of(after)
        values = list(map(value_of, values))
        if len(values) < len(state):
            returned = amount(len(values), "value")
            raise SignatureError(f"body returns {returned} after the condition, but the state has {len(state)}")
        return after, values[: len(state)], values[len(state) :]

    keep = True if cond is None else condition("`cond`", cond)
    declared = getattr(body, "outputs", ())[1 + len(state) :]
    types = [value.dtype for value in getattr(body, "inputs", ())[2:]]
    bound = None if size is None else integer("size", size, least=1)
    job = _Loop(_count(m), keep, cond is not None, state, step, types, declared, bound, getattr(body, "node", ""))
    growing = [k for k, value in enumerate(state) if isinstance(value, list)] if is_symbolic(job.count) else []
    return _collecting(job, growing) if growing else job.run()


def _collecting(job: "_Loop", growing: list[int]) -> tuple[Any, ...]:
    """The loop over a symbolic number of iterations. growing: the positions of the sequences in the state."""
    try:
        return _appending(job, growing)
    except (StaticError, Undecided):
        pass  # `run` can do it if the sequences keep their length
    try:
        return job.run()
    except Undecided as error:
        raise SizeError(
            f"{job.count} iterations change the length of a sequence; body may only append to it, and not in a "
            "branch with a traced condition",
            job.count,
        ) from error


def _appending(job: "_Loop", growing: list[int]) -> tuple[Any, ...]:
    """The loop with the sequences at these positions of the state as scan outputs, as its body appends to them."""
    fixed_state = [value for k, value in enumerate(job.state) if k not in growing]
    added: list[int] = []  # how many arrays an iteration appends to each

    def step(number: Any, keep: Any, state: Sequence[Any]) -> Any:
        remaining = iter(state)
        values_in = [GrowingSequence(tuple(v)) if k in growing else next(remaining) for k, v in enumerate(job.state)]
        after, values, scans = job.step(number, keep, values_in)
        for k in growing:
            if not isinstance(values[k], GrowingSequence):
                raise StaticError(f"body may only append to sequence state {k}; it returned a different sequence")
        added[:] = [len(values[k].added) for k in growing]
        rows = [row for k in growing for row in values[k].added]
        return after, [value for k, value in enumerate(values) if k not in growing], [*scans, *rows]

    results = replace(job, state=fixed_state, step=step).run()
    remaining, scans = iter(results[: len(fixed_state)]), list(results[len(fixed_state) :])
    ends = list(accumulate(added, initial=len(scans) - sum(added)))
    rows = {k: scans[start:end] for k, start, end in zip(growing, ends, ends[1:], strict=False)}
    state = [_grown(v, rows[k]) if k in growing else next(remaining) for k, v in enumerate(job.state)]
    return (*state, *scans[: ends[0]])


def _grown(before: list[Any], rows: list[Any]) -> Any:
    """Appends to a sequence the first row of each array, then the second row of each, and so on."""
    if not rows:
        return before
    stacked = rows[0] if len(rows) == 1 else jnp.stack(rows, 1).reshape(-1, *rows[0].shape[1:])
    first = [jnp.stack([as_traced(x) for x in before])] if before else []
    return SplitSequence(jnp.concatenate([*first, stacked]), 1, 0, False)


def _count(value: Any) -> Any:
    """The trip count: None, a number, a symbolic dimension, or a traced scalar."""
    if isinstance(value, FromSizes):
        value = value.traced
    if isinstance(value, Tracer):
        if value.size != 1:
            raise ShapeError(f"`m`, the trip count, must be one integer, but is {describe(value)}")
        return lax.reshape(value, ()) if value.ndim else value
    if value is None:
        return None
    count = integer("m", value)
    return max(count, 0) if isinstance(count, int) else count


class _NotStatic(Exception):
    """An iteration with a static state computed a traced value."""


# True while an iteration is tried with a static state. A loop inside it that is not static ends the trial.
_TRYING: ContextVar[bool] = ContextVar("trying", default=False)


@dataclass(frozen=True)
class _Traced:
    """The facts that the trace of one iteration shows."""

    problem: str = ""  # why the loop must be unrolled
    grows: bool = False  # the reason is an array of the state that changes its shape
    exits: bool = True  # it may end the loop
    scans: int = 0  # the number of scan outputs
    # (captured values, number, condition, state) → (condition, state, scan outputs)
    repeat: Callable[..., Any] | None = None
    captured: Sequence[Any] = ()  # the values that body reads from outside
    size: Dim = None  # a symbolic size that an iteration reads

    @property
    def iterate(self) -> partial[Any] | None:
        """(number, condition, state) → (condition, state, scan outputs); None if the loop must be unrolled."""
        return None if self.repeat is None else partial(self.repeat, self.captured)


@dataclass(frozen=True)
class _Loop:
    count: Any
    keep: Any  # the condition; a bool if it is known
    conditional: bool  # whether the condition can end the loop
    state: list[Any]
    step: Callable[[Any, Any, Sequence[Any]], Any]
    types: Sequence[Any]  # the element types of the state, if a model declares them
    declared: Sequence[Any]  # the types and shapes of the scan outputs, if a model declares them
    size: int | None  # the largest number of iterations, if data decide how many there are
    node: str  # its name, in a model

    def run(self) -> tuple[Any, ...]:
        if isinstance(self.keep, bool) and not isinstance(self.count, jax.Array):
            leaves = jax.tree.leaves(self.state)
            eager = not tracing() and not any(isinstance(leaf, Tracer) for leaf in leaves) and self.size is None
            static = not any(isinstance(leaf, jax.Array) for leaf in leaves)
            first = self.first() if static and not eager and self.keep else None
            if self.keep is False or eager or first:
                outputs = self.unrolled(first)
                if outputs is not None:
                    return outputs
        if _TRYING.get():
            raise _NotStatic
        return self.traced()

    def first(self) -> Any:
        """The outputs of the first iteration with a static state; None if one of them is traced."""
        results: list[Any] = []
        outermost = not _TRYING.get()
        token = _TRYING.set(True)
        try:
            jax.eval_shape(lambda: results.append(self.step(np.array(0), _TRUE, self.state)))
        except _NotStatic:
            if not outermost:
                raise
            return None
        finally:
            _TRYING.reset(token)
        return results[0] if all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(results)) else None

    def unrolled(self, first: Any = None) -> tuple[Any, ...] | None:
        """Runs iteration by iteration; None if the condition is traced. first: the outputs of the first iteration."""
        keep, state, rows = np.array(self.keep), self.state, []
        while (self.count is None or len(rows) < self.count) and (not self.conditional or keep):
            keep, state, scans = first if first and not rows else self.step(np.array(len(rows)), keep, state)
            rows.append(scans)
            self.check_kept(len(rows), state, scans)
            goes_on = condition(_LIMIT, keep)
            if self.conditional:
                if isinstance(goes_on, jax.Array):
                    return None
                keep = np.array(goes_on)
        if rows:
            return (*state, *rows_of(rows))
        shapes: list[Any] = []
        try:
            jax.eval_shape(lambda: shapes.extend(self.step(np.array(0), _TRUE, self.state)[2]))
        except JaxopsError:
            # Body cannot run on the values that an empty loop leaves, such as the first of no boxes.
            if not self.declared or any(value.shape is None or value.dtype is None for value in self.declared):
                raise
            sizes = [[d if isinstance(d, int) else 0 for d in value.shape] for value in self.declared]
            return (*state, *(np.zeros((0, *s), v.dtype) for s, v in zip(sizes, self.declared, strict=True)))
        # NumPy has no arrays of symbolic sizes.
        spaces = [jnp if any(map(is_symbolic, scan.shape)) else np for scan in shapes]
        return (*state, *(xp.zeros((0, *s.shape), s.dtype) for xp, s in zip(spaces, shapes, strict=True)))

    def check_kept(self, done: int, state: Sequence[Any], scans: Sequence[Any]) -> None:
        """Raises TooLargeError if scan outputs, or sequences that grow, do not fit in memory.

        If only the count ends the loop, their size is known after the first iteration. Otherwise it is checked each
        time that it may have doubled.
        """
        if done > 1 if not self.conditional else done & (done - 1):
            return
        for row in jax.tree.leaves(list(scans)):
            if hasattr(row, "dtype"):
                bounded_like((done if self.conditional else self.count, *row.shape), row, subject="a scan output")
        for value in state:
            if isinstance(value, list):
                bounded([sum(x.nbytes for x in value if isinstance(x, np.ndarray))], 1, "a sequence")

    def traced(self) -> tuple[Any, ...]:
        """Runs as `lax.scan`, as `lax.while_loop`, or unrolled."""
        seen = self.trace()
        limited = self.count is not None and not isinstance(self.count, jax.Array)
        iterate = seen.iterate
        outcome = self.counted(seen) if iterate and self.keep is True else None
        if iterate and outcome is not None:
            count, last = outcome
            return tuple(last.get(k, value) for k, value in enumerate(self.scanned(iterate, count)))
        if iterate and limited and not (seen.exits or seen.scans):
            return if_(self.keep, lambda: self.scanned(iterate, self.count), lambda: self.state)
        if iterate and (self.size is not None or not seen.scans):
            job = EndedByData(iterate, self.start(), self.count, self.conditional, self.size, self.node)
            return job.state_and_rows(self.size) if self.size is not None and seen.scans else job.last_state()
        unrollable = isinstance(self.keep, bool) and not isinstance(self.count, jax.Array)
        if unrollable and seen.grows and CUTTABLE.get() and (self.count is None or self.count > _UNROLLED):
            raise StaticError(seen.problem)  # compiling a program for each power of two of the size takes less time
        outcome = self.unrolled() if unrollable else None
        if outcome is None:
            raise self.unknown(seen.problem)
        return outcome

    def counted(self, seen: _Traced) -> tuple[Dim, dict[int, np.ndarray]] | None:
        """The number of iterations, and the known values of the last state by position; None if it is unknown."""
        if isinstance(self.count, jax.Array):
            return None
        if seen.exits:
            return counted(self.count, self.state, self.step, seen.size)
        return None if self.count is None else (self.count, {})

    def trace(self) -> _Traced:
        """Traces one iteration, with a traced number and state, and True as the condition if it can end the loop."""
        if has_strings(self.state):
            return _Traced("the state holds strings")
        traces: list[_Traced] = []

        def iteration(number: Any, flag: Any, state: Sequence[Any]) -> Any:
            keep, after, scans = self.step(number, _TRUE if self.conditional else flag, state)
            if has_strings(scans):
                traces.append(_Traced("a scan output holds strings"))
                return ()
            continues = isinstance(keep, np.ndarray) and bool(keep.all())
            try:
                after = same_state(state, after)
            except ShapeError as error:
                arrays = not any(isinstance(value, list) for value in (*state, *after))
                traces.append(_Traced(str(error), grows=arrays))
                return ()
            traces.append(_Traced(exits=self.conditional and not continues, scans=len(scans)))
            return _flag(keep), after, [as_traced(scan) for scan in scans]

        try:
            repeat, captured, size = traced_once(iteration, as_traced(np.array(0)), *self.start())
        except UNKNOWN as error:
            return _Traced(f"body needs a known value; {str(error).splitlines()[0]}")
        traced = traces[0]
        return traced if traced.problem else replace(traced, repeat=repeat, captured=captured, size=size)

    def unknown(self, reason: str) -> StaticError:
        """The error about a number of iterations that is not known. reason: empty if scan outputs need it."""
        operand = "`cond`" if isinstance(self.keep, jax.Array) else _LIMIT
        operand = "`m`, the trip count," if isinstance(self.count, jax.Array) else operand
        problem = f"the number of iterations must be known while tracing, but {operand} is traced"
        if not reason:
            text = f"{problem}\n  needed  each scan output has one row per iteration"
            return UnboundedError(text, "n rows, padded with zeros; a loop of more iterations gives NaN and -1")
        return StaticError(
            f"{problem}\n"
            f"  needed  {reason}\n"
            f"  hint    run it outside jit, make {operand} known (a NumPy value), or keep rows in a state of fixed size"
        )

    def scanned(self, iterate: Callable[..., Any], count: Dim) -> tuple[Any, ...]:
        def one(carry: Any, number: Any) -> Any:
            flag, after, scans = iterate(number, *carry)
            return (flag, after), scans

        check_counts("m", count)
        (_, state), scans = lax.scan(one, self.start(), lax.iota(canonical(np.int64), count))
        return (*state, *scans)

    def start(self) -> tuple[Any, list[Any]]:
        values = zip_longest(self.state, self.types[: len(self.state)])
        return _flag(self.keep), [carried(value, dtype) for value, dtype in values]


def _flag(value: Any) -> jax.Array:
    return as_traced(np.asarray(truth) if isinstance(truth := condition(_LIMIT, value), bool) else truth)
