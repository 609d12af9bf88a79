"""Packed batches against NumPy and their padded kin; onnxruntime has no kernels for a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import ours

from jaxops.errors import ArgumentError, ShapeError, StaticError
from jaxops.microsoft import (
    attention,
    multi_head_attention,
    packed_attention,
    packed_multi_head_attention,
    remove_padding,
    restore_padding,
)

RNG = np.random.default_rng(10)
COUNTS = np.array([1, 2, 4], np.int32)
OFFSET = np.array([[0, 4, 5, 8], [9, 10, 11, 1], [2, 3, 6, 7]], np.int32)  # the example of the text
ENDS = np.array([0, 1, 3, 7], np.int32)
REAL = np.arange(4) < COUNTS[:, None]


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def test_remove_and_restore_padding():
    x = floats(3, 4, 5)
    tokens, offset, ends, longest = ours("RemovePadding", [jnp.asarray(x), COUNTS], 4)
    np.testing.assert_array_equal(tokens, x[REAL])
    np.testing.assert_array_equal(offset, OFFSET)
    np.testing.assert_array_equal(ends, ENDS)
    np.testing.assert_array_equal(longest, [4])
    assert {v.dtype for v in (offset, ends, longest)} == {np.dtype(np.int32)}
    (found,) = ours("RestorePadding", [tokens, offset], 1)
    np.testing.assert_array_equal(found, np.where(REAL[..., None], x, 0))
    made = export(jax.jit(restore_padding))(
        *symbolic_args_specs([tokens, offset], ["t, d", "b, s"], constraints=["b*s >= t"])
    )
    np.testing.assert_array_equal(made.call(tokens, offset), found)


X, W, B = floats(3, 4, 6), floats(6, 28), floats(28)
BIAS = floats(1, 2, 4, 4)


def test_packed_attention():
    attributes = {"num_heads": 2, "qkv_hidden_sizes": (8, 8, 12), "scale": 0.4}
    expected, _ = attention(X, W, B, COUNTS, None, BIAS, mask_filter_value=-np.inf, **attributes)
    (found,) = ours("PackedAttention", [X[REAL], W, B, OFFSET, ENDS, BIAS], 1, **attributes)
    np.testing.assert_allclose(found, np.asarray(expected)[REAL], rtol=1e-5, atol=1e-5)


def test_packed_multi_head_attention():
    q, k, v = floats(3, 4, 8), floats(3, 4, 8), floats(3, 4, 12)
    expected = multi_head_attention(q, k, v, B, COUNTS, num_heads=2)[0]
    found = packed_multi_head_attention(*(x[REAL] for x in (q, k, v)), B, OFFSET, ENDS, num_heads=2)
    np.testing.assert_allclose(found, np.asarray(expected)[REAL], rtol=1e-5, atol=1e-5)


def test_packed_queries_keys_and_values_under_jit():
    packed = floats(7, 2, 3, 4)
    attributes = {"num_heads": 2, "scale": 0.7, "mask_filter_value": -5.0}
    separate = [packed[:, :, i].reshape(7, 8) for i in range(3)]
    expected = packed_multi_head_attention(*separate, None, OFFSET, ENDS, **attributes)
    found = jax.jit(lambda *x: ours("PackedMultiHeadAttention", [x[0], None, None, None, *x[1:]], 1, **attributes))(
        packed, OFFSET, ENDS
    )
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)


def test_another_order_of_tokens_is_caught():
    offset = OFFSET.copy()
    offset[0] = [4, 0, 5, 8]
    given = X[REAL], W[:, :24], B[:24]
    found = (packed_attention(*given, o, ENDS, num_heads=2) for o in (OFFSET, offset))
    assert not np.allclose(*found, atol=1e-3)


QKV = floats(7, 2, 3, 4)
ERRORS = [
    (lambda: packed_attention(X, W, B, OFFSET, ENDS, num_heads=2), ShapeError, r"`input` of .* must be \(T, Di\)"),
    (
        lambda: packed_attention(X[REAL], W[:, :24], B[:24], OFFSET, ENDS[1:], num_heads=2),
        ShapeError,
        r"`cumulative_sequence_length` of \(3,\) must be \(4,\)",
    ),
    (
        lambda: packed_attention(X[REAL], W[:, :24], B[:24], OFFSET[:1], ENDS[:2], num_heads=2),
        ShapeError,
        r"`token_offset` of \(1, 4\) must be \(B, S\) with room for 7 tokens",
    ),
    (
        lambda: packed_multi_head_attention(QKV[:, 0], None, None, None, OFFSET, ENDS, num_heads=2),
        ShapeError,
        r"`query` of \(7, 3, 4\) must be \(T, N, 3, H\) if there is no key",
    ),
    (
        lambda: packed_multi_head_attention(*[floats(n, 8) for n in (7, 6, 6)], None, OFFSET, ENDS, num_heads=2),
        ShapeError,
        "`key` and `value` have 6 tokens, but `query` has 7",
    ),
    (
        lambda: packed_multi_head_attention(QKV, num_heads=2),
        ArgumentError,
        "`token_offset` and `cumulative_sequence_length` must be given",
    ),
    (lambda: remove_padding(X, COUNTS[:2]), ShapeError, r"`sequence_token_count` of \(2,\) must be \(B,\)"),
    (lambda: remove_padding(X, COUNTS + 1), ArgumentError, "sequences have 0 to 4 tokens"),
    (lambda: jax.jit(remove_padding)(X, COUNTS), StaticError, "`sequence_token_count` must be known while tracing"),
    (lambda: restore_padding(X, OFFSET), ShapeError, r"`input` of \(3, 4, 6\) must be \(T, D\)"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
