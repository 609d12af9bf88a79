"""8-bit integers that stand for floats. A specialized program on a CPU multiplies such integers, and then the scales.

`compiler.passes.integer_products` finds these products: they read the results of a call of `dequantize`.
"""

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

    operands: numbers, of int8 or uint8; the scale; and the zero point, of int32, unless it is 0. The scale, and the
    zero point, is one number, or one for each index of `axis`.
    """

    operands: tuple[Any, ...]
    axis: int = field(metadata={"static": True})

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
        return all(x.shape in _SINGLE for x in self.operands[1:])

    def with_numbers(self, numbers: Any) -> "Quantized":
        """Returns other integers with this scale and zero point."""
        return replace(self, operands=(numbers, *self.operands[1:]))

    def floats(self) -> jax.Array:
        """Returns the array."""
        return dequantize(*self.operands, axis=self.axis)


def _without_axis(x: Any) -> Any:
    return lax.reshape(x, ()) if x.shape == (1,) else x


def _along(x: Any, axis: int, sizes: Sizes) -> jax.Array:
    return lax.broadcast_in_dim(_without_axis(x), sizes, () if x.shape in _SINGLE else (axis,))


def _floats(numbers: jax.Array, scale: jax.Array, *zero: jax.Array, axis: int) -> jax.Array:
    integers = numbers.astype(jnp.int32)
    if zero:
        integers = integers - _along(zero[0], axis, numbers.shape)
    return integers.astype(jnp.float32) * _along(scale, axis, numbers.shape)


# Of the operands of a `Quantized`, with its axis.
dequantize = NamedCall("dequantize", _floats)
