"""Depthwise convolutions: one operation for JAX, which is lowered to a sum over the taps of a window for XLA.

A sum over 7×7 taps has 196 operations, each of which JAX would trace twice and lower: five sixths of ConvNeXt-T's 4,188
operations. As one operation, a model starts sooner. On a CPU, equal sums are calls of one function, since XLA reads and
checks the complete program twice before it inlines them.
"""

import math
from typing import Any

import chex
import jax

from jaxops.jax_internals import Primitive, ir, mlir, stablehlo
from jaxops.kernels.convolution.window_slices import bounds, positions
from jaxops.shapes.nn.windows import Windows


def channel_sum(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
    """Returns the depthwise convolution of padded data (N, d1, …, dn, C) with filters of the same type.

    Filters (k1·…·kn, C) give (N, o1, …, on, C). With M filters for each channel, filters (k1·…·kn, M, C) give
    (N, o1, …, on, M, C); filters (k1·…·kn, M) of one channel give (N, o1, …, on, M).
    For specialized programs only, since it has no derivative.
    """
    chex.assert_axis_dimension(w, 0, math.prod(windows.kernel))
    return _CHANNEL_SUM.bind(x, w, windows=windows)


_CHANNEL_SUM = Primitive("channel_sum")


@_CHANNEL_SUM.def_abstract_eval
def _sizes(x: Any, w: Any, *, windows: Windows) -> Any:
    return x.update(shape=(x.shape[0], *windows.sizes, *w.shape[1:]))


def _lowered(context: Any, x: Any, w: Any, *, windows: Windows) -> list[Any]:
    (data, filters), (result,) = context.avals_in, context.avals_out
    type = ir.RankedTensorType.get(result.shape, ir.RankedTensorType(x.type).element_type)
    sizes, axes = filters.shape[1:], range(len(result.shape))
    strides, one_by_one, zeros = _integers(1, *windows.strides, 1), _integers(*[1] * filters.ndim), [0] * len(sizes)
    weight_axes, data_axes = _integers(0, *axes[-len(sizes) :]), _integers(*axes[: data.ndim - 1], axes[-1])
    total = None
    for k, tap in enumerate(positions(windows)):
        first, last = bounds(tap, windows)
        end = _integers(data.shape[0], *last, data.shape[-1])
        part = stablehlo.slice(x, _integers(0, *first, 0), end, strides)
        part = part if sizes == data.shape[-1:] else stablehlo.broadcast_in_dim(type, part, data_axes)
        weight = stablehlo.slice(w, _integers(k, *zeros), _integers(k + 1, *sizes), one_by_one)
        weight = stablehlo.broadcast_in_dim(type, weight, weight_axes)
        term = stablehlo.multiply(part, weight)
        total = term if total is None else stablehlo.add(total, term)
    return [total]


def _integers(*values: int) -> Any:
    return ir.DenseI64ArrayAttr.get(values)


mlir.register_lowering(_CHANNEL_SUM, _lowered)
mlir.register_lowering(_CHANNEL_SUM, _lowered, platform="cpu", inline=False)
