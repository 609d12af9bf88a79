"""Normalizations, and FakeQuantize, which simulates quantization in floats."""

import functools
from collections.abc import Sequence
from typing import Any

from jaxops import ops
from jaxops.errors import ArgumentError
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, laid_beside, resolve_axis, scalar_like, vector
from jaxops.ops.quantization.straight_through_estimator import rounded
from jaxops.signature import Bias, RunningMean, RunningVar, Static, Weight, like, operator
from jaxops.static import Array, array

normalization = operator(kind="normalization", precision="float32")


@version("MVN", 6)
@normalization
def mvn_6(data: Array, axes: Static, *, normalize_variance: bool, eps: float, eps_mode: Word) -> Array:
    """`eps` is added to the variance, or to its root."""
    reduced = vector("MVN", "axes", axes)
    centred = ops.sub(data, ops.reduce_mean(data, reduced))
    if not normalize_variance:
        return centred
    variance = ops.reduce_mean(ops.mul(centred, centred), reduced)
    eps_array = scalar_like(data, eps)
    if eps_mode == "inside_sqrt":
        return ops.div(centred, ops.sqrt(ops.add(variance, eps_array)))
    return ops.div(centred, ops.add(ops.sqrt(variance), eps_array))


@version("MVN", 2)
@normalization
@like(mvn_6, without=["eps_mode"])
def mvn_2(
    data: Array, *, across_channels: bool, reduction_axes: Sequence[int] | None = None, **attributes: Any
) -> Array:
    axes = tuple(reduction_axes or ()) or tuple(range(1 if across_channels else 2, array(data).ndim))
    return mvn_6(data, axes, eps_mode="inside_sqrt", **attributes)


@version("NormalizeL2", 1)
@normalization
def normalize_l2(data: Array, axes: Static, *, eps: float, eps_mode: Word) -> Array:
    """`eps` applies to the sum of squares, before the root. Without axes, the result is 1 for elements other than 0."""
    reduced = vector("NormalizeL2", "axes", axes)
    if not reduced.size:
        zero = scalar_like(data, 0)
        return ops.where(ops.equal(data, zero), zero, scalar_like(data, 1))
    total = ops.reduce_sum_square(data, reduced)
    limit = scalar_like(data, eps)
    total = ops.add(total, limit) if eps_mode == "add" else ops.max([total, limit])
    return ops.div(data, ops.sqrt(total))


@version("BatchNormInference", 1)
@normalization
def batch_norm_inference_1(
    gamma: Weight[Array], beta: Bias[Array], data: Array, mean: RunningMean, variance: RunningVar, *, epsilon: float
) -> Array:
    return ops.batch_normalization(data, gamma, beta, mean, variance, epsilon=epsilon)


version("BatchNormInference", 5)(ops.batch_normalization)


@version("LRN", 1, of=ops.lrn)
def lrn(data: Array, axes: Static, *, alpha: float, beta: float, bias: float, size: int) -> Array:
    """`alpha` is divided by the number of elements in a window: size to the power of the number of axes."""
    reduced = vector("LRN", "axes", axes).tolist()
    rank = array(data).ndim
    reduced = [resolve_axis("LRN", axis, rank) for axis in reduced]
    if size < 1:
        raise ArgumentError(f"LRN: `size` is {size}; it must be at least 1")
    if reduced == [1] and rank > 2:
        return ops.lrn(data, size=size, alpha=alpha, beta=beta, bias=bias)
    total = ops.mul(data, data)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    for axis in reduced:
        length = array(data).shape[axis]
        padded = ops.pad(total, (before, after), axes=(axis,))
        total = ops.slice(padded, [0], [length], [axis])
        for shift in range(1, size):
            total = ops.add(total, ops.slice(padded, [shift], [shift + length], [axis]))
    factor = scalar_like(data, alpha / size ** len(reduced))
    scale = ops.add(ops.mul(total, factor), scalar_like(data, bias))
    return ops.div(data, ops.pow(scale, scalar_like(data, beta)))


def fake_quantize(
    data: Array, *limits: Array, levels: int, auto_broadcast: Word, straight_through: bool = False
) -> Array:
    """Rounds half to even to one of `levels` numbers from `output_low` to `output_high`, which may be reversed.

    limits: input_low, input_high, output_low, output_high. straight_through: whether a derivative treats rounding as
    the identity.
    """
    x = array(data)
    low, high, out_low, out_high = (laid_beside("FakeQuantize", x, limit, auto_broadcast) for limit in limits)
    steps = scalar_like(x, levels - 1)
    one, width = scalar_like(x, 1), ops.sub(high, low)
    # If the limits are equal, only the comparisons below decide.
    divisor = ops.where(ops.equal(width, scalar_like(x, 0)), one, width)
    is_above, is_below = ops.greater(x, ops.max([low, high])), ops.less_or_equal(x, ops.min([low, high]))
    # What is not selected must not make the derivative NaN.
    held = ops.where(ops.or_(is_above, is_below), low, x) if straight_through else x
    number = ops.mul(ops.div(ops.sub(held, low), divisor), steps)
    places = rounded(ops.round(number), number) if straight_through else ops.round(number)
    inside = ops.add(ops.mul(ops.div(places, steps), ops.sub(out_high, out_low)), out_low)
    return ops.where(is_below, out_low, ops.where(is_above, out_high, inside))


_straight_through = functools.partial(fake_quantize, straight_through=True)
version("FakeQuantize", 1)(operator(precision="exact", straight_through=_straight_through)(fake_quantize))
