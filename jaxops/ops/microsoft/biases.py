"""Operators that add a bias or a residual to something else; 16-bit floats are computed in float32."""

__all__ = ["bias_add", "bias_dropout", "bias_softmax", "gated_add"]

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag
from jaxops.dtypes import accumulation_type, as_traced
from jaxops.ops.common.elementwise import broadcast_to, traced_operands
from jaxops.ops.math.softmax_like import softmax
from jaxops.ops.nn.regularization import dropout
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.shapes.microsoft import biases as sizes_of
from jaxops.signature import Bias, SecondOutput, Static, operator
from jaxops.static import ArrayLike, jit_if_concrete


def bias_add(x: ArrayLike, bias: Bias[ArrayLike], skip: ArrayLike) -> jax.Array:
    """Adds bias, along the last axis, and skip: x + bias + skip.

    x, skip: (…, C), floating-point. bias: (C,). One dtype. Returns an array like x.
    Raises ShapeError for a bias or skip of another shape, DTypeError. Source: com.microsoft BiasAdd, opset 1.

    >>> bias_add(jnp.zeros((1, 2)), jnp.array([1.0, 2.0]), jnp.ones((1, 2))).tolist()
    [[2.0, 3.0]]
    """
    return _bias_add(traced_operands((x, bias, skip), "floating-point"))


@jit_if_concrete
def _bias_add(operands: tuple[jax.Array, ...]) -> jax.Array:
    x, bias, skip = (v.astype(accumulation_type(v.dtype)) for v in operands)
    sizes_of.last_axis(x.shape, bias=bias.shape)
    sizes_of.same(x.shape, skip=skip.shape)
    return (x + lax.broadcast_in_dim(bias, x.shape, (x.ndim - 1,)) + skip).astype(operands[0].dtype)


def gated_add(x: ArrayLike, y: ArrayLike, gate: ArrayLike) -> jax.Array:
    """x + y · gate; the product is rounded to the dtype before it is added.

    x, y: (…, C), floating-point. gate: (…, 1). One dtype. Returns an array like x.
    Raises ShapeError when the shapes do not fit, DTypeError. Source: com.microsoft GatedAdd, opset 1.

    >>> gated_add(jnp.ones((2, 1)), jnp.ones((2, 1)), jnp.array([[0.0], [2.0]])).tolist()
    [[1.0], [3.0]]
    """
    return _gated_add(traced_operands((x, y, gate), "floating-point"))


@jit_if_concrete
def _gated_add(operands: tuple[jax.Array, ...]) -> jax.Array:
    x, y, gate = operands
    sizes_of.same(x.shape, y=y.shape)
    sizes_of.same((*x.shape[:-1], 1), gate=gate.shape)
    info = jnp.finfo(x.dtype)
    wide = accumulation_type(x.dtype)
    product = y.astype(wide) * broadcast_to(gate, x.shape).astype(wide)
    # Rounded in float32, as XLA may keep a narrow product unrounded, and some CPUs fuse products and sums of float16.
    return x + lax.reduce_precision(product, info.nexp, info.nmant).astype(x.dtype)


@operator(kind="activation", precision="float32")
def bias_softmax(data: ArrayLike, bias: Bias[ArrayLike], *, axis: int = 1, is_inner_broadcast: int) -> jax.Array:
    """Returns the softmax of data + bias, over all axes from `axis` on together.

    data: floating-point. bias: of data's dtype; its last axes are those of data from `axis` on, and the number
    of its rows divides that of data. is_inner_broadcast: 1 uses each row of bias for several neighbouring rows of
    data, 0 repeats the rows of bias in turn. Returns an array like data.
    Raises ShapeError when the rows of bias do not divide those of data, AxisError, DTypeError, ArgumentError.
    Source: com.microsoft BiasSoftmax, opset 1.

    >>> bias_softmax(jnp.zeros((2, 2)), jnp.array([[0.0, -1e9]]), is_inner_broadcast=0).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    operands = traced_operands((data, bias), "floating-point")
    first_axis = resolve_axis(axis, operands[0].ndim)
    return _bias_softmax(operands, first_axis, flag("is_inner_broadcast", is_inner_broadcast))


@jit_if_concrete
def _bias_softmax(operands: tuple[jax.Array, ...], axis: int, inner: bool) -> jax.Array:
    data, bias = (v.astype(accumulation_type(v.dtype)) for v in operands)
    bias_rows, times, length = sizes_of.softmax_rows(data.shape, bias.shape, axis)
    rows = data.reshape((bias_rows, times, length) if inner else (times, bias_rows, length))
    rows = rows + bias.reshape((bias_rows, 1, length) if inner else (1, bias_rows, length))
    return as_traced(softmax(rows)).reshape(data.shape).astype(operands[0].dtype)


def bias_dropout(
    data: ArrayLike,
    bias: Bias[ArrayLike],
    residual: ArrayLike | None = None,
    ratio: Any = None,
    training_mode: Static = None,
    *,
    seed: int | None = None,
    rng: Any = None,
    return_mask: SecondOutput = False,
) -> Any:
    """Returns dropout(data + bias) + residual.

    data: (…, C), floating-point. bias: (C,), or the shape of data. residual: the shape of data; None is 0. One dtype.
    ratio, training_mode, seed, rng, return_mask: as in `dropout`; without training_mode nothing is dropped.
    Raises ShapeError, DTypeError, and what `dropout` raises. Source: com.microsoft BiasDropout, opset 1.

    >>> bias_dropout(jnp.zeros((1, 2)), jnp.array([1.0, 2.0]), jnp.ones((1, 2))).tolist()
    [[2.0, 3.0]]
    """
    x, b, *added = traced_operands((data, bias) if residual is None else (data, bias, residual), "floating-point")
    check = sizes_of.same if b.ndim == x.ndim else sizes_of.last_axis
    check(x.shape, bias=b.shape)
    wide = accumulation_type(x.dtype)
    total = x.astype(wide) + broadcast_to(b.astype(wide), broadcast(x.shape, b.shape))
    y, mask = dropout(total, ratio, training_mode, seed=seed, rng=rng, return_mask=True)
    for value in added:
        sizes_of.same(x.shape, residual=value.shape)
        y = y + value.astype(wide)
    y = y.astype(x.dtype)
    return (y, mask) if return_mask else y
