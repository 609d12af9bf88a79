"""Sizes of deformable convolution."""

import math

from jaxops.errors import ArgumentError, shape_text
from jaxops.shapes.arithmetic import divided, must_fit
from jaxops.shapes.nn import windows
from jaxops.shapes.nn.windows import Options, Windows
from jaxops.static import Sizes


def deformed(
    x: Sizes,
    w: Sizes,
    offset: Sizes,
    b: Sizes | None,
    mask: Sizes | None,
    options: Options,
    group: int,
    offset_group: int,
    kernel_shape: Sizes | None,
) -> Windows:
    """The windows of data (N, C, d1, …) under filters (M, C/group, k1, …) (ONNX DeformConv-22)."""
    op = "deform_conv"
    sizes = windows.spatial(op, x)
    windows.channels(op, x, w, group)
    sliding = windows.sliding(op, sizes, windows.kernel_of(op, w, kernel_shape), options)
    if offset_group < 1:
        raise ArgumentError(f"{op}: `offset_group` is {offset_group}; it must be at least 1")
    divided(
        f"{op}: `offset_group` {offset_group} does not divide the {x[1]} channels of `x` {shape_text(x)}",
        x[1],
        offset_group,
    )
    taps = offset_group * math.prod(sliding.kernel)
    must_fit(op, "offset", offset, (x[0], taps * len(sizes), *sliding.sizes))
    if b is not None:
        windows.bias(op, b, w[0])
    # The text gives the mask n times as many channels for n spatial axes, unlike its own example in two; the reference
    # has one factor for each position of the kernel.
    must_fit(op, "mask", mask, (x[0], taps, *sliding.sizes))
    return sliding
