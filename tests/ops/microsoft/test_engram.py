"""Hashes of n-grams and the gate of what is looked up by them, beside onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare, ours, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError

RNG = np.random.default_rng(40)
HASH, PACKED, GATE = "NGramHashMapping", "VarlenNGramHashMapping", "EngramGate"
SIZES = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 1}


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def some(high, *shape):
    return RNG.integers(0, high, shape).astype(np.int32)


def any_bits(*shape):
    return RNG.integers(-(2**31), 2**31, shape).astype(np.int32)


def given(tokens, batch, longest, each, *, options):
    """Operands of ids (*tokens,), all optional ones present where `options` says so."""
    past, offsets, eos, segments = options
    heads = (longest - 1) * each
    return [
        some(5, *tokens),
        any_bits(longest + 1),
        1 + some(100, heads),
        some(5, batch, longest - 1) if past else None,
        some(2**31 - 1, heads) if offsets else None,
        np.int32(2) if eos else None,
        some(2, *tokens) if segments else None,
    ]


def trimmed(values):
    return trimmed(values[:-1]) if values[-1] is None else values


# Which of past_ids, head_offsets, eos_token_id and segment_ids are given.
OPTIONS = [tuple(c == "1" for c in bits) for bits in ("0000", "1111", "0110", "1001", "1010", "0011")]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_hashes(options):
    for (batch, length), longest, each, reset in (((2, 7), 3, 2, 1), ((1, 1), 4, 1, 0), ((3, 2), 4, 3, 1)):
        inputs = trimmed(given((batch, length), batch, longest, each, options=options))
        sizes = {"max_ngram_size": longest, "n_head_per_ngram": each, "pad_id": 3, "reset_on_eos": reset}
        agree(HASH, inputs, (True, True), compiled=batch == 2, **sizes)
        # Of 64 bits, where the products of static ids do not wrap to 32.
        wide = [x if x is None or k == 6 else x.astype(np.int64) for k, x in enumerate(inputs)]
        compare(ours(HASH, wide, 2, **sizes), runtime(HASH, wide, (True, True), **sizes), 0, 0)


def test_hashes_of_thousands_of_ids_and_of_none():
    inputs = given((4, 3000), 4, 3, 2, options=(True, True, True, True))
    agree(HASH, inputs, (True, True), compiled=True, reset_on_eos=1, **SIZES)
    assert ours(HASH, given((2, 0), 2, 3, 2, options=(False,) * 3 + (True,)), 2, **SIZES)[0].shape == (2, 0, 4)
    with jax.enable_x64(True):
        wide = [x if k == 6 else x.astype(np.int64) for k, x in enumerate(inputs)]
        agree(HASH, wide, (True, True), compiled=True, reset_on_eos=1, **SIZES)


def test_hashes_go_on_where_they_stopped():
    ids, multipliers, moduli, *_ = given((2, 9), 2, 3, 2, options=(False,) * 4)
    eos = {"eos_token_id": np.int32(2), "reset_on_eos": 1}
    whole, last = ms.n_gram_hash_mapping(ids, multipliers, moduli, **eos, **SIZES)
    first, past = ms.n_gram_hash_mapping(ids[:, :1], multipliers, moduli, **eos, **SIZES)
    rest, end = ms.n_gram_hash_mapping(ids[:, 1:], multipliers, moduli, past, **eos, **SIZES)
    np.testing.assert_array_equal(np.concatenate([first, rest], 1), whole)
    np.testing.assert_array_equal(end, last)
    assert not np.array_equal(ms.n_gram_hash_mapping(ids[:, 1:], multipliers, moduli, **eos, **SIZES)[0], rest)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_hashes_of_a_packed_batch(options):
    for lengths, longest, each, capacity in (([3, 1, 6], 3, 2, 0), ([2], 4, 1, 3), ([1, 5], 2, 2, 8)):
        sums = np.cumsum([0, *lengths]).astype(np.int32)
        batch, total = len(lengths), int(sums[-1])
        inputs = given((total,), batch, longest, each, options=options)
        inputs.insert(3, sums)
        both = options[3] and options[0]
        inputs += [some(2, batch, longest - 1) if both else None, None]
        inputs[-1] = RNG.integers(-1, 6, batch).astype(np.int32) if capacity else None
        outputs = (True, True, options[3], True) if capacity else (True, True, True)[: 2 + options[3]]
        sizes = {"max_ngram_size": longest, "n_head_per_ngram": each, "pad_id": 3, "reset_on_eos": 1}
        agree(PACKED, trimmed(inputs), outputs, compiled=batch == 3, state_update_capacity=capacity, **sizes)


def test_a_packed_batch_is_each_of_its_sequences():
    _, multipliers, moduli, *_ = given((1,), 1, 3, 2, options=(False,) * 4)
    rows = [some(9, n) for n in (1, 4000, 7)]
    sums = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    packed, last = jax.jit(lambda x: ms.varlen_n_gram_hash_mapping(x, multipliers, moduli, sums, **SIZES))(
        np.concatenate(rows)
    )
    for k, row in enumerate(rows):
        hashes, end = ms.n_gram_hash_mapping(row[None], multipliers, moduli, **SIZES)
        np.testing.assert_array_equal(packed[sums[k] : sums[k + 1]], hashes[0])
        np.testing.assert_array_equal(last[k], end[0])


def test_a_traced_modulus_below_1_makes_0():
    ids, multipliers, moduli, *_ = given((2, 5), 2, 3, 2, options=(False,) * 4)
    some_zero = jnp.asarray(moduli * np.int32([0, 1, 1, 0]))
    found, _ = ms.n_gram_hash_mapping(ids, multipliers, some_zero, **SIZES)
    wanted = ms.n_gram_hash_mapping(ids, multipliers, moduli, **SIZES)[0]
    np.testing.assert_array_equal(found, wanted * np.array([0, 1, 1, 0]))


@pytest.mark.parametrize("size", [5, 64])
def test_gate(size):
    key, query, value = f32(2, 3, 2, size), f32(2, 3, 2, size), f32(2, 3, size)
    scales = [f32(2, size) for _ in range(3)]
    agree(GATE, [key, query, value, *scales], (True, True), compiled=True)
    agree(GATE, [key, query, value, *scales[:2]], epsilon=0.3)
    half = [x.astype(np.float16) for x in (key, query, value, *scales)]
    compare(ours(GATE, half, 2), runtime(GATE, half, (True, True)), 2e-3, 2e-3)
    key[0, 0, 0, 0], query[0, 1, 1, 0], key[0, 2], value[1, 0, 1] = np.nan, np.inf, 0, -np.inf
    agree(GATE, [key, query, value, *scales], (True, True), compiled=True)


def test_gradients_vmap_and_symbolic_sizes():
    operands = [f32(2, 3, 2, 5), f32(2, 3, 2, 5), f32(2, 3, 5), *(f32(2, 5) for _ in range(3))]
    check_grads(jax.jit(ms.engram_gate), operands, order=1, modes=["rev"], rtol=2e-2, atol=2e-2)
    shapes = ["b, s, 2, 5", "b, s, 2, 5", "b, s, 5", *["2, 5"] * 3]
    made = export(jax.jit(ms.engram_gate))(*symbolic_args_specs(operands, shapes))
    compare(made.call(*operands), [np.asarray(y) for y in ms.engram_gate(*operands)], 1e-5, 1e-5)

    ids, multipliers, moduli, past, *_ = given((2, 7), 2, 3, 2, options=(True, False, False, False))

    def row(x, before):
        return ms.n_gram_hash_mapping(x, multipliers, moduli, before, segment_ids=x % 2, **SIZES)

    expected = [np.asarray(y) for y in row(ids, past)]
    made = export(jax.jit(row))(*symbolic_args_specs((ids, past), ["b, s", "b, 2"]))
    compare(made.call(ids, past), expected, 0, 0)
    mapped = jax.vmap(lambda x, before: row(x[None], before[None]))(ids, past)
    compare([y[:, 0] for y in mapped], expected, 0, 0)

    def flat(x, sums, before):
        return ms.varlen_n_gram_hash_mapping(x, multipliers, moduli, sums, before, **SIZES)

    sums = np.array([0, 2, 7], np.int32)
    made = export(jax.jit(flat))(*symbolic_args_specs((ids[0], sums, past), ["t", "b + 1", "b, 2"]))
    compare(made.call(ids[0], sums, past), [np.asarray(y) for y in flat(ids[0], sums, past)], 0, 0)


IDS, FACTORS, MODULI = some(5, 2, 4), any_bits(3), 1 + some(9, 4)
SUMS = np.array([0, 3, 8], np.int32)
X, SCALE = f32(1, 2, 3, 4), f32(3, 4)


def hashed(ids=IDS, factors=FACTORS, moduli=MODULI, **more):
    return ms.n_gram_hash_mapping(ids, factors, moduli, **(SIZES | more))


def packed(sums=SUMS, **more):
    return ms.varlen_n_gram_hash_mapping(IDS.ravel(), FACTORS, MODULI, sums, **(SIZES | more))


ERRORS = [
    (lambda: hashed(max_ngram_size=1), ArgumentError, "`max_ngram_size` is 1; it must be at least 2"),
    (lambda: hashed(n_head_per_ngram=0), ArgumentError, "`n_head_per_ngram` is 0; it must be at least 1"),
    (lambda: hashed(IDS[0]), ShapeError, r"`input_ids` of \(4,\) must be \(B, L\)"),
    (lambda: ms.varlen_n_gram_hash_mapping(IDS, FACTORS, MODULI, SUMS, **SIZES), ShapeError, r"must be \(T,\)"),
    (lambda: hashed(factors=FACTORS[:2]), ShapeError, r"`multipliers` of \(2,\) must be \(n,\), with n at least 3"),
    (lambda: hashed(moduli=MODULI[:3]), ShapeError, r"`vocab_sizes` of \(3,\) must be \(4,\)"),
    (lambda: hashed(moduli=0 * MODULI), ArgumentError, "`vocab_sizes` is .*; each must be positive"),
    (lambda: hashed(past_ids=IDS), ShapeError, r"`past_ids` of \(2, 4\) must be \(2, 2\)"),
    (lambda: hashed(head_offsets=FACTORS), ShapeError, r"`head_offsets` of \(3,\) must be \(4,\)"),
    (lambda: hashed(eos_token_id=FACTORS), ShapeError, r"`eos_token_id` of \(3,\) must be \(\)"),
    (lambda: hashed(segment_ids=IDS[0]), ShapeError, r"`segment_ids` of \(4,\) must be \(2, 4\)"),
    (lambda: hashed(segment_ids=X), DTypeError, "`segment_ids` must be integers"),
    (lambda: hashed(IDS.astype(np.float32)), DTypeError, "`input_ids` must be integers"),
    (lambda: hashed(pad_id=2**40), ArgumentError, "`pad_id` 1099511627776 does not fit int32"),
    (lambda: hashed(moduli=MODULI.astype(np.int64)), DTypeError, "operands must have one element type"),
    (
        lambda: hashed(jnp.asarray(IDS), factors=FACTORS.astype(np.int64)),
        OutOfRangeError,
        "`multipliers` is int64, but other operands are traced; 64-bit products need x64",
    ),
    (lambda: packed(SUMS[:1]), ShapeError, r"`cumulative_sequence_length` of \(1,\) must be \(B \+ 1,\)"),
    (lambda: packed(SUMS + 1), ArgumentError, "must begin with 0, end with 8, the number of tokens, and grow by at"),
    (lambda: packed(np.array([0, 0, 8], np.int32)), ArgumentError, "must begin with 0, end with 8, .* at least 1 with"),
    (lambda: packed(np.array([0, 3, 7], np.int32)), ArgumentError, "must begin with 0, end with 8"),
    (lambda: packed(past_segment_ids=IDS[:, :2]), ArgumentError, "`past_segment_ids` needs `segment_ids`"),
    (lambda: packed(state_update_capacity=9), ArgumentError, "`state_update_capacity` is 9; it must be in 0 to 8"),
    (lambda: packed(state_update_capacity=1), ArgumentError, "capacity` of 1 needs `capture_count`"),
    (lambda: packed(capture_count=SUMS[1:]), ArgumentError, "capacity` of 0 allows no `capture_count`"),
    (
        lambda: packed(capture_count=SUMS, state_update_capacity=1),
        ShapeError,
        r"`capture_count` of \(3,\) must be \(2,\)",
    ),
    (lambda: ms.engram_gate(X[0], X, X, SCALE, SCALE), ShapeError, r"`key` of \(2, 3, 4\) must be \(B, L, G, H\)"),
    (lambda: ms.engram_gate(X, X, X, SCALE, SCALE), ShapeError, r"`value` of \(1, 2, 3, 4\) must be \(1, 2, 4\)"),
    (
        lambda: ms.engram_gate(X, X, X[:, :, 0], SCALE, SCALE[:2]),
        ShapeError,
        r"`query_norm_scale` of \(2, 4\) must be \(3, 4\)",
    ),
    (
        lambda: ms.engram_gate(X, X, X[:, :, 0].astype(np.float16), SCALE, SCALE),
        DTypeError,
        "operands must have one element type",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
