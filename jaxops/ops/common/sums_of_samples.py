"""Sums and maxima over samples whose number depends on the data, in loops that can be differentiated."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.custom_transpose import linear


def largest(sample: Any, steps: Any, moving: Any, fixed: Any, empty: Any) -> Any:
    """Returns the first largest sample of each element, differentiable with respect to `moving`; NaN is the largest.

    sample: `sample(number, moving, fixed)` gives a value for each element. steps: the number of samples; none gives 0.
    empty: the value to start from, -inf for each element.
    """
    first = _first_largest(sample, steps, lax.stop_gradient(moving), fixed, empty)

    def winning(number: Any, moving: Any, fixed: Any) -> Any:
        *fixed, first = fixed
        return jnp.where(first == number, sample(number, moving, fixed), jnp.zeros_like(empty))

    return summed(winning, steps, moving, (*fixed, first))


def _first_largest(sample: Any, steps: Any, moving: Any, fixed: Any, empty: Any) -> Any:
    """Returns the number of the first largest sample for each element; -1 for none."""

    def step(number: Any, state: Any) -> Any:
        best, first = state
        value = sample(number, moving, fixed)
        take = (value > best) | ((value != value) & (best == best))
        return jnp.where(take, value, best), jnp.where(take, number, first)

    return lax.fori_loop(0, steps, step, (empty, jnp.full(empty.shape, -1, np.int32)))[1]


def summed(term: Any, steps: Any, moving: Any, fixed: Any) -> Any:
    """The sum of `term(number, moving, fixed)` over the numbers below `steps`, differentiable with respect to `moving`.

    JAX has no reverse-mode derivative of a loop of traced length. But the derivative of a sum is a sum of the same
    length, in forward and in reverse mode.
    """

    @jax.custom_jvp
    def total(moving: Any, fixed: Any, steps: Any) -> Any:
        like = jax.eval_shape(term, np.int32(0), moving, fixed)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), like)
        return lax.fori_loop(0, steps, lambda k, sum: jax.tree.map(jnp.add, sum, term(k, moving, fixed)), zeros)

    @total.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        summed_terms = total(*primals)

        def ahead(primals: Any, tangent: Any) -> Any:
            moving, fixed, steps = primals

            def along(number: Any, both: Any, fixed: Any) -> Any:
                return jax.jvp(lambda m: term(number, m, fixed), (both[0],), (both[1],))[1]

            return summed(along, steps, (moving, tangent), fixed)

        def back(primals: Any, cotangent: Any) -> Any:
            moving, fixed, steps = primals

            def pulled(number: Any, both: Any, fixed: Any) -> Any:
                return jax.vjp(lambda m: term(number, m, fixed), both[0])[1](both[1])[0]

            return summed(pulled, steps, (moving, cotangent), fixed)

        return summed_terms, linear(ahead, back, primals, tangents[0])

    plain = total.fun if isinstance(steps, int) else total  # JAX itself differentiates a loop of known length
    return plain(moving, fixed, steps)
