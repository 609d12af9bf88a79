"""Integers of a few bits that stand for floats. A specialized program on a CPU multiplies with the integers.

`compiler.passes.integer_products` finds these products: they read the results of a call of `dequantize`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.kernels.named_call import NamedCall
from jaxops.static import Sizes

_SINGLE = ((), (1,))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Quantized:
    """The float32 array (numbers - zero) · scale, as a call of `dequantize` gets it.

    operands: numbers; the scale; and the zero point, of int32, unless it is 0. The scale, and the zero point, is one
    number, or one for each index of `axis`, for numbers of int8 or uint8. With a `block` it has the rank of the
    numbers, of 2, 4 or 8 bits: one for as many numbers in a row on `axis`.
    """

    operands: tuple[Any, ...]
    axis: int = field(metadata={"static": True})
    block: int = field(default=0, metadata={"static": True})

    @property
    def numbers(self) -> Any:
        """The integers."""
        return self.operands[0]

    @property
    def scale(self) -> Any:
        """The scale; a scalar if it is one number."""
        return _without_axis(self.operands[1])

    @property
    def zero(self) -> Any:
        """The zero point, or None; a scalar if it is one number."""
        return _without_axis(self.operands[2]) if len(self.operands) == 3 else None

    @property
    def has_one_scale(self) -> bool:
        """True if one scale and one zero point serve all numbers."""
        return not self.block and all(x.shape in _SINGLE for x in self.operands[1:])

    def with_numbers(self, numbers: Any) -> "Quantized":
        """Returns other integers with this scale and zero point."""
        return replace(self, operands=(numbers, *self.operands[1:]))

    def transposed(self, operands: Sequence[Any], permutation: Sequence[int]) -> "Quantized":
        """Returns numbers in blocks in another order of the axes. operands: these, transposed."""
        return replace(self, operands=tuple(operands), axis=list(permutation).index(self.axis))

    def floats(self) -> jax.Array:
        """Returns the array."""
        return dequantize(*self.operands, axis=self.axis, block=self.block)


def _without_axis(x: Any) -> Any:
    return lax.reshape(x, ()) if x.shape == (1,) else x


def spread_blocks(x: Any, axis: int, block: int, size: Any) -> jax.Array:
    """Returns the array with each element of an axis `block` times in a row, cut to `size`."""
    sizes = x.shape
    repeated = lax.broadcast_in_dim(
        x, (*sizes[: axis + 1], block, *sizes[axis + 1 :]), (*range(axis + 1), *range(axis + 2, x.ndim + 1))
    )
    joined = lax.reshape(repeated, (*sizes[:axis], sizes[axis] * block, *sizes[axis + 1 :]))
    return lax.slice_in_dim(joined, 0, size, axis=axis)


def _along(x: Any, axis: int, block: int, sizes: Sizes) -> jax.Array:
    if block:
        return spread_blocks(x, axis, block, sizes[axis])
    return lax.broadcast_in_dim(_without_axis(x), sizes, () if x.shape in _SINGLE else (axis,))


def _floats(numbers: jax.Array, scale: jax.Array, *zero: jax.Array, axis: int, block: int) -> jax.Array:
    integers = numbers.astype(jnp.int32)
    if zero:
        integers = integers - _along(zero[0], axis, block, numbers.shape)
    return integers.astype(jnp.float32) * _along(scale, axis, block, numbers.shape)


# Of the operands of a `Quantized`, with its axis.
dequantize = NamedCall("dequantize", _floats)
