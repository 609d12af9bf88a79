"""Sizes of causal convolution whose input may have its channels last."""

import math

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.nn.sequence_states import causal_conv
from jaxops.static import Sizes


def causal(
    op: str, x: Sizes, weight: Sizes, bias: Sizes | None, *, channels_last: bool, dilation: int
) -> tuple[Sizes, Sizes]:
    """x as (N, C, L), and the sizes of a state: (N, C, S), or (N, S, c1, …, cn) with the channels last."""
    if not channels_last:
        return x, causal_conv(op, x, weight, bias, dilation)
    if len(x) < 3:
        raise ShapeError(f"{op}: `input` of {shape_text(x)} must be (N, L, c1, …, cn)")
    flat = (x[0], math.prod(x[2:]), x[1])
    return flat, (x[0], causal_conv(op, flat, weight, bias, dilation)[2], *x[2:])
