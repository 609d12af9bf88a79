"""Functions that the attention operators share: scaled dot-product attention, its masks, its heads, rotary embedding.

Sizes in these functions: B samples, N heads of which the query has Nq and key and value have Nkv, S queries, T keys,
heads of size H, or Hv in value. These functions check nothing: an operator checks its operands first, with messages
that name them. They are plain JAX functions, to be called from a function under `jit_if_concrete`.
"""

import math
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import accumulation_type, canonical
from jaxops.kernels.kept_scores import keeps
from jaxops.kernels.matmul.dot import dot
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.kernels.xla_workarounds import rounded
from jaxops.meshes import mesh_of
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.ops.common.query_blocks import blocks, in_blocks, score_sizes
from jaxops.static import Dim, is_symbolic

Stage = Literal["product", "softcap", "bias", "softmax"]


class AttentionResult(NamedTuple):
    """The result of attention: the output, and the scores at the stage that was asked for."""

    output: Any
    scores: Any


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float,
    bias: Any = None,
    mask: Any = None,
    softcap: float = 0.0,
    softmax_dtype: Any = None,
    sink: Any = None,
    stage: Stage | None = None,
) -> AttentionResult:
    """softmax(scale · query · keyᵀ + bias) · value for each head: scaled dot-product attention.

    query: (B, Nq, S, H). key: (B, Nkv, T, H). value: (B, Nkv, T, Hv). Floats of 8 bits or more; Nq is a multiple of
    Nkv, and query head i uses the key and value head i // (Nq / Nkv) (grouped-query attention). No head is copied.
    scale: a factor of the scores. softcap: if positive, the scores become softcap · tanh(scores / softcap).
    bias: floats that broadcast to (B, Nq, S, T), added to the scores after the cap; -inf excludes a key, whatever its
    score. mask: booleans that broadcast to (B, Nq, S, T); False excludes a key. None means that there is none.
    softmax_dtype: the type of the softmax, to which the scores and the probabilities are rounded; 16-bit types are
    computed in float32. None keeps the type of the scores, float32 for 16-bit operands.
    sink: numbers that broadcast to (Nq,): for each head the score of an extra key, whose value is 0, so that the
    probabilities of the real keys sum to less than 1. A sink of 0.0 adds 1 to the denominator of a softmax that is
    not shifted (the smooth softmax).
    stage: which scores to return: the scaled "product", after the "softcap", after the "bias" and the mask (excluded
    keys are -inf), or after the "softmax". None returns None in their place.

    Returns the output (B, Nq, S, Hv) and scores (B, Nq, S, T), both in the dtype of query. A query that may use no key
    has probabilities and an output of 0.

    >>> q, k, v = jnp.ones((1, 4, 3, 8)), jnp.ones((1, 2, 5, 8)), jnp.ones((1, 2, 5, 6))
    >>> scaled_dot_product_attention(q, k, v, scale=0.5, mask=key_mask(3, 5, right=0)).output.shape
    (1, 4, 3, 6)
    """
    how = {
        "scale": scale,
        "softcap": softcap,
        "softmax_dtype": None if softmax_dtype is None else canonical(softmax_dtype),
    }
    large = stage is None and not is_symbolic(scale) and blocks(query, key) > 1
    mesh = mesh_of(query)
    if not large or not (mesh is None or mesh.are_all_axes_auto):
        return _attended(query, key, value, bias, mask, sink, stage=stage, **how)
    if mesh is not None:  # the compiler must see each axis, which it may split
        return AttentionResult(_in_blocks(query, key, value, bias, mask, sink, parts=mesh.size, **how), None)
    present = {"bias": bias, "mask": mask, "sink": None if sink is None else jnp.asarray(sink)}
    present = {name: x for name, x in present.items() if x is not None}
    return AttentionResult(_large(query, key, value, *present.values(), names=tuple(present), **how), None)


def _attended(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    mask: Any,
    sink: Any,
    *,
    scale: float,
    softcap: float,
    softmax_dtype: Any,
    stage: Stage | None,
) -> AttentionResult:
    """Computes all scores at once."""
    scores = scaled_products(query, key, scale)
    stages = {"product": scores}
    if softcap > 0:
        scores = softcap * jnp.tanh(scores / softcap)
    stages["softcap"] = scores
    if bias is not None:
        bias = broadcast_to(bias, scores.shape).astype(scores.dtype)
        # Not a mere sum: the score of an excluded key may be infinite or NaN.
        scores = jnp.where(bias == -np.inf, bias, scores + bias)
    if mask is not None:
        scores = jnp.where(broadcast_to(mask, scores.shape), scores, -np.inf)
    stages["bias"] = scores
    if softmax_dtype is not None:
        scores = scores.astype(softmax_dtype)
        scores = scores.astype(accumulation_type(scores.dtype))
    powers, total = _softmax_parts(scores, sink)
    rounds = softmax_dtype is not None and accumulation_type(softmax_dtype) != softmax_dtype
    if rounds or stage == "softmax":
        powers = powers / total
        stages["softmax"] = powers = powers.astype(softmax_dtype) if rounds else powers
        output = weighted_sums(powers, value)
    else:
        # Dividing here takes a pass over (S, Hv) numbers rather than (S, T).
        output = weighted_sums(powers, value)
        output = output / total.astype(output.dtype)
    scores = None if stage is None else stages[stage].astype(query.dtype)
    return AttentionResult(output.astype(query.dtype), scores)


def _in_blocks(query: Any, key: Any, value: Any, bias: Any, mask: Any, sink: Any, *, parts: int = 1, **how: Any) -> Any:
    """Returns the output, computed in blocks of queries. parts: the number of devices, which share each block."""

    def attend(query: Any, key: Any, value: Any, by_score: Any, sink: Any) -> Any:
        bias, mask = by_score
        return _attended(query, key, value, bias, mask, sink, stage=None, **how).output

    return in_blocks(attend, math.ceil(blocks(query, key) / parts), query, key, value, (bias, mask), sink)


def _plain(query: Any, key: Any, value: Any, *more: Any, names: tuple[str, ...], **how: Any) -> Any:
    given = dict(zip(names, more, strict=True))
    operands = (given.get(name) for name in ("bias", "mask", "sink"))
    return _attended(query, key, value, *operands, stage=None, **how).output


def _of_blocks(query: Any, key: Any, value: Any, *more: Any, names: tuple[str, ...], **how: Any) -> Any:
    given = dict(zip(names, more, strict=True))
    return _in_blocks(query, key, value, *(given.get(name) for name in ("bias", "mask", "sink")), **how)


def _select(target: Target, query: Any, key: Any, *more: Any, **how: Any) -> Any:
    # A pass makes loops over heads of a specialized program for a CPU, whose caches hold the keys of one head.
    by_head = target.platform == "cpu" and target.specialized
    return None if by_head or keeps(target.platform, score_sizes(query, key)) else _of_blocks


_large = NamedCall("large_attention", _plain, _select, sizes=lambda q, k, v, *_, **__: (*q.shape[:3], v.shape[3]))


def inverse_root(size: Dim) -> Any:
    """1 / sqrt(size), the scale of scores: a Python number, or a traced one for a symbolic size; 1 for a size of 0."""
    return lax.rsqrt(jnp.multiply(size, 1.0)) if is_symbolic(size) else max(size, 1) ** -0.5


def scaled_products(query: Any, key: Any, scale: float) -> Any:
    """scale · query · keyᵀ, (B, Nq, S, T), in the type that sums are computed in."""
    work = accumulation_type(query.dtype, key.dtype)
    if query.dtype == key.dtype == work:
        # Scaling the query multiplies H numbers for each query; scaling the scores would multiply T. The products
        # overflow no sooner than with a factor of sqrt(scale) on both operands.
        return _grouped(query * scale, key, 3, work)
    return _grouped(query, key, 3, work) * scale  # 16-bit operands are not rounded again


def weighted_sums(weights: Any, value: Any) -> Any:
    """weights · value, (B, Nq, S, Hv), in the type that sums are computed in.

    The weights stay float32 for 16-bit values: otherwise the result would be wrong in more than its last bit.
    """
    return _grouped(weights, value, 2, accumulation_type(weights.dtype, value.dtype))


def _grouped(x: Any, y: Any, axis: int, work: Any) -> Any:
    """The product of x (B, Nq, S, K) with y of Nkv heads, contracted over `axis` of y: (B, Nq, S, …)."""
    if x.dtype != y.dtype:  # float32 weights and 16-bit values, or two types that the caller mixed
        x, y = x.astype(work), y.astype(work)
    batch, heads, queries, width = x.shape
    groups = y.shape[1]
    # The queries of all heads of a group see the same keys.
    if mesh_of(x) is not None:  # heads that are split over devices cannot be joined with the batch
        x = x.reshape(batch, groups, heads // groups * queries, width)
        product = dot(x, y, (((3,), (axis,)), ((0, 1), (0, 1))), work)
        return product.reshape(batch, heads, queries, product.shape[-1])
    # XLA:CPU is faster with one batch axis than with two.
    x = x.reshape(batch * groups, heads // groups * queries, width)
    y = y.reshape(batch * groups, *y.shape[2:])
    product = dot(x, y, (((2,), (axis - 1,)), ((0,), (0,))), work)
    return product.reshape(batch, heads, queries, product.shape[-1])


def _softmax_parts(scores: Any, sink: Any) -> tuple[Any, Any]:
    """Exponentials of the shifted scores, and their sum over the last axis; 1 for a sum of 0."""
    scores = rounded(scores)
    top = jnp.max(lax.stop_gradient(scores), -1, keepdims=True, initial=-np.inf)
    if sink is not None:
        sink = jnp.asarray(sink, scores.dtype)
        sink = rounded(sink.reshape(1, -1, 1, 1))
        top = jnp.maximum(top, lax.stop_gradient(sink))
    top = jnp.where(top == -np.inf, 0, top)  # no key: the exponentials are 0, not those of inf - inf
    powers = jnp.exp(scores - top)
    total = jnp.sum(powers, -1, keepdims=True)
    if sink is not None:
        total = total + jnp.exp(sink - top)
    return powers, jnp.where(total == 0, 1, total)


def key_mask(queries: Any, keys: Any, *, offset: Any = 0, left: int | None = None, right: int | None = None) -> Any:
    """True for each key that a query may use by its position p: from p - left to p + right.

    queries, keys: S and T, which may be symbolic. offset: the position of the first query among the keys: an integer,
    a symbolic size, or an array (B,). left, right: None sets no bound; right=0 is a causal mask.
    Returns booleans of (S, T), or (B, 1, S, T) if offset is an array.

    >>> key_mask(2, 3, offset=1, left=1, right=0).astype(int).tolist()
    [[1, 1, 0], [0, 1, 1]]
    """
    offset = jnp.asarray(offset, np.int32)
    rank = 4 if offset.ndim else 2
    sizes = (1,) * (rank - 2) + (queries, keys)
    offset = offset.reshape((-1,) + (1,) * (rank - 1)) if offset.ndim else offset
    distance = lax.broadcasted_iota(np.int32, sizes, rank - 1) - lax.broadcasted_iota(np.int32, sizes, rank - 2)
    distance = distance - offset
    allowed = jnp.ones(distance.shape, bool)
    if left is not None:
        allowed &= distance >= -left
    if right is not None:
        allowed &= distance <= right
    return allowed


def split_heads(x: Any, heads: int) -> Any:
    """(B, S, heads · H) as (B, heads, S, H)."""
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def split_grouped_heads(q: Any, k: Any, v: Any, heads: int, groups: int) -> tuple[Any, Any, Any]:
    """Splits q into `heads`, and k and v into `groups`. If k and v are None, q holds all three."""
    if k is not None:
        return split_heads(q, heads), split_heads(k, groups), split_heads(v, groups)
    packed = split_heads(q, heads + 2 * groups)
    return packed[:, :heads], packed[:, heads : heads + groups], packed[:, heads + groups :]


def merge_heads(x: Any) -> Any:
    """(B, N, S, H) as (B, S, N · H)."""
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def rotated(x: Any, cos: Any, sin: Any, *, interleaved: bool = False) -> Any:
    """Rotary embedding: pairs of the first R elements of the last axis turned by an angle, later elements unchanged.

    x: (…, H), floats. cos, sin: (…, R / 2) with R ≤ H, the cosines and sines of the angles; their leading axes
    broadcast to those of x. interleaved: a pair is two neighbours, else element i and element i + R / 2.
    Returns an array like x; 16-bit types are computed in float32.

    >>> rotated(jnp.array([[1.0, 2.0, 3.0]]), jnp.array([[0.0]]), jnp.array([[1.0]])).tolist()
    [[-2.0, 1.0, 3.0]]
    """
    work = accumulation_type(x.dtype)
    half = cos.shape[-1]
    rotating, unrotated = x[..., : 2 * half].astype(work), x[..., 2 * half :]
    cos, sin = (jnp.broadcast_to(v.astype(work), (*x.shape[:-1], half)) for v in (cos, sin))
    if interleaved:
        pairs = rotating.reshape(*x.shape[:-1], half, 2)
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = rotating[..., :half], rotating[..., half:]
    result = (first * cos - second * sin, first * sin + second * cos)
    result = jnp.stack(result, -1).reshape(rotating.shape) if interleaved else jnp.concatenate(result, -1)
    return jnp.concatenate([result.astype(x.dtype), unrotated], -1)
