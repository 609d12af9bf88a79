"""Loops that data end: `lax.while_loop`, or a scan of a fixed number of steps.

Each step of the scan is a `lax.cond` on whether the loop has ended, so a skipped step enters neither the results nor a
derivative. JAX cannot differentiate `lax.while_loop` in reverse. Where the number of steps is limited, the derivative
of the while loop is that of the scan.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from jaxops.dtypes import as_traced, canonical
from jaxops.errors import StaticError
from jaxops.kernels.custom_transpose import linear
from jaxops.ops.common.result_sizes import bounded_like, check_counts
from jaxops.signature import DataSize
from jaxops.static import is_symbolic

# A loop with at most so many iterations has a derivative without a `size`: that of a scan, which keeps values of each.
DIFFERENTIATED = 1000


def _also_counting(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the attributes of a loop with one more scan output, of ones, if it has any."""
    body, state = attributes["body"], max(len(inputs) - 2, 0)

    def counting(*inputs: Any, **context: Any) -> list[Any]:
        return [*body(*inputs, **context), np.ones((), np.int8)]

    if len(body.outputs) == 1 + state:
        return attributes
    counting.__dict__.update(body.__dict__)
    return {**attributes, "body": counting}


def _iterations(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    """Returns the number of iterations: skipped ones left zeros. All count if the loop has not ended."""
    return jnp.count_nonzero(results[-1]) if len(results) == len(attributes["body"].outputs) else None


def _most_iterations(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> int | None:
    limit = inputs[0]
    known = isinstance(limit, np.ndarray) and not is_symbolic(limit) and limit.size == 1
    return int(limit.item()) if known and 0 <= limit.item() <= DIFFERENTIATED else None


# The number of rows of scan outputs.
ITERATIONS = DataSize(_iterations, _most_iterations, _also_counting)


@dataclass(frozen=True)
class EndedByData:
    """A loop whose number of iterations depends on data.

    iterate: (number, condition, state) → (condition, state, scan outputs), a partial application to the list of values
    that body captures. start: the condition and the state before the first iteration. limit: the trip count, an integer
    or a traced one; None for no limit. conditional: whether the condition can end the loop. size: the largest number of
    iterations; None if there is none. node: the name of the node in a model; empty if there is none.
    """

    iterate: partial[Any]
    start: tuple[Any, Sequence[Any]]
    limit: Any
    conditional: bool
    size: int | None
    node: str

    def last_state(self) -> tuple[Any, ...]:
        """Returns the state after the last iteration."""
        known = self.limit if isinstance(self.limit, int) and self.limit <= DIFFERENTIATED else None
        steps = known if self.size is None else self.size if known is None else min(known, self.size)
        scanned = None if steps is None else partial(self._state_of_scan, steps)
        run = _with_derivative_of(scanned, partial(self._repeated, steps), self._no_derivative)
        ended, state = run(self.iterate.args[0], self.start, self._limit())
        return tuple(state if self.size is None else _marked_unless(ended, state))

    def state_and_rows(self, size: int) -> tuple[Any, ...]:
        """Returns the state after the last iteration, and the scan outputs with `size` rows; skipped ones are zero."""
        check_counts("size", size)
        ended, state, rows = self._scanned(size, self.iterate.args[0], self.start, self._limit())
        return tuple(_marked_unless(ended, [*state, *rows]))

    def _limit(self) -> Any:
        if self.limit is None or isinstance(self.limit, jax.Array):
            return self.limit
        number_type = canonical(np.int64)
        # A limit that the iteration number cannot reach, such as INT64_MAX, never applies.
        limit = min(self.limit, np.iinfo(number_type).max) if isinstance(self.limit, int) else self.limit
        return as_traced(np.array(limit), number_type)

    def _goes_on(self, number: Any, flag: Any, limit: Any) -> Any:
        inside = as_traced(np.array(True)) if limit is None else number < lax.convert_element_type(limit, number.dtype)
        return lax.bitwise_and(inside, flag) if self.conditional else inside

    def _repeated(self, steps: int | None, captured: Any, start: Any, limit: Any) -> tuple[Any, Any]:
        """Returns whether the loop has ended after at most so many steps, and the state."""

        def continues(carry: Any) -> Any:
            number, (flag, _) = carry
            goes_on = self._goes_on(number, flag, limit)
            return goes_on if steps is None else lax.bitwise_and(goes_on, number < steps)

        def one(carry: Any) -> Any:
            number, (flag, state) = carry
            flag, after, _ = self.iterate.func(captured, number, flag, state)
            return number + np.ones((), number.dtype), (flag, after)

        number, (flag, state) = lax.while_loop(continues, one, (as_traced(np.array(0)), start))
        return lax.bitwise_not(self._goes_on(number, flag, limit)), state

    def _state_of_scan(self, steps: int, captured: Any, start: Any, limit: Any) -> tuple[Any, Any]:
        return self._scanned(steps, captured, start, limit)[:2]

    def _scanned(self, steps: int, captured: Any, start: Any, limit: Any) -> tuple[Any, Any, Any]:
        """Returns whether the loop has ended after so many steps, the state, and the scan outputs."""
        first = as_traced(np.array(0))
        row_types = jax.eval_shape(self.iterate.func, captured, first, *start)[2]
        for row in row_types:
            bounded_like((steps, *row.shape), row, subject="a scan output")

        def one(carry: Any, number: Any) -> Any:
            goes_on = self._goes_on(number, carry[0], limit)

            def runs() -> Any:
                flag, after, rows = self.iterate.func(captured, number, *carry)
                return (flag, after), rows

            def skips() -> Any:
                return carry, [jnp.zeros(row.shape, row.dtype) for row in row_types]

            return lax.cond(goes_on, runs, skips)

        (flag, state), rows = lax.scan(one, start, lax.iota(first.dtype, steps))
        return lax.bitwise_not(self._goes_on(as_traced(np.array(steps)), flag, limit)), state, rows

    def _no_derivative(self) -> StaticError:
        """The error about a derivative of a loop without a largest number of iterations."""
        loop, bound = "loop", "loop(…, size=n)"
        if self.node:
            loop, bound = f"Loop '{self.node}'", f"load(path, bounds={{{self.node!r}: n}})"
        return StaticError(
            f"{loop}: data decide the number of iterations, so a derivative in reverse mode needs a largest number\n"
            f"  hint    {bound} runs at most n iterations, each of which `jax.grad` can follow"
        )


def _marked_unless(ended: Any, values: Sequence[Any]) -> list[Any]:
    """Returns values unchanged if `ended` holds; else with NaN for each float, False, -1, or the largest number of a
    type without a sign.
    """

    def marked(x: Any) -> Any:
        if _is_float(x) and x.dtype.itemsize > 1:
            return x * jnp.where(ended, 1, jnp.nan).astype(x.dtype)  # so the derivative is NaN, too
        kind = np.dtype(x.dtype).kind
        fill = False if kind == "b" else np.iinfo(x.dtype).max if kind == "u" else -1 if kind == "i" else np.nan
        return lax.select(ended, x, jnp.full(x.shape, np.asarray(fill).astype(x.dtype)))

    return jax.tree.map(marked, list(values))


def _with_derivative_of(
    differentiable: Callable[..., Any] | None, run: Callable[..., Any], problem: Callable[[], StaticError]
) -> Callable[..., Any]:
    """Returns the function `run` with the derivative of another function, which has the same results.

    differentiable: None if there is none; a derivative in reverse mode raises `problem()` then.
    """
    function = jax.custom_jvp(run)

    def derivative(primals: Any, tangents: Any) -> Any:
        values, tree = jax.tree.flatten(primals)
        along = jax.tree.leaves(tangents, is_leaf=lambda t: isinstance(t, SymbolicZero))
        moving = [k for k, tangent in enumerate(along) if not isinstance(tangent, SymbolicZero)]

        def moved(values: Sequence[Any]) -> Callable[..., list[Any]]:
            def floats(*operands: Any) -> list[Any]:
                changed = dict(zip(moving, operands, strict=True))
                operands = tree.unflatten([changed.get(k, value) for k, value in enumerate(values)])
                return list(filter(_is_float, jax.tree.leaves((differentiable or run)(*operands))))

            return floats

        def pushed(values: Any, tangents: Any) -> Any:
            return jax.jvp(moved(values), [values[k] for k in moving], list(tangents))[1]

        def pulled(values: Any, cotangents: Any) -> Any:
            if differentiable is None:
                raise problem()
            return list(jax.vjp(moved(values), *(values[k] for k in moving))[1](list(cotangents)))

        # Not the tangents of a `lax.cond` themselves: once `jax.vmap` has made it a selection, JAX cannot transpose it.
        pushed_forward = iter(linear(pushed, pulled, values, [along[k] for k in moving]))
        results, tree_of_results = jax.tree.flatten(function(*primals))
        moves = [next(pushed_forward) if _is_float(y) else np.zeros(y.shape, jax.dtypes.float0) for y in results]
        return tree_of_results.unflatten(results), tree_of_results.unflatten(moves)

    function.defjvp(derivative, symbolic_zeros=True)
    return function


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)
