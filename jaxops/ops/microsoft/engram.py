"""Operators of Engram, a memory that is looked up by hashes of n-grams of tokens."""

__all__ = ["engram_gate", "n_gram_hash_mapping", "varlen_n_gram_hash_mapping"]

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import (
    accumulation_type,
    as_traced,
    canonical,
    floats_of_one_type,
    integral,
    number,
    require_integers,
    unify,
)
from jaxops.errors import ArgumentError, OutOfRangeError, ShapeError, describe, shape_text
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.ops.microsoft.normalization import normalized
from jaxops.ops.microsoft.packed_sequences import capacity, captured, check_offsets, packed, values_at
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft import packed_sequences as packed_sizes
from jaxops.signature import Traits, operator
from jaxops.static import A, ArrayLike, Operand, array, jit_if_concrete

TRAITS = Traits(grows=True)


@operator(foldable=True)
def n_gram_hash_mapping(
    input_ids: Operand[A],
    multipliers: Operand[A],
    vocab_sizes: Operand[A],
    past_ids: Operand[A] | None = None,
    head_offsets: Operand[A] | None = None,
    eos_token_id: Operand[A] | None = None,
    segment_ids: Operand[A] | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
) -> tuple[A, A]:
    """Hashes of the n-grams that end at each token: their ids times `multipliers`, combined by xor, modulo a size.

    input_ids: (B, L), int32 or int64; the other operands have its type. multipliers: at least N numbers, N being the
    max_ngram_size; the first one is that of the last id. vocab_sizes: ((N - 1) · n_head_per_ngram,), positive: the
    moduli of the pairs, then of the triples, and so on. past_ids: (B, N - 1), the ids before the first ones; None:
    there are none. head_offsets: of the shape of vocab_sizes, added to the hashes.
    A missing id counts as eos_token_id, one number, or as pad_id without it. reset_on_eos: 1 lets no n-gram reach back
    over an eos_token_id. segment_ids: int32 (B, L); no n-gram reaches into another segment of input_ids.
    Returns the hashes (B, L, (N - 1) · n_head_per_ngram) and the last ids (B, N - 1), the past_ids of a next call.

    The products wrap to the type of the ids. With x64 off traced int64 numbers are int32, and so are their products; a
    static int64 array beside traced ones is an error then. (A model with int64 ids runs with x64.) A traced modulus
    below 1 makes the hash 0.
    Raises ShapeError, DTypeError, ArgumentError, OutOfRangeError. Source: com.microsoft NGramHashMapping, opset 1.

    >>> sizes = {"max_ngram_size": 2, "n_head_per_ngram": 1, "pad_id": 0}
    >>> hashes, last = n_gram_hash_mapping(np.array([[5, 6]]), np.array([3, 7]), np.array([100]), **sizes)
    >>> hashes.tolist(), last.tolist()  # 5 · 3, and 6 · 3 xor 5 · 7
    ([[[15], [49]]], [[6]])
    """
    longest = integer("max_ngram_size", max_ngram_size, least=2)
    reach, each = longest - 1, integer("n_head_per_ngram", n_head_per_ngram, least=1)
    operands = _ids(input_ids, multipliers, vocab_sizes, past_ids, head_offsets, eos_token_id)
    ids, segments = operands[0], _segments(operands[0], segment_ids=segment_ids)[0]
    must_fit("input_ids", ids.shape, ("B", "L"))
    _check(operands, longest, reach * each)
    must_fit("past_ids", _shape(operands[3]), (ids.shape[0], reach))
    must_fit("segment_ids", _shape(segments), ids.shape)
    pad = number("`pad_id`", integer("pad_id", pad_id), ids.dtype)
    return _by_row((*operands, segments), pad.item(), reach, each, bool(integer("reset_on_eos", reset_on_eos)))


def _shape(x: Any) -> Any:
    return None if x is None else x.shape


def _ids(*values: Any) -> tuple[Any, ...]:
    """The operands of one type of integers: NumPy arrays if all are static; None stays."""
    names = ("input_ids", "multipliers", "vocab_sizes", "past_ids", "head_offsets", "eos_token_id")
    present = {name: array(v) for name, v in zip(names, values, strict=True) if v is not None}
    for name, value in present.items():
        require_integers(name, value)
    static = [name for name, value in present.items() if isinstance(value, np.ndarray)]
    wide = [name for name in static if present[name].dtype != canonical(present[name].dtype)]
    if wide and len(static) < len(present):
        raise OutOfRangeError(
            f"`{wide[0]}` is {present[wide[0]].dtype.name}, but other operands are traced; 64-bit products need "
            f"x64; turn it on with jax.config.update('jax_enable_x64', True), or hash ids of int32"
        )
    unified = dict(zip(present, unify(tuple(present.values()), tuple(f"{name} " for name in present)), strict=True))
    return tuple(unified.get(name) for name in names)


def _segments(ids: Any, **values: Any) -> tuple[Any, ...]:
    """Integers that are traced if the ids are."""
    arrays = tuple(None if v is None else array(v) for v in values.values())
    for name, value in zip(values, arrays, strict=True):
        if value is not None:
            require_integers(name, value)
    return arrays if isinstance(ids, np.ndarray) else tuple(None if v is None else as_traced(v) for v in arrays)


def _check(operands: tuple[Any, ...], longest: int, count: int) -> None:
    _, multipliers, moduli, _, offsets, eos = operands
    sizes = multipliers.shape
    if len(sizes) != 1 or (isinstance(sizes[0], int) and sizes[0] < longest):
        raise ShapeError(
            f"`multipliers` of {shape_text(sizes)} must be (n,), with n at least {longest}, the max_ngram_size"
        )
    must_fit("vocab_sizes", moduli.shape, (count,))
    must_fit("head_offsets", _shape(offsets), (count,))
    must_fit("eos_token_id", _shape(eos), ())
    if isinstance(moduli, np.ndarray) and (moduli < 1).any():
        raise ArgumentError(f"`vocab_sizes` is {describe(moduli)}; each must be positive")


@jit_if_concrete
def _by_row(operands: tuple[Any, ...], pad: int, reach: int, each: int, reset: bool) -> tuple[Any, Any]:
    ids, multipliers, moduli, past, offsets, eos, segments = operands
    xp: Any = np if isinstance(ids, np.ndarray) and not any(map(_is_traced, operands)) else jnp
    fill = xp.asarray(pad, ids.dtype) if eos is None else eos
    length = ids.shape[1]
    before = xp.broadcast_to(fill, (ids.shape[0], reach)) if past is None else past
    line = xp.concatenate([before, ids], 1)
    # tokens[k]: the ids k places before each token.
    tokens = [line[:, reach - k : reach - k + length] for k in range(reach + 1)]
    groups = None
    if segments is not None:
        parts = xp.concatenate([segments[:, :1]] * reach + [segments], 1)
        groups = [parts[:, reach - k : reach - k + length] for k in range(reach + 1)]
    hashes = _hashed(xp, tokens, groups, eos if reset else None, fill, (multipliers, moduli, offsets), each)
    return hashes, line[:, length:]


def _is_traced(x: Any) -> bool:
    return x is not None and not isinstance(x, np.ndarray)


def _hashed(
    xp: Any,
    tokens: Sequence[Any],
    groups: Sequence[Any] | None,
    eos: Any,
    fill: Any,
    tables: tuple[Any, ...],
    each: int,
) -> Any:
    """The hashes of n-grams of 2, 3, … tokens. tokens, groups: the ids and segments 0, 1, 2, … places before each.

    eos: an id that no n-gram reaches back over; None for none.
    """
    multipliers, moduli, offsets = tables
    lead = (1,) * tokens[0].ndim
    with np.errstate(over="ignore"):
        mix, beyond, by_group = tokens[0] * multipliers[0], None, []
        for k in range(1, len(tokens)):
            borders = [] if eos is None else [tokens[k] == eos]
            borders += [] if groups is None else [groups[k - 1] != groups[k]]
            for border in borders:
                beyond = border if beyond is None else beyond | border
            token = tokens[k] if beyond is None else xp.where(beyond, fill, tokens[k])
            mix = mix ^ (token * multipliers[k])
            sizes = moduli[(k - 1) * each : k * each].reshape(*lead, each)
            by_group.append(xp.where(sizes > 0, xp.mod(mix[..., None], xp.maximum(sizes, 1)), xp.zeros_like(sizes)))
        hashes = xp.concatenate(by_group, -1)
        return hashes if offsets is None else hashes + offsets.reshape(*lead, -1)


def varlen_n_gram_hash_mapping(
    input_ids: ArrayLike,
    multipliers: ArrayLike,
    vocab_sizes: ArrayLike,
    cumulative_sequence_length: ArrayLike,
    past_ids: ArrayLike | None = None,
    head_offsets: ArrayLike | None = None,
    eos_token_id: ArrayLike | None = None,
    segment_ids: ArrayLike | None = None,
    past_segment_ids: ArrayLike | None = None,
    capture_count: ArrayLike | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
) -> tuple[jax.Array | None, ...]:
    """Hashes n-grams as `n_gram_hash_mapping` does, in a packed batch: no n-gram reaches into another sequence.

    input_ids: (T,), the ids of all B sequences. cumulative_sequence_length: int32 (B + 1,), the sums of the first
    lengths, each at least 1; traced ones that do not fit T give meaningless results. past_ids: (B, N - 1).
    segment_ids: int32 (T,). past_segment_ids: int32 (B, N - 1), the segments of past_ids, which count as well.
    state_update_capacity: C in 0 to 8; capture_count, int32 (B,), must be given exactly if it is positive.
    The other operands are those of `n_gram_hash_mapping`.
    Returns the hashes (T, (N - 1) · n_head_per_ngram) and the last ids of each sequence (B, N - 1). With segment_ids or
    C > 0 the segments of the last ids follow, (B, N - 1), or None without segment_ids; with C > 0 also the last ids
    after each of the first capture_count tokens, (B, C, N - 1), padded with pad_id.
    Raises ShapeError, DTypeError, ArgumentError, OutOfRangeError.
    Source: com.microsoft VarlenNGramHashMapping, opset 1.

    >>> sizes = {"max_ngram_size": 2, "n_head_per_ngram": 1, "pad_id": 0}
    >>> ids, moduli, sums = jnp.array([5, 6, 7]), jnp.array([100]), jnp.array([0, 2, 3])
    >>> varlen_n_gram_hash_mapping(ids, jnp.array([3, 7]), moduli, sums, **sizes)[0].tolist()
    [[15], [49], [21]]
    """
    longest = integer("max_ngram_size", max_ngram_size, least=2)
    reach, each = longest - 1, integer("n_head_per_ngram", n_head_per_ngram, least=1)
    size = capacity(state_update_capacity, capture_count)
    operands = _ids(input_ids, multipliers, vocab_sizes, past_ids, head_offsets, eos_token_id)
    ids = operands[0]
    must_fit("input_ids", ids.shape, ("T",))
    _check(operands, longest, reach * each)
    pad = number("`pad_id`", integer("pad_id", pad_id), canonical(ids.dtype))
    segments, past_segments, counts, sums = integral(
        segment_ids=segment_ids,
        past_segment_ids=past_segment_ids,
        capture_count=capture_count,
        cumulative_sequence_length=cumulative_sequence_length,
    )
    if past_segments is not None and segments is None:
        raise ArgumentError("`past_segment_ids` needs `segment_ids`")
    batch = packed_sizes.offsets("cumulative_sequence_length", sums.shape)
    must_fit("past_ids", _shape(operands[3]), (batch, reach))
    must_fit("segment_ids", _shape(segments), ids.shape)
    must_fit("past_segment_ids", _shape(past_segments), (batch, reach))
    must_fit("capture_count", _shape(counts), (batch,))
    check_offsets("cumulative_sequence_length", cumulative_sequence_length, ids.shape[0])
    traced = tuple(None if v is None else as_traced(v) for v in operands)
    reset = bool(integer("reset_on_eos", reset_on_eos))
    return _by_sequence((*traced, segments, past_segments, counts, sums), pad.item(), reach, each, size, reset)


@jit_if_concrete
def _by_sequence(operands: tuple[Any, ...], pad: int, reach: int, each: int, size: int, reset: bool) -> tuple[Any, ...]:
    ids, multipliers, moduli, past, offsets, eos, segments, past_segments, counts, sums = operands
    layout = packed(sums, ids.shape[0])
    batch = sums.shape[0] - 1
    fill = jnp.asarray(pad, ids.dtype) if eos is None else eos
    before = jnp.broadcast_to(fill, (batch, reach)) if past is None else past
    tokens = [values_at(ids, before, layout, layout.sequence, layout.position - k) for k in range(reach + 1)]
    sequence = lax.broadcasted_iota(np.int32, (batch, reach), 0)
    last = layout.lengths[:, None] - reach + lax.broadcasted_iota(np.int32, (batch, reach), 1)
    present = values_at(ids, before, layout, sequence, last)
    groups = present_segments = None
    if segments is not None:
        first = jnp.take(segments, layout.starts, mode="clip")
        old = jnp.broadcast_to(first[:, None], (batch, reach)) if past_segments is None else past_segments
        groups = [values_at(segments, old, layout, layout.sequence, layout.position - k) for k in range(reach + 1)]
        present_segments = values_at(segments, old, layout, sequence, last)
    hashes = _hashed(jnp, tokens, groups, eos if reset else None, fill, (multipliers, moduli, offsets), each)
    if not size:
        return (hashes, present) if segments is None else (hashes, present, present_segments)
    sequence, token, steps = (lax.broadcasted_iota(np.int32, (batch, size, reach), axis) for axis in range(3))
    states = values_at(ids, before, layout, sequence, token + 1 - reach + steps)
    is_captured = captured(counts, layout.lengths, size)[:, :, None]
    return hashes, present, present_segments, jnp.where(is_captured, states, jnp.asarray(pad, ids.dtype))


def engram_gate(
    key: ArrayLike,
    query: ArrayLike,
    value: ArrayLike,
    key_norm_scale: ArrayLike,
    query_norm_scale: ArrayLike,
    conv_norm_scale: ArrayLike | None = None,
    *,
    epsilon: float = 1e-5,
) -> Any:
    """Multiplies a value by a gate for each of G streams, which measures how well the key fits the query.

    key, query: (B, L, G, H), value: (B, L, H), floats; all operands are of one dtype. key and query are divided by the
    root of their mean square over H, and scaled by key_norm_scale and query_norm_scale, (G, H). With d, their product
    summed over H and divided by sqrt(H), the gate is sigmoid(sign(d) · sqrt(max(abs(d), 1e-6))). epsilon: is added to
    the mean squares.
    Returns gate · value (B, L, G, H); with conv_norm_scale, (G, H), that, and the same divided by the root of its mean
    square and scaled by conv_norm_scale. 16-bit types are computed in float32.
    Raises ShapeError when the shapes do not fit, DTypeError. Source: com.microsoft EngramGate, opset 1.

    >>> x, scale = jnp.ones((1, 1, 2, 4)), jnp.ones((2, 4))
    >>> y = engram_gate(x, x, jnp.ones((1, 1, 4)), scale, scale)
    >>> y.shape, round(float(y[0, 0, 0, 0]), 4)  # sigmoid(sqrt(4 / 2))
    ((1, 1, 2, 4), 0.8044)
    """
    names = ("key", "query", "value", "key_norm_scale", "query_norm_scale", "conv_norm_scale")
    values = (key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale)
    operands = floats_of_one_type(**dict(zip(names, values, strict=True)))
    sizes = operands[0].shape
    must_fit("key", sizes, ("B", "L", "G", "H"))
    expected = (sizes, (*sizes[:2], sizes[3]), *(sizes[2:],) * 3)
    for name, value, required in zip(names[1:], operands[1:], expected, strict=True):
        must_fit(name, _shape(value), required)
    return _gate(operands, float(epsilon))


@jit_if_concrete
def _gate(operands: tuple[Any, ...], epsilon: float) -> Any:
    narrow = operands[0].dtype
    work = accumulation_type(narrow)
    wide: Any = tuple(None if x is None else x.astype(work) for x in operands)
    key, query, value, key_scale, query_scale, last_scale = wide

    def scaled(x: Any, scale: Any) -> Any:
        return normalized(x, (3,), epsilon, True)[0] * broadcast_to(scale, x.shape)

    fit = jnp.sum(scaled(key, key_scale) * scaled(query, query_scale), 3, keepdims=True)
    fit = fit / jnp.sqrt(jnp.asarray(key.shape[3], work))
    gate = lax.logistic(jnp.sign(fit) * jnp.sqrt(jnp.maximum(jnp.abs(fit), 1e-6)))
    y = gate * value[:, :, None]
    return y.astype(narrow) if last_scale is None else (y.astype(narrow), scaled(y, last_scale).astype(narrow))
