"""Loops that end when a counter reaches a limit, by a condition such as `i < n`, with or without a trip count.

TensorFlow's converter writes such loops.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import count as numbers
from operator import sub
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_canonical, is_string
from jaxops.errors import SizeError
from jaxops.ops.common.elementwise import on_sizes
from jaxops.ops.controlflow.state import carried, condition
from jaxops.shapes import arithmetic as of_sizes
from jaxops.static import Dim, FromSizes, array, is_static, is_symbolic, static_array, symbolic_shape

_NUMBERS = numbers()  # each loop that is looked at has a symbol of its own
_MANY = 64  # a larger value is neither a counter nor a list of sizes
_NEVER = np.iinfo(np.int32).max  # no loop has so many iterations: INT64_MAX stands for no limit
_GUESSES = 6  # how many trip counts are tried: one for each comparison in a condition, which has few

# How many nested loops are tracing a trial iteration. Each traces about five, so a third nested loop gives up.
_ASKED: ContextVar[int] = ContextVar("asked", default=0)
_NESTED = 2

Step = Callable[[Any, Any, Sequence[Any]], Any]  # (number, condition, state) → (condition, state, scan outputs)


class _Open(Exception):
    """A loop does more than count, or may do more."""


def counted(limit: Dim, state: Sequence[Any], step: Step, like: Dim) -> tuple[Dim, dict[int, np.ndarray]] | None:
    """The number of iterations, and the final values of the counters in the state, by position; None if the number is
    not known.

    limit: the largest number of iterations; None for no limit. like: a symbolic size that body reads, None if it reads
    none.

    The proof is by induction. The first iteration shows by how much each static value grows. Then an iteration that is
    not the last one is traced, with a symbol in its number. If each value grows by the same amount, and the condition
    is known to hold, this is so in all iterations but the last. Where a comparison is undecided, the loop may end where
    its two sides meet: that number of iterations is tried next.
    """
    if _ASKED.get() == _NESTED:
        raise _Open
    if isinstance(limit, int) and limit >= _NEVER:
        limit = None
    try:
        return _counted(limit, _Trial(state, step), _symbol(limit if is_symbolic(limit) else like))
    except Exception:  # body has been traced with a traced number, so a failure with a symbolic one is not an error
        return None


def _symbol(like: Dim) -> Dim:
    """A new symbol for a whole number of at least 1."""
    scope = {"scope": like.scope} if is_symbolic(like) else {}
    return symbolic_shape(f"iterations_{next(_NUMBERS)}", **scope)[0]


class _Trial:
    """Traces iterations of a loop, to see which values of the state count."""

    def __init__(self, state: Sequence[Any], step: Step) -> None:
        self._state, self._step = state, step
        static = {k: v for k, v in enumerate(state) if isinstance(v, np.ndarray) and not is_string(v)}
        self._static = {k: v for k, v in static.items() if v.size <= _MANY}
        _, after = self._iteration(np.array(0), self._static)
        growth = {k: _growth(v, after[k]) for k, v in self._static.items()}
        self._grows = {k: more for k, more in growth.items() if more is not None}

    def before(self, number: Dim) -> dict[int, np.ndarray]:
        """The state values that only count, by position, before an iteration."""
        return {k: _at(self._static[k], more, number) for k, more in self._grows.items()}

    def holds(self, number: Dim) -> bool | SizeError:
        """The condition after an iteration, or the error if it is undecided. Raises _Open if the state does more than
        count.
        """
        before = self.before(number)
        holds, after = self._iteration(static_array(np.array(number, object)), before)
        if not all(_same(_growth(before[k], after[k]), more) for k, more in self._grows.items()):
            raise _Open
        for item in holds.items.flat if isinstance(holds, FromSizes) else ():
            if isinstance(item, SizeError):
                return item
        if not is_static(array(holds)):  # traced, in a trace that has ended: no operation may read it
            raise _Open
        return condition("the condition that body returns", holds) is True

    def _iteration(self, number: np.ndarray, static: Mapping[int, np.ndarray]) -> tuple[Any, Sequence[Any]]:
        """The condition and the state after an iteration. static: values of the state, by position; the remaining
        ones are traced.
        """
        results: list[Any] = []

        def run(traced: Sequence[Any]) -> None:
            results.append(self._step(number, np.array(True), [static.get(k, value) for k, value in enumerate(traced)]))

        token = _ASKED.set(_ASKED.get() + 1)
        try:
            jax.eval_shape(run, [None if k in static else carried(value) for k, value in enumerate(self._state)])
        finally:
            _ASKED.reset(token)
        holds, after, _ = results[0]
        return holds, after


def _counted(limit: Dim, trial: _Trial, symbol: Dim) -> tuple[Dim, dict[int, np.ndarray]] | None:
    """As `counted`. symbol: for a whole number of at least 1."""
    count = limit
    for _ in range(_GUESSES):
        # Any iteration before the last one.
        holds = trial.holds(symbol - 1 if count is None else count - 1 - symbol)
        if isinstance(holds, SizeError):
            count = 1 + _meeting(holds.sizes, symbol, *((1, 2) if count is None else (count - 1, count - 2)))
            if limit is not None and not of_sizes.greater_or_equal(limit, count):
                return None
        elif holds is not True or count is None:
            return None
        elif trial.holds(count - 1) is False or count is limit:
            return (count, trial.before(count)) if of_sizes.greater_or_equal(count, 1) else None
        else:  # the condition holds where both sides are equal, as in `i <= n`
            count = count + 1
    return None


def _meeting(sides: Sequence[Dim], symbol: Dim, first: Dim, second: Dim) -> Dim:
    """The number of the iteration in which two sizes meet. first, second: the symbol in iterations 0 and 1."""
    start, after = (sub(*(of_sizes.with_value(side, symbol, value) for side in sides)) for value in (first, second))
    more = after - start
    if not isinstance(more, int) or not more:
        raise _Open
    return of_sizes.ceiled(-start, more) if more > 0 else of_sizes.ceiled(start, -more)


def _growth(before: np.ndarray, after: Any) -> np.ndarray | None:
    """By how much a value grows in an iteration, as integers; None if that is unknown, or it changes in another way."""
    if not isinstance(after, np.ndarray) or after.shape != before.shape:
        return None
    if before.dtype.kind not in "iuO":
        return np.zeros(before.shape, object) if np.array_equal(before, after) else None
    more = on_sizes(lambda old, new: new - old, before.astype(object), after.astype(object))
    return None if is_symbolic(more) else more


def _at(first: np.ndarray, more: np.ndarray, number: Dim) -> np.ndarray:
    """A value after so many iterations. Raises OutOfRangeError if a program could not hold it."""
    if not more.any():
        return first
    counted_value = static_array(on_sizes(lambda start, step: start + step * number, first.astype(object), more))
    if is_symbolic(counted_value) or first.dtype == object:
        return counted_value
    as_canonical(counted_value, first.dtype)
    return counted_value.astype(first.dtype)


def _same(a: Any, b: Any) -> bool:
    return a is not None and a.shape == b.shape and bool((a == b).all())
