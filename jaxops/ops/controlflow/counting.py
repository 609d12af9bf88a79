"""Loops whose condition only counts along: `i < n` beside a trip count of n, as TensorFlow's loops come."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import count as numbers
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_canonical, is_string
from jaxops.ops.controlflow.state import carried, condition
from jaxops.ops.elementwise import on_sizes
from jaxops.static import Dim, is_symbolic, settled, symbolic_shape

_NUMBERS = numbers()  # each question has a symbol of its own
_MANY = 64  # counters and sizes have fewer elements

# Whether an iteration is being tried. A loop inside it that asks the same ends the trial, which else would take three
# times as long for each loop around another.
_ASKED: ContextVar[bool] = ContextVar("asked", default=False)

Step = Callable[[Any, Any, Sequence[Any]], Any]  # (number, condition, state) → (condition, state, scan outputs)


class _AskedAgain(Exception):
    """A loop inside the iteration that is being tried has a condition of its own."""


def counted(count: Dim, state: Sequence[Any], step: Step) -> dict[int, np.ndarray] | None:
    """The state after `count` iterations, by place, where it only counts; None if body may end the loop before.

    That is shown by induction. The first iteration says by how much each static value grows. Then an iteration that is
    not the last one is traced, with a symbol in its number: if each value grows by as much again, and the condition
    is known to hold, so they do in all of them.
    """
    if _ASKED.get():
        raise _AskedAgain
    static = {k: v for k, v in enumerate(state) if isinstance(v, np.ndarray) and not is_string(v) and v.size <= _MANY}
    number = count - 1 - _symbol(count)
    try:
        _, after = _iteration(step, np.array(0), state, static)
        grows = {k: _growth(v, after[k]) for k, v in static.items()}
        grows = {k: more for k, more in grows.items() if more is not None}
        before = {k: _at(static[k], more, number) for k, more in grows.items()}
        holds, after = _iteration(step, settled(np.array(number, object)), state, before)
        again = all(_same(_growth(before[k], after[k]), more) for k, more in grows.items())
        if not again or condition("loop", "the condition that body returns", holds) is not True:
            return None
        return {k: _at(static[k], more, count) for k, more in grows.items()}
    except Exception:  # body has been traced with a traced number: what it cannot do with a symbol is no error
        return None


def _symbol(count: Dim) -> Dim:
    """A new symbol for a whole number of at least 1."""
    scope = {"scope": count.scope} if is_symbolic(count) else {}
    return symbolic_shape(f"iterations_{next(_NUMBERS)}", **scope)[0]


def _iteration(
    step: Step, number: np.ndarray, state: Sequence[Any], static: Mapping[int, np.ndarray]
) -> tuple[Any, Sequence[Any]]:
    """The condition and the state after an iteration. static: values of the state, by place; all others are traced."""
    found: list[Any] = []

    def run(traced: Sequence[Any]) -> None:
        found.append(step(number, np.array(True), [static.get(k, value) for k, value in enumerate(traced)]))

    token = _ASKED.set(True)
    try:
        jax.eval_shape(run, [None if k in static else carried(value) for k, value in enumerate(state)])
    finally:
        _ASKED.reset(token)
    holds, after, _ = found[0]
    return holds, after


def _growth(before: np.ndarray, after: Any) -> np.ndarray | None:
    """By how much a value grows: whole numbers; None if it is not known, or changes in another way."""
    if not isinstance(after, np.ndarray) or after.shape != before.shape:
        return None
    if before.dtype.kind not in "iuO":
        return np.zeros(before.shape, object) if np.array_equal(before, after) else None
    more = on_sizes(lambda old, new: new - old, before.astype(object), after.astype(object))
    return None if is_symbolic(more) else more


def _at(first: np.ndarray, more: np.ndarray, number: Dim) -> np.ndarray:
    """A value after so many iterations. Raises OutOfRangeError where a program could not hold it."""
    if not more.any():
        return first
    found = settled(on_sizes(lambda start, step: start + step * number, first.astype(object), more))
    if is_symbolic(found) or first.dtype == object:
        return found
    as_canonical(found, first.dtype)
    return found.astype(first.dtype)


def _same(a: Any, b: Any) -> bool:
    return a is not None and a.shape == b.shape and bool((a == b).all())
