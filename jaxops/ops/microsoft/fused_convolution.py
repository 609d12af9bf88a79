"""Convolution and pooling with a fused activation, with the channels last, with a mask, or with pads as an operand."""

__all__ = [
    "conv_transpose_with_dynamic_pads",
    "fused_conv",
    "maxpool_with_mask",
    "nhwc_conv",
    "nhwc_fused_conv",
    "nhwc_max_pool",
]

import itertools
from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, ints
from jaxops.dtypes import as_traced
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.common.elementwise import require, traced_operands
from jaxops.ops.microsoft.fused_activations import listed
from jaxops.ops.nn.convolution import ConvAttributes, conv, conv_transpose
from jaxops.ops.nn.pooling import max_pool
from jaxops.ops.nn.windows import options
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.nn import windows
from jaxops.shapes.nn.windows import AutoPad, Options
from jaxops.signature import Bias, Static, Traits, Weight, like, operator
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="convolution")


@like(conv)
def fused_conv(
    x: ArrayLike,
    w: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
    z: ArrayLike | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    **attributes: Unpack[ConvAttributes],
) -> jax.Array:
    """Returns activation(`conv`(x, w, b) + z).

    x, w, b and the attributes after `activation_params` are as in `conv`. z: the shape of the convolution, or None.
    activation: the name of a standard operator, such as 'Relu', 'Clip' or 'HardSigmoid', or 'Silu'; None or '' is no
    activation. activation_params: its parameters: alpha; alpha and beta; or the bounds of Clip; None: the defaults.
    Raises what `conv` raises, and ArgumentError for an unknown activation or a wrong number of parameters.
    Source: com.microsoft FusedConv, opset 1.

    >>> x, w = jnp.array([[[-1.0, 1.0]]]), jnp.ones((1, 1, 1))
    >>> fused_conv(x, w, activation="LeakyRelu", activation_params=(0.5,)).tolist()
    [[[-0.5, 1.0]]]
    """
    last = listed(activation, activation_params)
    y = conv(x, w, b, **attributes)
    return last(y if z is None else _plus(y, z))


def _plus(y: Any, z: Any) -> Any:
    y, z = traced_operands((y, z), "floating-point")
    must_fit("z", z.shape, y.shape, reason=", the shape of the result")
    return y + z


@like(conv)
def nhwc_fused_conv(
    x: ArrayLike,
    w: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
    z: ArrayLike | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    **attributes: Unpack[ConvAttributes],
) -> jax.Array:
    """Computes `fused_conv` with the channels of x, z and the result on the last axis.

    x: (N, d1, …, dn, C). w: (M, C/group, k1, …, kn), as in `conv`. z: (N, o1, …, on, M). Returns (N, o1, …, on, M).
    Raises what `fused_conv` raises. Source: com.microsoft NhwcFusedConv, opset 1.

    >>> x = jnp.array([[[-1.0], [1.0]]])
    >>> nhwc_fused_conv(x, jnp.ones((2, 1, 1)), activation="Relu").tolist()
    [[[0.0, 0.0], [1.0, 1.0]]]
    """
    y = fused_conv(
        channels_first("x", x),
        w,
        b,
        None if z is None else channels_first("z", z),
        activation=activation,
        activation_params=activation_params,
        **attributes,
    )
    return jnp.moveaxis(as_traced(y), 1, -1)


def channels_first(operand: str, value: Any) -> jax.Array:
    """Moves the channels of an operand from the last axis to axis 1."""
    x = as_traced(value)
    if x.ndim < 3:
        raise ShapeError(f"`{operand}` of {shape_text(x.shape)} needs a first axis, spatial axes and channels")
    return jnp.moveaxis(x, -1, 1)


@like(conv)
def nhwc_conv(
    x: ArrayLike, w: Weight[ArrayLike], b: Bias[ArrayLike] | None = None, **attributes: Unpack[ConvAttributes]
) -> jax.Array:
    """Computes `conv` with the channels of x, w and the result on the last axis.

    x: (N, d1, …, dn, C). w: (M, k1, …, kn, C/group), as onnxruntime's optimizer writes it, although its documentation
    has it as in `conv`. b and the attributes are as in `conv`. Returns (N, o1, …, on, M).
    Raises what `conv` raises. Source: com.microsoft NhwcConv, opset 1.

    >>> nhwc_conv(jnp.ones((1, 5, 5, 1)), jnp.ones((2, 3, 3, 1))).shape
    (1, 3, 3, 2)
    """
    y = conv(channels_first("x", x), channels_first("w", w), b, **attributes)
    return jnp.moveaxis(y, 1, -1)


@operator(kind="pooling")
def nhwc_max_pool(
    x: ArrayLike,
    *,
    kernel_shape: Ints,
    auto_pad: AutoPad = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """Computes `max_pool` with the channels on the last axis.

    x: (N, d1, …, dn, C), numbers. The attributes are as in `max_pool`. Returns (N, o1, …, on, C), same dtype.
    Raises what `max_pool` raises. Source: com.microsoft NhwcMaxPool, opset 1.

    >>> nhwc_max_pool(jnp.arange(4).reshape(1, 4, 1), kernel_shape=(2,), strides=(2,)).reshape(-1).tolist()
    [1, 3]
    """
    y = max_pool(
        channels_first("x", x),
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )
    assert isinstance(y, jax.Array)
    return jnp.moveaxis(y, 1, -1)


@operator(kind="pooling")
def maxpool_with_mask(
    x: ArrayLike,
    m: ArrayLike,
    *,
    auto_pad: AutoPad = "NOTSET",
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> jax.Array:
    """Computes `max_pool` over the elements of each row of a window that come before the first masked one.

    x: (N, C, d1, …, dn), floats. m: (1 or N, 1 or C, d1, …, dn), int32; 0 masks an element, and those after it in the
    same row (the last axis) of a window. As in onnxruntime, with two axes or more the very first element of a plane is
    never masked, and a window without elements gives the lowest finite number. (onnxruntime 1.31 reads a mask of
    several planes at wrong places: it takes a number of elements modulo a number of planes.)
    kernel_shape and the other attributes are as in `max_pool`; storage_order has no effect. Returns (N, C, o1, …, on).
    Raises ShapeError, ArgumentError. Source: com.microsoft MaxpoolWithMask, opset 1.

    >>> maxpool_with_mask(jnp.array([[[1.0, 2.0, 3.0]]]), jnp.array([[[1, 1, 0]]]), kernel_shape=(3,)).tolist()
    [[[2.0]]]
    """
    flag("storage_order", storage_order)
    data, mask = as_traced(x), as_traced(m)
    require("floating-point", data)
    require("integer", mask)
    if kernel_shape is None:
        raise ShapeError("`kernel_shape` is missing; give the sizes of a window")
    window_options = options(auto_pad, pads, strides, None)
    return _maxpool_with_mask((data, mask), ints("kernel_shape", kernel_shape), window_options)


def _check_mask(x: Sizes, m: Sizes) -> None:
    """Raises ShapeError unless m has the shape of x, or 1 in place of batch or channels."""
    if len(m) != len(x) or tuple(m[2:]) != tuple(x[2:]) or m[0] not in (1, x[0]) or m[1] not in (1, x[1]):
        raise ShapeError(
            f"`m` of {shape_text(m)} must have the shape of x, {shape_text(x)}, or 1 in place of the first two"
        )


@jit_if_concrete
def _maxpool_with_mask(operands: tuple[jax.Array, ...], kernel: Sizes, window_options: Options) -> jax.Array:
    x, mask = operands
    pooling = windows.sliding(windows.spatial(x.shape), kernel, window_options)
    _check_mask(x.shape, mask.shape)
    alive, rank = mask != 0, x.ndim - 2
    if rank > 1:
        alive = alive.at[(slice(None), slice(None), *(0,) * rank)].set(True)
    config = [(0, 0, 0), (0, 0, 0), *((lo, hi, 0) for lo, hi in pooling.pads)]
    lowest = jnp.asarray(jnp.finfo(x.dtype).min, x.dtype)
    x, alive = lax.pad(x, lowest, config), lax.pad(alive, np.True_, config)

    def tap(values: jax.Array, offsets: tuple[int, ...]) -> jax.Array:
        ends = [i + (n - 1) * s + 1 for i, n, s in zip(offsets, pooling.sizes, pooling.strides, strict=True)]
        return lax.slice(values, (0, 0, *offsets), (*values.shape[:2], *ends), (1, 1, *pooling.strides))

    best = None
    for row in itertools.product(*map(range, kernel[:-1])):
        counted = None
        for i in range(kernel[-1]):
            now = tap(alive, (*row, i))
            counted = now if counted is None else counted & now
            value = jnp.where(counted, tap(x, (*row, i)), lowest)
            best = value if best is None else jnp.maximum(best, value)
    assert best is not None
    return best


def conv_transpose_with_dynamic_pads(
    x: ArrayLike,
    w: Weight[ArrayLike],
    pads: Static = None,
    b: Bias[ArrayLike] | None = None,
    *,
    auto_pad: AutoPad = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """Computes `conv_transpose` with pads as an operand.

    pads: static, all begins, then all ends; None is 0. The rest, the result and the exceptions are as in
    `conv_transpose`.
    Raises StaticError for traced pads. Source: com.microsoft ConvTransposeWithDynamicPads, opset 1.

    >>> conv_transpose_with_dynamic_pads(jnp.ones((1, 1, 3)), jnp.ones((1, 2, 3)), np.array([1, 0])).shape
    (1, 2, 4)
    """
    return conv_transpose(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=pads,
        strides=strides,
    )
