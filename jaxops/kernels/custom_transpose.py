"""Linear maps with a hand-written transpose, for cases where JAX's own is slow or does not exist.

Unlike `jax.custom_derivatives.linear_call`, they can be mapped by `jax.vmap`, and differentiated by all operands.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxops.jax_internals import Primitive, ad, batching, mlir

Map = Callable[[Any, Any], Any]


def linear(forward: Map, transpose: Map, fixed: Any, moving: Any) -> Any:
    """Returns `forward(fixed, moving)`, which is linear in `moving`; its transpose is `transpose(fixed, cotangent)`.

    fixed, moving: pytrees of arrays; `moving` and the result have floats only. JAX must be able to differentiate both
    functions by `fixed`.

    >>> scaled = lambda x: linear(lambda a, x: a * x, lambda a, y: a * y, jnp.float32(3), x)
    >>> jax.vmap(jax.grad(scaled))(jnp.ones(2)).tolist()
    [3.0, 3.0]
    """
    fixed_leaves, fixed_tree = jax.tree.flatten(fixed)
    free, moving_tree = jax.tree.flatten(moving)
    result_tree = jax.tree.structure(jax.eval_shape(forward, fixed, moving))

    def flat_forward(fixed: Any, moving: Any) -> Any:
        return jax.tree.leaves(forward(fixed_tree.unflatten(fixed), moving_tree.unflatten(moving)))

    def flat_transpose(fixed: Any, cotangents: Any) -> Any:
        return jax.tree.leaves(transpose(fixed_tree.unflatten(fixed), result_tree.unflatten(cotangents)))

    return result_tree.unflatten(
        linear_p.bind(*fixed_leaves, *free, forward=flat_forward, transpose=flat_transpose, count=len(fixed_leaves))
    )


linear_p = Primitive("linear")
linear_p.multiple_results = True


def _applied(*operands: Any, forward: Map, transpose: Map, count: int) -> Any:
    return forward(operands[:count], operands[count:])


def _results(*avals: Any, **how: Any) -> Any:
    return jax.make_jaxpr(lambda *operands: _applied(*operands, **how))(*avals).out_avals


def _derivative(operands: Any, tangents: Any, *, forward: Map, transpose: Map, count: int) -> Any:
    def along(moving: Any) -> Any:
        return linear_p.bind(*operands[:count], *moving, forward=forward, transpose=transpose, count=count)

    parts = []
    if any(type(t) is not ad.Zero for t in tangents[count:]):
        parts.append(along([ad.instantiate_zeros(t) for t in tangents[count:]]))
    moved = [k for k in range(count) if type(tangents[k]) is not ad.Zero]
    if moved:

        def by_fixed(*values: Any) -> Any:
            fixed = list(operands[:count])
            for k, value in zip(moved, values, strict=True):
                fixed[k] = value
            return forward(tuple(fixed), operands[count:])

        parts.append(jax.jvp(by_fixed, [operands[k] for k in moved], [tangents[k] for k in moved])[1])
    return along(operands[count:]), [sum(terms[1:], terms[0]) for terms in zip(*parts, strict=True)]


def _transposed(cotangents: Any, *operands: Any, forward: Map, transpose: Map, count: int) -> Any:
    cotangents = [ad.instantiate_zeros(ct) for ct in cotangents]
    return [None] * count + linear_p.bind(
        *operands[:count], *cotangents, forward=transpose, transpose=forward, count=count
    )


def _mapped(operands: Any, axes: Any, *, forward: Map, transpose: Map, count: int) -> Any:
    """Batching rule. Every operand in `moving` gets the new axis, so that the transpose need not sum over it."""
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    placed = [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(operands, axes, strict=True)]
    moving = [
        jnp.broadcast_to(x, (size, *x.shape)) if a is None else x
        for x, a in zip(placed[count:], axes[count:], strict=True)
    ]
    in_axes = tuple(None if a is None else 0 for a in axes[:count])
    how = {"forward": jax.vmap(forward, (in_axes, 0)), "transpose": jax.vmap(transpose, (in_axes, 0)), "count": count}
    results = linear_p.bind(*placed[:count], *moving, **how)
    return results, [0] * len(results)


linear_p.def_impl(_applied)
linear_p.def_abstract_eval(_results)
ad.primitive_jvps[linear_p] = _derivative
ad.primitive_transposes[linear_p] = _transposed
batching.primitive_batchers[linear_p] = _mapped
mlir.register_lowering(linear_p, mlir.lower_fun(_applied, multiple_results=True))
