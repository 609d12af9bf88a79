"""Convolutions in the form that is fastest on each platform.

The plain form is one `lax` convolution. On a CPU and on a GPU, XLA computes some shapes many times slower than the same
sums as matrix products or elementwise operations. `select_cpu` and `select_gpu` choose a form; the reason stands next
to each rule and each form.
"""

from typing import Any

import jax
from jax import lax

from jaxops.kernels.convolution.select_cpu import cpu_form
from jaxops.kernels.convolution.select_gpu import gpu_form
from jaxops.kernels.convolution.window_slices import channels_first, padded
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.shapes.nn.windows import Windows


def over_windows(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Returns the convolution of data with filters of the same dtype, in that dtype. The caller has checked sizes."""
    return convolution(x, w, windows=windows, group=group)


def _convolve(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    pads = windows.pads
    if not all(isinstance(p, int) for pair in pads for p in pair):
        # The convolution takes numbers as padding, so a symbolic padding becomes a separate pad.
        x, windows = padded(x, windows, x.dtype.type(0))
        pads = windows.pads
    return lax.conv_general_dilated(
        x,
        w,
        windows.strides,
        pads,
        rhs_dilation=windows.dilations,
        dimension_numbers=channels_first(x.ndim),
        feature_group_count=group,
    )


def _select(target: Target, x: Any, w: Any, windows: Windows, group: int) -> Any:
    if target.platform == "cpu":
        return cpu_form(target, x.shape, w.shape, windows, group)
    return gpu_form(target, x.shape, w.shape, windows, group) if target.platform == "gpu" else None


def _sizes(x: Any, w: Any, windows: Windows, group: int) -> tuple[Any, ...]:
    return x.shape[0], w.shape[0], *windows.sizes


convolution = NamedCall("convolution", _convolve, _select, sizes=_sizes, outside=lambda *_, **__: 0)
