"""Convolution and pooling: versions that differ from the functions in `jaxops.ops`."""

from typing import Any

from jaxops import ops
from jaxops.errors import SignatureError
from jaxops.onnx.registry import version
from jaxops.shapes.nn.windows import AutoPad
from jaxops.static import Array, Ints

# MaxPool has a second output from version 8 on, and grew attributes.


version("MaxPool", 1)(ops.max_pool)


@version("MaxPool", 8)
def _(
    x: Array,
    *,
    auto_pad: AutoPad,
    kernel_shape: Ints,
    pads: Ints | None = None,
    storage_order: int,
    strides: Ints | None = None,
    n_outputs: int,
) -> Any:
    return ops.max_pool(
        x,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        pads=pads,
        storage_order=storage_order,
        strides=strides,
        return_indices=n_outputs == 2,
    )


@version("MaxPool", 10)
def _(
    x: Array,
    *,
    auto_pad: AutoPad,
    ceil_mode: int,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    storage_order: int,
    strides: Ints | None = None,
    n_outputs: int,
) -> Any:
    return ops.max_pool(
        x,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        pads=pads,
        storage_order=storage_order,
        strides=strides,
        return_indices=n_outputs == 2,
    )


@version("ConvTranspose", 1)
def _(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: AutoPad,
    dilations: Ints | None = None,
    group: int,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    # Beside `output_shape` the odd element is cut off at the side opposite to that of version 11. (onnxruntime 1.23
    # cuts as version 11 does, in models of every version.)
    if output_shape is not None and auto_pad in ("NOTSET", "VALID", "SAME_LOWER", "SAME_UPPER"):
        auto_pad = "SAME_LOWER" if auto_pad == "SAME_UPPER" else "SAME_UPPER"
    return ops.conv_transpose(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        output_shape=output_shape,
        pads=None if output_shape is not None else pads,
        strides=strides,
    )


version("ConvTranspose", 11)(ops.conv_transpose)


@version("LpPool", 1)
def _(
    x: Array,
    *,
    auto_pad: AutoPad,
    kernel_shape: Ints | None = None,
    p: float,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    if kernel_shape is None:
        raise SignatureError("lp_pool: attribute `kernel_shape` is missing")
    return ops.lp_pool(x, kernel_shape=kernel_shape, auto_pad=auto_pad, p=p, pads=pads, strides=strides)


version("LpPool", 2)(ops.lp_pool)
