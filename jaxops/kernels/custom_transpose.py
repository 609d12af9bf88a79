"""Linear maps whose transpose is written by hand, where the one that JAX derives is slow or does not exist.

Unlike `jax.custom_derivatives.linear_call`, they can be mapped by `jax.vmap` and differentiated by what is known too.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxops.static import Primitive, ad, batching, mlir

Map = Callable[[Any, Any], Any]


def linear(there: Map, back: Map, known: Any, moving: Any) -> Any:
    """`there(known, moving)`, linear in `moving`; its transpose is `back(known, cotangent)`.

    known, moving: pytrees of arrays; `moving` holds floats only, as does the result. `there` must have derivatives of
    its own by what is known, and so must `back`.

    >>> scaled = lambda x: linear(lambda a, x: a * x, lambda a, y: a * y, jnp.float32(3), x)
    >>> jax.vmap(jax.grad(scaled))(jnp.ones(2)).tolist()
    [3.0, 3.0]
    """
    given, known_tree = jax.tree.flatten(known)
    free, moving_tree = jax.tree.flatten(moving)
    result_tree = jax.tree.structure(jax.eval_shape(there, known, moving))

    def flat_there(known: Any, moving: Any) -> Any:
        return jax.tree.leaves(there(known_tree.unflatten(known), moving_tree.unflatten(moving)))

    def flat_back(known: Any, cotangents: Any) -> Any:
        return jax.tree.leaves(back(known_tree.unflatten(known), result_tree.unflatten(cotangents)))

    return result_tree.unflatten(linear_p.bind(*given, *free, there=flat_there, back=flat_back, count=len(given)))


linear_p = Primitive("linear")
linear_p.multiple_results = True


def _applied(*operands: Any, there: Map, back: Map, count: int) -> Any:
    return there(operands[:count], operands[count:])


def _results(*avals: Any, **how: Any) -> Any:
    return jax.make_jaxpr(lambda *operands: _applied(*operands, **how))(*avals).out_avals


def _derivative(operands: Any, tangents: Any, *, there: Map, back: Map, count: int) -> Any:
    def along(moving: Any) -> Any:
        return linear_p.bind(*operands[:count], *moving, there=there, back=back, count=count)

    parts = []
    if any(type(t) is not ad.Zero for t in tangents[count:]):
        parts.append(along([ad.instantiate_zeros(t) for t in tangents[count:]]))
    moved = [k for k in range(count) if type(tangents[k]) is not ad.Zero]
    if moved:

        def by_known(*values: Any) -> Any:
            known = list(operands[:count])
            for k, value in zip(moved, values, strict=True):
                known[k] = value
            return there(tuple(known), operands[count:])

        parts.append(jax.jvp(by_known, [operands[k] for k in moved], [tangents[k] for k in moved])[1])
    return along(operands[count:]), [sum(terms[1:], terms[0]) for terms in zip(*parts, strict=True)]


def _transposed(cotangents: Any, *operands: Any, there: Map, back: Map, count: int) -> Any:
    given = [ad.instantiate_zeros(ct) for ct in cotangents]
    return [None] * count + linear_p.bind(*operands[:count], *given, there=back, back=there, count=count)


def _mapped(operands: Any, axes: Any, *, there: Map, back: Map, count: int) -> Any:
    """Everything that moves is given the new axis, so that no transpose has to sum over it."""
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    placed = [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(operands, axes, strict=True)]
    moving = [
        jnp.broadcast_to(x, (size, *x.shape)) if a is None else x
        for x, a in zip(placed[count:], axes[count:], strict=True)
    ]
    at = tuple(None if a is None else 0 for a in axes[:count])
    how = {"there": jax.vmap(there, (at, 0)), "back": jax.vmap(back, (at, 0)), "count": count}
    found = linear_p.bind(*placed[:count], *moving, **how)
    return found, [0] * len(found)


linear_p.def_impl(_applied)
linear_p.def_abstract_eval(_results)
ad.primitive_jvps[linear_p] = _derivative
ad.primitive_transposes[linear_p] = _transposed
batching.primitive_batchers[linear_p] = _mapped
mlir.register_lowering(linear_p, mlir.lower_fun(_applied, multiple_results=True))
