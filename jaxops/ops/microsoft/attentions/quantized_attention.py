"""Attention whose input and weights are quantized; queries, keys and values are floats."""

__all__ = ["qattention"]

from typing import Any

import jax
import jax.numpy as jnp

from jaxops.attributes import flag, integer
from jaxops.dtypes import as_traced, floating, integral
from jaxops.errors import ArgumentError, ShapeError, UnsupportedError, shape_text
from jaxops.ops.common.scaled_dot_product import merge_heads, split_heads
from jaxops.ops.microsoft.attentions.cached_attention import Options, cached, scale_of
from jaxops.ops.microsoft.quantized.products import matmul_integer_to_float
from jaxops.shapes.arithmetic import agree, must_agree, must_fit
from jaxops.shapes.microsoft.attentions import cached_attention as shared_sizes
from jaxops.signature import Bias, Traits, Weight
from jaxops.static import ArrayLike, Dim, Sizes, jit_if_concrete

TRAITS = Traits(kind="attention", precision="exact")


def _head_size(x: Sizes, w: Sizes, bias: Sizes, heads: int) -> Dim:
    """Returns the size H of a head. Raises ShapeError unless w and the bias have 3 · heads · H columns."""
    problem = f"`input` of {shape_text(x)} and `weight` of {shape_text(w)} must be (B, S, D) and (D, 3·N·H)"
    if len(x) != 3 or len(w) != 2 or not agree(problem, x[2], w[0]):
        raise ShapeError(problem)
    if heads < 1 or w[1] % (3 * heads):
        raise ArgumentError(f"`num_heads` is {heads}; 3 · num_heads must divide the {w[1]} columns of `weight`")
    if bias != w[1:]:
        must_agree(f"`bias` of {shape_text(bias)} must be {shape_text(w[1:])}", bias, w[1:])
    return w[1] // (3 * heads)


def qattention(
    input: ArrayLike,
    weight: Weight[ArrayLike],
    bias: Bias[ArrayLike],
    input_scale: ArrayLike,
    weight_scale: ArrayLike,
    mask_index: ArrayLike | None = None,
    input_zero_point: ArrayLike | None = None,
    weight_zero_point: ArrayLike | None = None,
    past: ArrayLike | None = None,
    *,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Computes attention whose queries, keys and values are the columns of a product of quantized matrices.

    input: (B, S, Di). weight: (Di, 3·N·H), for queries, keys and values of N = num_heads heads. Each is int8 or uint8.
    input_scale, input_zero_point: scalars. weight_scale, weight_zero_point: scalars, or (3·N·H,). bias: (3·N·H,).
    Zero points have the type of what they belong to, and are 0 when None; scales and bias are floats of one type.
    past: (2, B, N, P, H), keys and values before those of the input. T = P + S.
    mask_index: integers, as in `attention`; a masked key gets mask_filter_value added, -10000 when None.
    unidirectional: 1 hides later keys. scale: of the scores, 1 / sqrt(H) for None or 0.
    Returns: (B, S, N·H), and keys and values (2, B, N, T, H), in the type of the scales.
    Raises ShapeError, DTypeError, ArgumentError; UnsupportedError for do_rotary and past_present_share_buffer, which
    onnxruntime's CPU lacks too.
    Source: com.microsoft QAttention, opset 1, as onnxruntime defines it.

    >>> x, w = jnp.ones((1, 3, 8), jnp.uint8), jnp.ones((8, 24), jnp.int8)
    >>> output, present = qattention(x, w, jnp.zeros(24), 0.5, 0.25, num_heads=2)
    >>> output[0, 0].tolist(), present.shape
    ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], (2, 1, 2, 3, 4))
    """
    for name, value in (("do_rotary", do_rotary), ("past_present_share_buffer", past_present_share_buffer)):
        if value:
            raise UnsupportedError(f"`{name}` is {value}; only 0 is supported")
    x, w = as_traced(input), as_traced(weight)
    offsets, old = floating(bias=bias, past=past)
    heads = integer("num_heads", num_heads)
    size = _head_size(x.shape, w.shape, offsets.shape, heads)
    must_fit("past", None if old is None else old.shape, (2, x.shape[0], heads, "P", size))
    before = 0 if old is None else old.shape[3]
    (mask,) = integral(mask_index=mask_index)
    mask_sizes = None if mask is None else mask.shape
    shared_sizes.mask("mask_index", mask_sizes, x.shape[0], x.shape[1], before + x.shape[1])
    operands = input_scale, weight_scale, input_zero_point, weight_zero_point
    projected = matmul_integer_to_float(x, w, *operands, offsets)
    options = Options(
        masked=-10000.0 if mask_filter_value is None else float(mask_filter_value),
        causal=flag("unidirectional", unidirectional),
    )
    return _attention((projected, mask, old), heads, scale_of(scale, size), options)


@jit_if_concrete
def _attention(operands: tuple[Any, ...], heads: int, scale: float, options: Options) -> tuple[jax.Array, jax.Array]:
    projected, mask, old = operands
    q, k, v = (split_heads(part, heads) for part in jnp.split(projected, 3, -1))
    past = None if old is None else tuple(old.astype(k.dtype))
    result, keys, values = cached(q, k, v, past, None, None, mask, None, scale, options)
    return merge_heads(result.output), jnp.stack([keys, values])
