"""Weights whose scales and codes are packed into blocks of bytes, beside onnxruntime: every format of GGUF it reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import agree, compare, ours, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, StaticError, UnsupportedError
from jaxops.ops.microsoft.quantized.codebooks import codebook

RNG = np.random.default_rng(44)
GATHER, PRODUCT = "GatherPacked", "MatMulFpQ4"
# For each format the elements and the bytes of a block, and where its scales in float16 are.
FORMATS = {
    2: (32, 18, (0,)),
    6: (32, 22, (0,)),
    8: (32, 34, (0,)),
    13: (256, 176, (0, 2)),
    14: (256, 210, (208,)),
    16: (256, 66, (0,)),
    17: (256, 74, (0,)),
    18: (256, 98, (0,)),
    20: (32, 18, (0,)),
    22: (256, 82, (0,)),
    23: (256, 136, (0,)),
    42: (64, 18, (0,)),
}


def table(kind, rows, k):
    """Random codes, with scales that are no NaN."""
    block, size, scales = FORMATS[kind]
    data = RNG.integers(0, 256, (rows, k // block, size), np.uint8)
    for at in scales:
        data[..., at : at + 2] = RNG.normal(size=(*data.shape[:2], 1)).astype(np.float16).view(np.uint8)
    return data.reshape(rows, -1)


@pytest.mark.parametrize("kind", FORMATS)
def test_gather(kind):
    data = table(kind, 5, 512)
    places = np.array([[0, 3, 4], [-1, 7, 2]])  # those out of range read row 0
    agree(GATHER, [data, places], compiled=True, rtol=1e-6, atol=0, packed_type=kind, K=512, output_dtype=1)
    agree(GATHER, [data, np.array(4, np.int32)], rtol=1e-6, atol=0, packed_type=kind, K=512, output_dtype=10)
    found = ours(GATHER, [data, places], packed_type=kind, K=512)[0]
    assert found.dtype == jnp.bfloat16
    exact = runtime(GATHER, [data, places], packed_type=kind, K=512, output_dtype=1)
    compare([found.astype(np.float32)], [exact[0].astype(jnp.bfloat16).astype(np.float32)], 0, 0)
    infinite = data.copy()
    infinite[1, FORMATS[kind][2][0] :][:2] = 0, 0x7C
    agree(GATHER, [infinite, np.array([1])], compiled=True, rtol=1e-6, packed_type=kind, K=512, output_dtype=1)


def test_plain_floats_and_codebooks():
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    x[1, 2], x[3, 0] = np.nan, -np.inf
    for kind, dtype in ((0, np.float32), (1, np.float16), (30, jnp.bfloat16)):
        data = np.ascontiguousarray(x.astype(dtype)).view(np.uint8)
        agree(GATHER, [data, np.array([3, 1])], compiled=True, rtol=0, packed_type=kind, K=6, output_dtype=1)
    for name, shape in (("iq2_xxs", (256, 8)), ("iq2_xs", (512, 8)), ("iq2_s", (1024, 8)), ("iq3_xxs", (256, 4))):
        assert codebook(name).shape == shape
        assert len(np.unique(codebook(name), axis=0)) == len(codebook(name))


def test_vmap_and_symbolic_sizes():
    data, places = table(23, 5, 256), np.array([[0, 3], [4, 1]], np.int32)

    def fn(data, places):
        return ms.gather_packed(data, places, K=256, packed_type=23, output_dtype=np.float32)

    expected = np.asarray(fn(data, places))
    made = export(jax.jit(fn))(*symbolic_args_specs((data, places), ["v, 136", "b, s"]))
    compare([made.call(data, places)], [expected], 0, 0)
    compare([jax.vmap(fn, (None, 0))(data, places)], [expected], 0, 0)


def blob(kind, k, n):
    block, extra = (64, 0) if kind == 2 else (32, int(kind == 1))
    parts = RNG.integers(0, 256, (n, -(-k // block), 4 + extra + block // 2), np.uint8)
    parts[..., :4] = RNG.normal(size=(*parts.shape[:2], 1)).astype(np.float32).view(np.uint8)
    if extra:
        parts[..., 4] %= 16
    return parts.ravel()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("k", [32, 100, 256])
def test_product(kind, k):
    a, b, shape = RNG.normal(size=(2, 3, k)).astype(np.float32), blob(kind, k, 7), np.array([k, 7])
    agree(PRODUCT, [a, b, shape], static=(2,), compiled=True, rtol=1e-4, atol=1e-4, blk_quant_type=kind)
    agree(PRODUCT, [a[0], b, shape], static=(2,), rtol=1e-4, atol=1e-4, blk_quant_type=kind)
    a[1, 2, 3] = np.nan
    agree(PRODUCT, [a, b, shape], static=(2,), compiled=True, rtol=1e-4, atol=1e-4, blk_quant_type=kind)


def test_product_with_blocks_of_64():
    """onnxruntime takes them for blocks of 32; here is what the text says."""
    b = blob(2, 64, 3)
    parts = b.reshape(3, 36)
    low, high = parts[:, 4:].reshape(3, 2, 16) & 15, parts[:, 4:].reshape(3, 2, 16) >> 4
    codes = np.concatenate([low, high], 2).reshape(3, 64).astype(np.float32)
    w = (codes - 8) * np.ascontiguousarray(parts[:, :4]).view(np.float32)
    found = jax.jit(lambda a: ms.matmul_fp_q4(a, b, (64, 3), blk_quant_type=2))(jnp.eye(64))
    np.testing.assert_allclose(found, w.T, rtol=1e-6)


def test_gradient_and_symbolic_rows():
    a, b = RNG.normal(size=(4, 32)).astype(np.float32), blob(1, 32, 5)

    def fn(a):
        return ms.matmul_fp_q4(a, b, (32, 5))

    w = np.asarray(fn(np.eye(32, dtype=np.float32)))
    np.testing.assert_allclose(jax.grad(lambda a: fn(a).sum())(a), np.broadcast_to(w.sum(1), a.shape), rtol=1e-4)
    made = export(jax.jit(fn))(*symbolic_args_specs((a,), ["n, 32"]))
    compare([made.call(a)], [np.asarray(fn(a))], 1e-5, 1e-5)


DATA, B = table(2, 3, 32), blob(1, 32, 2)
ROW = np.ones((1, 32), np.float32)
ERRORS = [
    (lambda: ms.gather_packed(DATA, [0], K=32, packed_type=10), UnsupportedError, "`packed_type` is 10; the formats"),
    (lambda: ms.gather_packed(DATA, [0], K=33, packed_type=2), ArgumentError, "`K` is 33; it must be a positive multi"),
    (lambda: ms.gather_packed(DATA, [0], K=0, packed_type=2), ArgumentError, "`K` is 0; it must be a positive multipl"),
    (lambda: ms.gather_packed(DATA, [0], K=64, packed_type=2), ShapeError, r"`data` of \(3, 18\) must be \(V, 36\)"),
    (lambda: ms.gather_packed(DATA, [0.5], K=32, packed_type=2), DTypeError, "`indices` must be integers"),
    (lambda: ms.gather_packed(DATA * 1.0, [0], K=32, packed_type=2), DTypeError, "data"),
    (
        lambda: ms.gather_packed(DATA, [0], K=32, packed_type=2, output_dtype=np.int32),
        DTypeError,
        "`output_dtype` is int32; it must be float32, float16 or bfloat16",
    ),
    (lambda: ms.gather_packed(DATA[:0], [0], K=32, packed_type=2), BoundsError, "gather_packed: `data`"),
    (lambda: ms.matmul_fp_q4(ROW, B, (32, 2), blk_quant_type=3), ArgumentError, "`blk_quant_type` is 3; it must be 0"),
    (lambda: ms.matmul_fp_q4(ROW, B, (32,)), ShapeError, r"`B_shape` is \(32,\); it must be two sizes, K and N"),
    (lambda: ms.matmul_fp_q4(ROW[:, :9], B, (32, 2)), ShapeError, r"`a` of \(1, 9\) must have K, 32, elements"),
    (lambda: ms.matmul_fp_q4(ROW, B[1:], (32, 2)), ShapeError, r"`b` of \(41,\) must be \(42,\), 21 bytes for each bl"),
    (lambda: jax.jit(ms.matmul_fp_q4)(ROW, B, np.array([32, 2])), StaticError, "`b_shape` must be known while tracing"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
