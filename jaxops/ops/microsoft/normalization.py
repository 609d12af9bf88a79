"""Normalizations, some after a residual connection; they are computed in float32, or in float64 for float64."""

__all__ = [
    "branchwise_rms_norm",
    "gated_rms_norm",
    "group_norm",
    "layer_normalization",
    "simplified_layer_normalization",
    "skip_group_norm",
    "skip_layer_normalization",
    "skip_simplified_layer_normalization",
]

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag, integer, one_of, stash
from jaxops.dtypes import accumulation_type, floating
from jaxops.ops.common.elementwise import broadcast_to, traced_operands
from jaxops.shapes.math.broadcasting import must_broadcast
from jaxops.shapes.microsoft import biases, normalization as sizes_of
from jaxops.shapes.nn import normalization as channels
from jaxops.signature import Bias, ElementType, SecondOutput, Traits, Weight
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(kind="normalization", precision="float32")

GateActivation = Literal["silu", "swish", "sigmoid"]


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
    """Normalizes over all axes from `axis` on together, then scales and shifts.

    x: floats. scale, b: floats of one dtype that broadcast to x. Returns the shape of x in the dtype of scale; with
    `return_statistics` (y, mean, 1 / standard deviation), where the statistics have size 1 on the reduced axes.
    stash_type: the type of the returned statistics. As in onnxruntime, and unlike the standard's operator, everything
    is computed in float32, or in float64 if an operand is float64.
    Raises AxisError, ShapeError when scale or b do not broadcast to x, DTypeError.
    Source: com.microsoft LayerNormalization, opset 1; old optimizers write it into the domain ai.onnx.

    >>> layer_normalization(jnp.array([[-2.0, 2.0]]), jnp.ones(2)).round(3).tolist()
    [[-1.0, 1.0]]
    """
    return _normalization((x, scale, b), axis, epsilon, stash_type, return_statistics, False)


def simplified_layer_normalization(
    x: ArrayLike,
    scale: Weight[ArrayLike],
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: ElementType = np.float32,
    return_statistics: SecondOutput = False,
) -> Any:
    """Divides by the root of the mean square over the axes from `axis` on, then scales.

    x: floats. scale: floats that broadcast to x. Returns the shape of x in the dtype of scale; with
    `return_statistics` (y, 1 / root mean square). The other parameters are as in `layer_normalization`.
    Raises AxisError, ShapeError when scale does not broadcast to x, DTypeError.
    Source: com.microsoft SimplifiedLayerNormalization, opset 1; exporters write it into the domain ai.onnx.

    >>> simplified_layer_normalization(jnp.array([[3.0, 3.0]]), jnp.ones(2)).round(3).tolist()
    [[1.0, 1.0]]
    """
    results = _normalization((x, scale, None), axis, epsilon, stash_type, return_statistics, True)
    return (results[0], results[2]) if return_statistics else results


def _normalization(values: Any, axis: int, epsilon: float, stash_type: Any, statistics: bool, simplified: bool) -> Any:
    x, scale, b = floating(**dict(zip(("x", "scale", "b"), values, strict=True)))
    first_axis, statistics_dtype = resolve_axis(axis, x.ndim), stash(stash_type)
    y, mean, inverse = _scaled((x, scale, b), tuple(range(first_axis, x.ndim)), float(epsilon), simplified)
    return (y, mean.astype(statistics_dtype), inverse.astype(statistics_dtype)) if statistics else y


@jit_if_concrete
def _scaled(operands: tuple[Any, Any, Any], axes: tuple[int, ...], epsilon: float, simplified: bool) -> Any:
    """Returns the result in the dtype of scale, and the statistics in the dtype of the sums."""
    x, scale, b = operands
    work = accumulation_type(x.dtype, scale.dtype)
    y, mean, inverse = normalized(x.astype(work), axes, epsilon, simplified)
    y = y * _fitted("scale", scale, y)
    if b is not None:
        y = y + _fitted("b", b, y)
    return y.astype(scale.dtype), mean, inverse


def normalized(x: jax.Array, axes: tuple[int, ...], epsilon: float, simplified: bool) -> tuple[Any, Any, Any]:
    """Returns x, minus its mean unless `simplified`, divided by the root of its mean square; the mean; 1 / the root."""
    mean = jnp.mean(x, axes, keepdims=True)
    centred = x if simplified else x - mean
    inverse = lax.rsqrt(jnp.mean(lax.square(centred), axes, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


def _fitted(name: str, value: Any, x: Any) -> Any:
    """Returns a parameter in the type and shape of x. Raises ShapeError unless it broadcasts to x."""
    must_broadcast(name, value.shape, x.shape)
    return broadcast_to(value.astype(x.dtype), x.shape)


def skip_layer_normalization(
    input: ArrayLike,
    skip: ArrayLike,
    gamma: Weight[ArrayLike],
    beta: Bias[ArrayLike] | None = None,
    bias: ArrayLike | None = None,
    *,
    epsilon: float = 1e-12,
    return_statistics: SecondOutput = False,
) -> Any:
    """Normalizes the last axis of input + skip + bias, then scales by gamma and shifts by beta.

    input: (N, S, C) or (T, C), floats. skip: the same shape, or (1, S, C) or (S, C). gamma, beta, bias: (C,); None
    shifts by 0. One dtype. Returns an array like input; with `return_statistics` (y, mean, 1 / standard deviation,
    input + skip + bias), where the statistics are float32 and have size 1 on the last axis.
    Raises ShapeError when the shapes do not fit, DTypeError. Source: com.microsoft SkipLayerNormalization, opset 1.

    >>> x = jnp.array([[-1.0, 1.0]])
    >>> skip_layer_normalization(x, x, jnp.ones(2)).round(3).tolist()
    [[-1.0, 1.0]]
    """
    results = _skip(input, skip, gamma, beta, bias, epsilon, False)
    return results if return_statistics else results[0]


def skip_simplified_layer_normalization(
    input: ArrayLike,
    skip: ArrayLike,
    gamma: Weight[ArrayLike],
    bias: ArrayLike | None = None,
    *,
    epsilon: float = 1e-12,
    return_statistics: SecondOutput = False,
) -> Any:
    """Divides input + skip + bias by the root of its mean square over the last axis, then scales by gamma.

    The operands, results and exceptions are those of `skip_layer_normalization`, with the root of the mean square in
    place of the standard deviation.
    Source: com.microsoft SkipSimplifiedLayerNormalization, opset 1.

    >>> x = jnp.array([[1.5, 1.5]])
    >>> skip_simplified_layer_normalization(x, x, jnp.ones(2)).round(3).tolist()
    [[1.0, 1.0]]
    """
    results = _skip(input, skip, gamma, None, bias, epsilon, True)
    return results if return_statistics else results[0]


def _skip(input: Any, skip: Any, gamma: Any, beta: Any, bias: Any, epsilon: float, simplified: bool) -> Any:
    named = {"input": input, "skip": skip, "gamma": gamma, "beta": beta, "bias": bias}
    names = tuple(name for name, value in named.items() if value is not None)
    operands = traced_operands([named[name] for name in names], "floating-point")
    return _skip_normalization(operands, names, float(epsilon), simplified)


@jit_if_concrete
def _skip_normalization(operands: tuple[Any, ...], names: tuple[str, ...], epsilon: float, simplified: bool) -> Any:
    dtype, work = operands[0].dtype, accumulation_type(operands[0].dtype)
    named = {name: v.astype(work) for name, v in zip(names, operands, strict=True)}
    x, skip = named.pop("input"), named.pop("skip")
    biases.last_axis(x.shape, **{name: v.shape for name, v in named.items()})
    total = x + broadcast_to(skip.reshape(sizes_of.repeats(x.shape, skip.shape)), x.shape)
    vectors = {name: lax.broadcast_in_dim(v, x.shape, (x.ndim - 1,)) for name, v in named.items()}
    if "bias" in vectors:
        total = total + vectors["bias"]
    y, mean, inverse = normalized(total, (x.ndim - 1,), epsilon, simplified)
    y = y * vectors["gamma"]
    if "beta" in vectors:
        y = y + vectors["beta"]
    return y.astype(dtype), mean.astype(np.float32), inverse.astype(np.float32), total.astype(dtype)


def gated_rms_norm(
    x: ArrayLike,
    scale: Weight[ArrayLike],
    gate: ArrayLike,
    *,
    activation: GateActivation = "silu",
    epsilon: float = 1e-5,
) -> jax.Array:
    """Divides each head by the root of its mean square, then multiplies by scale and by an activation of gate.

    x: (…, H·C), floats. scale: (C,). gate: the shape of x. One dtype. Returns an array like x.
    activation: 'silu' or 'swish', z · sigmoid(z), or 'sigmoid'.
    Raises ShapeError when the shapes do not fit, DTypeError, ArgumentError.
    Source: com.microsoft GatedRMSNorm, opset 1.

    >>> x = jnp.array([[3.0, 3.0, 5.0, 5.0]])
    >>> gated_rms_norm(x, jnp.ones(2), jnp.zeros((1, 4)), activation="sigmoid").round(3).tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """
    operands = traced_operands((x, scale, gate), "floating-point")
    return _gated_rms_norm(operands, one_of("activation", activation, GateActivation), float(epsilon))


@jit_if_concrete
def _gated_rms_norm(operands: tuple[Any, ...], activation: str, epsilon: float) -> Any:
    x, scale, gate = (v.astype(accumulation_type(v.dtype)) for v in operands)
    split = sizes_of.heads(x.shape, scale.shape)
    biases.same(x.shape, gate=gate.shape)
    y, _, _ = normalized(x.reshape(split), (len(split) - 1,), epsilon, True)
    y = (y * broadcast_to(scale, split)).reshape(x.shape)
    opened = lax.logistic(gate)
    return (y * (opened if activation == "sigmoid" else gate * opened)).astype(operands[0].dtype)


def branchwise_rms_norm(
    x: ArrayLike, scale: Weight[ArrayLike] | None = None, *, num_branches: int = 0, epsilon: float = 1e-5
) -> jax.Array:
    """Divides each branch by the root of its mean square, then scales.

    x: (…, C, H), floats, or (…, C·H) with `num_branches` C. scale: floats, (H,), (C, H) or (C·H,); None is 1.
    Returns an array like x.
    Raises ShapeError when the shapes do not fit, DTypeError, ArgumentError.
    Source: com.microsoft BranchwiseRMSNorm, opset 1.

    >>> branchwise_rms_norm(jnp.array([[3.0, 3.0], [5.0, 5.0]])).round(3).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    operands = floating(x=x, scale=scale)
    return _branchwise_rms_norm(operands, integer("num_branches", num_branches), float(epsilon))


@jit_if_concrete
def _branchwise_rms_norm(operands: tuple[Any, Any], num_branches: int, epsilon: float) -> Any:
    x, scale = operands
    work = accumulation_type(x.dtype)
    shape = None if scale is None else scale.shape
    split, scale_sizes = sizes_of.branches(x.shape, shape, num_branches)
    y, _, _ = normalized(x.astype(work).reshape(split), (len(split) - 1,), epsilon, True)
    if scale is not None:
        y = y * broadcast_to(scale.astype(work).reshape(scale_sizes), split)
    return y.reshape(x.shape).astype(x.dtype)


def group_norm(
    x: ArrayLike,
    gamma: Weight[ArrayLike],
    beta: Bias[ArrayLike],
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> jax.Array:
    """Normalizes groups of neighbouring channels of each instance, then scales and shifts each channel.

    x: (N, H, W, C), or (N, C, H, W) with channels_last=0, floats. gamma, beta: (C,), floats. groups: a divisor of C.
    activation: 1 multiplies the result by its sigmoid, 0 does not. Returns an array like x.
    Raises ShapeError when groups does not divide C or a parameter has another shape, ArgumentError, DTypeError.
    Source: com.microsoft GroupNorm, opset 1.

    >>> x = jnp.array([[[[-2.0]], [[2.0]]]])
    >>> group_norm(x, jnp.ones(1), jnp.zeros(1), activation=0, groups=1).reshape(-1).round(3).tolist()
    [-1.0, 1.0]
    """
    operands = floating(x=x, gamma=gamma, beta=beta)
    return _group_norm(operands, *_options(activation, channels_last, epsilon, groups))


def _options(activation: int, channels_last: int, epsilon: float, groups: int) -> tuple[Any, ...]:
    flags = flag("activation", activation), flag("channels_last", channels_last)
    return *flags, float(epsilon), integer("groups", groups, least=1)


@jit_if_concrete
def _group_norm(operands: tuple[Any, ...], activation: bool, last: bool, epsilon: float, groups: int) -> Any:
    x, gamma, beta = operands
    return _grouped(x, gamma, beta, activation, last, epsilon, groups)


def _grouped(x: Any, gamma: Any, beta: Any, activation: bool, last: bool, epsilon: float, groups: int) -> Any:
    work = accumulation_type(x.dtype, gamma.dtype)
    first = x.astype(work)
    if last and first.ndim > 1:
        first = jnp.moveaxis(first, -1, 1)
    split = channels.groups(first.shape, groups)
    channels.per_channel(first.shape, gamma=gamma.shape, beta=beta.shape)
    y, _, _ = normalized(first.reshape(split), tuple(range(2, len(split))), epsilon, False)
    scale, shift = (lax.broadcast_in_dim(v.astype(work), first.shape, (1,)) for v in (gamma, beta))
    y = y.reshape(first.shape) * scale + shift
    y = y * lax.logistic(y) if activation else y
    return (jnp.moveaxis(y, 1, -1) if last else y).astype(x.dtype)


def skip_group_norm(
    x: ArrayLike,
    gamma: Weight[ArrayLike],
    beta: Bias[ArrayLike],
    skip: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
    return_sum: SecondOutput = False,
) -> Any:
    """Returns the `group_norm` of x + skip + bias.

    x: (N, H, W, C), floats; with channels_last=0 it is (N, C, H, W). skip: the shape of x, or (N, 1, 1, C)
    (with channels_last=0 (N, C, 1, 1)), or (N, C). bias: (C,). One dtype. The rest is as in
    `group_norm`. Returns an array like x; with `return_sum` (y, x + skip + bias).
    Raises ShapeError when the shapes do not fit, ArgumentError, DTypeError.
    Source: com.microsoft SkipGroupNorm, opset 1.

    >>> x = jnp.array([[[[-1.0]], [[1.0]]]])
    >>> skip_group_norm(x, jnp.ones(1), jnp.zeros(1), x, activation=0, groups=1).reshape(-1).round(3).tolist()
    [-1.0, 1.0]
    """
    added = traced_operands((x, skip) if bias is None else (x, skip, bias), "floating-point")
    options = _options(activation, channels_last, epsilon, groups)
    results = _skip_group_norm((*floating(gamma=gamma, beta=beta), *added), *options)
    return results if return_sum else results[0]


@jit_if_concrete
def _skip_group_norm(operands: tuple[Any, ...], activation: bool, last: bool, epsilon: float, groups: int) -> Any:
    gamma, beta, *added = operands
    x, skip, *vectors = (v.astype(accumulation_type(v.dtype)) for v in added)
    # `residual` takes sizes with the channels last.
    order = (0, 2, 3, 1)
    flat = last or x.ndim != 4
    shape = x.shape if flat else tuple(x.shape[i] for i in order)
    skip_sizes = skip.shape if flat or skip.ndim != 4 else tuple(skip.shape[i] for i in order)
    full = sizes_of.residual(shape, skip_sizes)
    axis = x.ndim - 1 if last else 1
    total = x + broadcast_to(skip.reshape(full if last else (full[0], full[3], *full[1:3])), x.shape)
    for bias in vectors:
        channels.per_channel((shape[0], shape[3]), bias=bias.shape)
        total = total + lax.broadcast_in_dim(bias, x.shape, (axis,))
    y = _grouped(total, gamma, beta, activation, last, epsilon, groups)
    return y.astype(added[0].dtype), total.astype(added[0].dtype)
