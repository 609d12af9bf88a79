"""Convolution of quantized numbers, with the channels first or last."""

__all__ = ["qlinear_conv"]

from typing import Unpack

import jax
import jax.numpy as jnp

from jaxops.attributes import flag
from jaxops.ops.microsoft.fused_convolution import channels_first
from jaxops.ops.nn import quantized_convolution as standard
from jaxops.ops.nn.convolution import ConvAttributes, conv
from jaxops.signature import Bias, Traits, Weight, like
from jaxops.static import ArrayLike

TRAITS = Traits(kind="convolution", precision="exact")


@like(conv)
def qlinear_conv(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike,
    w: Weight[ArrayLike],
    w_scale: ArrayLike,
    w_zero_point: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    b: Bias[ArrayLike] | None = None,
    *,
    channels_last: int = 0,
    **attributes: Unpack[ConvAttributes],
) -> jax.Array:
    """Returns the quantized convolution of the dequantized x and w, as `jaxops.qlinear_conv`, also with channels last.

    x: (N, C, d1, …, dn), or (N, d1, …, dn, C) with `channels_last`, as the result then is. w: (M, C/group, k1, …, kn)
    in either case. The rest, and the exceptions, are as in `jaxops.qlinear_conv`.
    Source: com.microsoft QLinearConv, opset 1, as onnxruntime defines it.

    >>> x, w = jnp.full((1, 5, 5, 2), 3, jnp.uint8), jnp.ones((4, 2, 3, 3), jnp.int8)
    >>> qlinear_conv(x, 1.0, 1, w, 1.0, 0, 2.0, jnp.uint8(0), channels_last=1).shape
    (1, 3, 3, 4)
    """
    last = flag("channels_last", channels_last)
    y = standard.qlinear_conv(
        channels_first("x", x) if last else x,
        *(x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b),
        **attributes,
    )
    return jnp.moveaxis(y, 1, -1) if last else y
