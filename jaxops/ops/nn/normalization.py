"""Normalization: operators that scale data to a mean of zero, a variance of one or a norm of one.

Statistics of 16-bit types are computed in float32.
"""

__all__ = [
    "batch_normalization",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "lp_normalization",
    "lrn",
    "mean_variance_normalization",
    "rms_normalization",
]

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axes as resolve_axes, axis as resolve_axis, flag, integer, ints, one_of, stash
from jaxops.dtypes import accumulation_type, floating
from jaxops.errors import ShapeError, shape_text
from jaxops.kernels.xla_workarounds import magnitude, quotient, root_of_squares
from jaxops.shapes.math.broadcasting import must_broadcast
from jaxops.shapes.nn import normalization as sizes_of
from jaxops.signature import Bias, ElementType, RunningMean, RunningVar, SecondOutput, Static, Traits, Weight, operator
from jaxops.static import ArrayLike, Ints, jit_if_concrete

TRAITS = Traits(kind="normalization", precision="float32")

Norm = Literal[1, 2]
# Windows of up to this many neighbours are summed slice by slice, which XLA:CPU fuses; wider ones use reduce_window.
_ADDED = 16


def _along(vector: Any, axis: int, rank: int) -> Any:
    """A vector as an array of `rank` axes, with its elements along `axis`."""
    return lax.expand_dims(vector, [i for i in range(rank) if i != axis])


def _moments(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """x minus its mean, and its variance over `axes`, both with all axes kept; two passes avoid cancellation."""
    centred = x - jnp.mean(x, axes, keepdims=True)
    return centred, jnp.mean(lax.square(centred), axes, keepdims=True)


def batch_normalization(
    x: ArrayLike,
    scale: Weight[ArrayLike],
    b: Bias[ArrayLike],
    input_mean: RunningMean,
    input_var: RunningVar,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Any:
    """Normalizes each channel (axis 1) by a given mean and variance, then scales and shifts it.

    x: (N, C, …), or (N,) as one channel; floats. scale, b, input_mean, input_var: (C,), floats of any type. epsilon:
    added to the variance.
    Returns an array like x. With `training_mode` x is normalized by its own mean and population variance, and the
    result is (y, running_mean, running_var), where running = input · momentum + current · (1 - momentum), in the
    type of `input_var`.
    Raises ShapeError for a parameter of another shape, DTypeError for operands that are not floating-point.
    Source: ONNX BatchNormalization, opsets 14–15.

    >>> one = jnp.ones(3)
    >>> batch_normalization(jnp.ones((2, 3)), one, one, one, one).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    operands = floating(x=x, scale=scale, b=b, input_mean=input_mean, input_var=input_var)
    training = flag("training_mode", training_mode)
    return _batch_normalization(operands, float(epsilon), float(momentum), training)


@jit_if_concrete
def _batch_normalization(operands: tuple[Any, ...], epsilon: float, momentum: float, training: bool) -> Any:
    x, scale, b, mean, var = operands
    sizes_of.per_channel(x.shape, scale=scale.shape, b=b.shape, input_mean=mean.shape, input_var=var.shape)
    statistics_dtype = var.dtype
    work = accumulation_type(*(v.dtype for v in operands))
    wider, scale, b, mean, var = (v.astype(work) for v in operands)
    axis = 1 if x.ndim > 1 else None
    align = (lambda v: _along(v, 1, x.ndim)) if axis else (lambda v: v)
    if not training:
        # One multiply-add per element: per-channel factors are computed once.
        factor = lax.mul(scale, lax.rsqrt(lax.add(var, lax.full_like(var, epsilon))))
        shift = lax.sub(b, lax.mul(mean, factor))
        factor, shift = (lax.broadcast_in_dim(v, x.shape, (axis or 0,)) for v in (factor, shift))
        return lax.add(lax.mul(wider, factor), shift).astype(x.dtype)
    reduced_axes = tuple(i for i in range(x.ndim) if i != axis)
    mean_now = jnp.mean(wider, reduced_axes)
    centred = wider - align(jnp.reshape(mean_now, scale.shape))
    var_now = jnp.mean(lax.square(centred), reduced_axes)
    factor = scale * lax.rsqrt(jnp.reshape(var_now, scale.shape) + epsilon)
    y = (centred * align(factor) + align(b)).astype(x.dtype)
    running = (
        old * momentum + jnp.reshape(new, old.shape) * (1 - momentum) for old, new in ((mean, mean_now), (var, var_now))
    )
    return (y, *(v.astype(statistics_dtype) for v in running))


@operator(precision="narrow")
def lrn(x: ArrayLike, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> jax.Array:
    """Local response normalization: divides by a power of the sum of squares over neighbouring channels (axis 1).

    x: (N, C, …), floats. Returns x / (bias + alpha / size · s) ** beta, where s sums the squares of the channels
    from c - (size-1)//2 to c + size//2, as far as they exist.
    Raises ArgumentError for a size below 1, ShapeError for an x without axis 1, DTypeError.
    Source: ONNX LRN, opsets 1–13.

    >>> lrn(jnp.ones((1, 3, 1)), size=2, alpha=2.0, beta=1.0, bias=2.0)[0, :, 0].tolist()
    [0.25, 0.25, 0.3333333432674408]
    """
    (values,) = floating(x=x)
    if values.ndim < 2:
        raise ShapeError(f"x of {shape_text(values.shape)} has no channel axis; give (N, C, …)")
    return _lrn(values, integer("size", size, least=1), float(alpha), float(beta), float(bias))


@jit_if_concrete
def _lrn(x: Any, size: int, alpha: float, beta: float, bias: float) -> Any:
    before, after = sizes_of.window(size, x.shape[1])
    work = accumulation_type(x.dtype)
    wider = x.astype(work)
    square = lax.square(wider)
    pads = [(before, after) if i == 1 else (0, 0) for i in range(x.ndim)]
    reach = before + after + 1
    if reach <= _ADDED:
        padded = lax.pad(square, np.zeros((), work), [(low, high, 0) for low, high in pads])
        total = square if reach == 1 else lax.slice_in_dim(padded, 0, x.shape[1], axis=1)
        for i in range(1, reach):
            total = total + lax.slice_in_dim(padded, i, i + x.shape[1], axis=1)
    else:
        window = [reach if i == 1 else 1 for i in range(x.ndim)]
        total = lax.reduce_window(square, np.zeros((), work), lax.add, window, (1,) * x.ndim, pads)
    return (wider * _power(bias + alpha / size * total, beta)).astype(x.dtype)


def _power(base: Any, beta: float) -> Any:
    """base ** -beta. On XLA:CPU two roots are much faster than a power."""
    if beta == 0.75:
        root = lax.rsqrt(base)
        return root * lax.sqrt(root)
    return lax.rsqrt(base) if beta == 0.5 else 1 / base if beta == 1 else base**-beta


def instance_normalization(
    input: ArrayLike, scale: Weight[ArrayLike], b: Bias[ArrayLike], *, epsilon: float = 1e-5
) -> jax.Array:
    """Normalizes each channel of each instance by its own mean and variance, then scales and shifts it.

    input: (N, C, …), floats. scale, b: (C,), floats. epsilon: added to the variance. Returns an array like input.
    Raises ShapeError for parameters of another shape, DTypeError for operands that are not floating-point.
    Source: ONNX InstanceNormalization, opsets 1–22.

    >>> instance_normalization(jnp.array([[[-2.0, 2.0]]]), jnp.ones(1), jnp.zeros(1)).round(3).tolist()
    [[[-1.0, 1.0]]]
    """
    operands = floating(input=input, scale=scale, b=b)
    return _instance_normalization(operands, float(epsilon))


@jit_if_concrete
def _instance_normalization(operands: tuple[Any, Any, Any], epsilon: float) -> Any:
    x, scale, b = operands
    sizes_of.groups(x.shape, 1)
    sizes_of.per_channel(x.shape, scale=scale.shape, b=b.shape)
    work = accumulation_type(*(v.dtype for v in operands))
    wider, scale, b = (v.astype(work) for v in operands)
    centred, var = _moments(wider, tuple(range(2, x.ndim)))
    factor = _along(scale, 1, x.ndim) * lax.rsqrt(var + epsilon)
    return (centred * factor + _along(b, 1, x.ndim)).astype(x.dtype)


def layer_normalization(
    x: ArrayLike,
    scale: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: ElementType = np.float32,
    return_statistics: SecondOutput = False,
) -> Any:
    """Normalizes the axes from `axis` on, together, then scales and shifts.

    x: floats. scale, b: floats that broadcast to x. epsilon: added to the variance. Returns an array like x; with
    `return_statistics` (y, mean, 1 / standard deviation), where the statistics have size 1 on the reduced axes.
    stash_type: static, the type that the statistics and the normalization are computed in: float16, bfloat16, float32
    or float64 (float32 by default, for float64 too). Scaling and shifting are computed in the type of x.
    Raises AxisError, ShapeError when scale or b do not broadcast to x, DTypeError.
    Source: ONNX LayerNormalization, opset 17.

    >>> layer_normalization(jnp.array([[-2.0, 2.0]]), jnp.ones(2)).round(3).tolist()
    [[-1.0, 1.0]]
    """
    operands = floating(x=x, scale=scale, b=b)
    first_axis = resolve_axis(axis, operands[0].ndim)
    work = stash(stash_type)
    results = _layer_normalization(operands, first_axis, float(epsilon), work)
    return results if return_statistics else results[0]


@jit_if_concrete
def _layer_normalization(operands: tuple[Any, Any, Any], axis: int, epsilon: float, work: Any) -> Any:
    x, scale, b = operands
    axes = tuple(range(axis, x.ndim))
    wider = x.astype(work)
    mean = jnp.mean(wider, axes, keepdims=True)
    centred = wider - mean
    inverse = lax.rsqrt(jnp.mean(lax.square(centred), axes, keepdims=True) + epsilon)
    y = (centred * inverse).astype(x.dtype) * _fitted("scale", scale, x)
    if b is not None:
        y = y + _fitted("b", b, x)
    return y, mean, inverse


def _fitted(name: str, value: Any, x: Any) -> Any:
    """A parameter in the type and rank of x; it must broadcast to the shape of x."""
    must_broadcast(name, value.shape, x.shape)
    return lax.expand_dims(value, range(x.ndim - value.ndim)).astype(x.dtype)


def rms_normalization(
    x: ArrayLike,
    scale: Weight[ArrayLike],
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: ElementType = np.float32,
) -> jax.Array:
    """Divides by the root of the mean square over the axes from `axis` on, then scales.

    x: floats. scale: floats that broadcast to x. epsilon: added to the mean square. Returns the shape of x, in the type
    of scale.
    stash_type: the type of the first step, as in `layer_normalization`.
    Raises AxisError, ShapeError when scale does not broadcast to x, DTypeError.
    Source: ONNX RMSNormalization, opset 23.

    >>> rms_normalization(jnp.array([[3.0, 3.0]]), jnp.ones(2)).round(3).tolist()
    [[1.0, 1.0]]
    """
    operands = floating(x=x, scale=scale)
    first_axis = resolve_axis(axis, operands[0].ndim)
    return _rms_normalization(operands, first_axis, float(epsilon), stash(stash_type))


@jit_if_concrete
def _rms_normalization(operands: tuple[Any, Any], axis: int, epsilon: float, work: Any) -> Any:
    x, scale = operands
    wider = x.astype(work)
    square = jnp.mean(lax.square(wider), tuple(range(axis, x.ndim)), keepdims=True)
    normal = (wider * lax.rsqrt(square + epsilon)).astype(x.dtype).astype(scale.dtype)
    return normal * _fitted("scale", scale, normal)


def group_normalization(
    x: ArrayLike,
    scale: Weight[ArrayLike],
    bias: Bias[ArrayLike],
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: ElementType = np.float32,
) -> jax.Array:
    """Normalizes groups of neighbouring channels of each instance, then scales and shifts each channel.

    x: (N, C, …), floats. scale, bias: (C,), floats. num_groups: static, a divisor of C. epsilon: added to the variance.
    Returns an array like x.
    stash_type: the type of the first step, as in `layer_normalization`.
    Raises ShapeError when num_groups does not divide C or a parameter has another shape, ArgumentError, DTypeError.
    Source: ONNX GroupNormalization, opset 21.

    >>> x = jnp.array([[[-2.0], [2.0]]])
    >>> group_normalization(x, jnp.ones(2), jnp.zeros(2), num_groups=1).round(3).tolist()
    [[[-1.0], [1.0]]]
    """
    operands = floating(x=x, scale=scale, bias=bias)
    work = stash(stash_type)
    return _group_normalization(operands, integer("num_groups", num_groups), float(epsilon), work)


@jit_if_concrete
def _group_normalization(operands: tuple[Any, Any, Any], num_groups: int, epsilon: float, work: Any) -> Any:
    x, scale, bias = operands
    split = sizes_of.groups(x.shape, num_groups)
    sizes_of.per_channel(x.shape, scale=scale.shape, bias=bias.shape)
    centred, var = _moments(x.astype(work).reshape(split), tuple(range(2, len(split))))
    normal = (centred * lax.rsqrt(var + epsilon)).reshape(x.shape).astype(x.dtype)
    scale, bias = (_along(v.astype(x.dtype), 1, x.ndim) for v in (scale, bias))
    return normal * scale + bias


def lp_normalization(input: ArrayLike, *, axis: int = -1, p: Norm = 2) -> jax.Array:
    """Divides by the p-norm along `axis`; where the norm is zero the result is zero.

    input: floats. p: static, 1 or 2. Returns an array like input.
    Raises ArgumentError for another p, AxisError, DTypeError.
    Source: ONNX LpNormalization, opsets 1–22.

    >>> lp_normalization(jnp.array([[1.0, 3.0], [0.0, 0.0]]), p=1).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    (x,) = floating(input=input)
    norm = one_of("p", p, Norm)
    return _lp_normalization(x, resolve_axis(axis, x.ndim), norm)


@jit_if_concrete
def _lp_normalization(x: Any, axis: int, p: int) -> Any:
    wider = x.astype(accumulation_type(x.dtype))
    total = jnp.sum(magnitude(wider) if p == 1 else lax.square(wider), axis, keepdims=True)
    # A zero is replaced before the root, so that the gradient at zero is finite.
    total = jnp.where(total == 0, jnp.ones_like(total), total)
    norm = jnp.broadcast_to(total if p == 1 else lax.sqrt(total), wider.shape)
    return quotient(wider, norm).astype(x.dtype)  # a product would not do: the reciprocal of a large norm is 0


def mean_variance_normalization(x: ArrayLike, *, axes: Static | Ints = (0, 2, 3)) -> jax.Array:
    """Subtracts the mean over `axes` and divides by the standard deviation plus 1e-9.

    x: floats. axes: static, distinct axes of x; the default normalizes each channel of (N, C, H, W) separately.
    Returns an array like x. Raises AxisError, DTypeError.
    Source: ONNX MeanVarianceNormalization, opsets 9–13; 1e-9 comes from its function body.

    >>> mean_variance_normalization(jnp.array([1.0, 5.0]), axes=(0,)).tolist()
    [-1.0, 1.0]
    """
    (values,) = floating(x=x)
    return _mean_variance_normalization(values, resolve_axes(ints("axes", axes), values.ndim))


@jit_if_concrete
def _mean_variance_normalization(x: Any, axes: tuple[int, ...]) -> Any:
    centred, var = _moments(x.astype(accumulation_type(x.dtype)), axes)
    return (centred / (root_of_squares(var) + 1e-9)).astype(x.dtype)
