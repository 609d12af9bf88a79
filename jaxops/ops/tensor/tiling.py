"""Repetition along axes."""

__all__ = ["tile"]


import jax.numpy as jnp  # noqa: F401 - the doctests use it
import numpy as np
from jax import lax

from jaxops.attributes import check_not_negative, ints
from jaxops.dtypes import as_traced
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.common.size_tracking import repeated
from jaxops.signature import StaticInts, Traits
from jaxops.static import A, Array, Operand, Sizes, is_symbolic, jit_if_concrete

TRAITS = Traits(kind="movement", foldable=True)


@moves_strings(0)
def tile(input: Operand[A], repeats: StaticInts) -> A:
    """Repeats `input` along each axis.

    input: n axes, any dtype. repeats: static, n integers >= 0, or one integer if n is 1. Returns the same dtype, each
    size times its repeats.
    Raises ShapeError unless there is one repeat per axis, ArgumentError for a negative one.
    Source: ONNX Tile, opsets 6–13.

    >>> tile(jnp.arange(2), (3,)).tolist()
    [0, 1, 0, 1, 0, 1]
    """
    return repeated(input, _tile(input, ints("repeats", repeats, single=True)))


def _tiled_sizes(sizes: Sizes, repeats: Sizes) -> Sizes:
    """Each size times its repeats."""
    if len(repeats) != len(sizes):
        raise ShapeError(f"`repeats` {shape_text(repeats)} must hold one number for each axis of {shape_text(sizes)}")
    check_not_negative("repeats", repeats, "it")
    return tuple(d * r for d, r in zip(sizes, repeats, strict=True))


@jit_if_concrete
def _tile(input: Array, repeats: Sizes) -> Array:
    sizes = _tiled_sizes(input.shape, repeats)
    if isinstance(input, np.ndarray) and not any(map(is_symbolic, sizes)):
        bounded_like(sizes, input)
        return np.tile(input, repeats)
    inner, outer, order = [], [], []
    for size, count in zip(input.shape, repeats, strict=True):
        if not (isinstance(count, int) and count == 1):
            inner.append(1)
            outer.append(count)
        order.append(len(outer))
        inner.append(size)
        outer.append(size)
    x = lax.expand_dims(as_traced(input), [i for i in range(len(outer)) if i not in order])
    y = lax.reshape(lax.broadcast_in_dim(x, outer, range(len(outer))), sizes)
    return assert_sizes(y, sizes, x.dtype)
