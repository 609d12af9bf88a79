"""Integers of a few bits with a scale, which represent floats.

In a specialized program on a CPU, products of the floats become products of the integers, multiplied by the scales
afterwards: `compiler.passes.integer_products` looks for products that read the results of `dequantize`.
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
    """The float32 array (numbers - zero) · scale, as the operands of a call of `dequantize`.

    operands: the numbers; the scale; the zero point, int32, which is omitted if it is 0. Without a block, the numbers
    are int8 or uint8, and scale and zero point are one number each, or one for each index of `axis`. block: how many
    numbers in a row on `axis` have the same scale and zero point, which have the rank of the numbers then. These have
    2, 4 or 8 bits.
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
        """Returns a copy with other integers, and with the same scale and zero point."""
        return replace(self, operands=(numbers, *self.operands[1:]))

    def transposed(self, operands: Sequence[Any], permutation: Sequence[int]) -> "Quantized":
        """Returns numbers in blocks in another order of the axes. operands: these, transposed."""
        return replace(self, operands=tuple(operands), axis=list(permutation).index(self.axis))

    def floats(self) -> jax.Array:
        """Returns the float32 array."""
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


# Takes the operands and the axis of a `Quantized`, returns its floats.
dequantize = NamedCall("dequantize", _floats)
