"""Packed weights of a few bits beside onnxruntime."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import ours
from quantized_peer import agree, close

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError

RNG = np.random.default_rng(7)
f32 = np.float32


def codes(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


def floats(*shape):
    return RNG.uniform(0.01, 0.1, shape).astype(f32)


def numbers(x, bits):
    """The elements of bytes, the lowest bits first."""
    parts = [(x >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*x.shape[:-1], -1).astype(f32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("k", "n", "block"), [(100, 7, 32), (64, 5, 16)])
def test_matmul_nbits(k, n, block, bits):
    blocks = -(-k // block)
    a, b, by = RNG.normal(size=(2, 3, k)).astype(f32), codes(n, blocks, block * bits // 8), floats(n, blocks)
    zeros, given = codes(n, -(-blocks * bits // 8)), {"K": k, "N": n, "block_size": block, "bits": bits}
    bias = RNG.normal(size=n).astype(f32)
    agree("MatMulNBits", (a, b, by), **given)
    agree("MatMulNBits", (a, b, by, zeros, None, bias), **given)
    agree("MatMulNBits", (a, b, by.ravel(), zeros.ravel()), **given)
    # onnxruntime may quantize `a` at this level, yet does not for these operands.
    agree("MatMulNBits", (a, b, by, zeros), accuracy_level=4, tolerance=0.05, **given)
    half = (a.astype(np.float16), b, by.astype(np.float16), zeros, None, bias.astype(np.float16))
    agree("MatMulNBits", half, tolerance=5e-3, **given)
    if bits < 8:  # onnxruntime has these for fewer bits
        agree("MatMulNBits", (a, b, by, floats(n, blocks) * 100), **given)
    if bits == 4:  # with g_idx, onnxruntime's CPU is right for 4 bits only
        agree("MatMulNBits", (a, b, by, None, RNG.integers(0, blocks, k).astype(np.int32)), **given)


def test_groups_of_columns_with_zero_points():
    # onnxruntime 1.31 takes other zero points as soon as there is g_idx, even where each column keeps its block.
    k, n, block, bits = 64, 5, 16, 4
    a, b, by, zeros = RNG.normal(size=(3, k)).astype(f32), codes(n, 4, 8), floats(n, 4), codes(n, 2)
    given = {"K": k, "N": n, "block_size": block}
    groups = RNG.integers(0, 4, k).astype(np.int32)
    w = (numbers(b, bits).reshape(n, k) - numbers(zeros, bits)[:, groups]) * by[:, groups]
    np.testing.assert_allclose(ms.matmul_nbits(a, b, by, zeros, groups, **given), a @ w.T, rtol=1e-4, atol=1e-5)
    ordered = np.repeat(np.arange(4), 16).astype(np.int32)
    same = ms.matmul_nbits(a, b, by, zeros, **given)
    np.testing.assert_allclose(ms.matmul_nbits(a, b, by, zeros, ordered, **given), same, rtol=1e-5, atol=1e-6)


def test_matmul_nbits_in_all_ways():
    a, b, by, zeros = RNG.normal(size=(6, 256)).astype(f32), codes(96, 8, 16), floats(96, 8), codes(96, 4)

    def fn(a, by):
        return ms.matmul_nbits(a, b, by, zeros, K=256, N=96, block_size=32)

    wanted = np.asarray(fn(a, by))
    close(jax.jit(fn)(a, by), wanted)
    close(jax.vmap(fn, (0, None))(a, by), wanted)
    (spec,) = symbolic_args_specs([jnp.asarray(a)], ["n, 256"])
    close(export(jax.jit(lambda a: fn(a, by)))(spec).call(a), wanted)
    check_grads(lambda a: ms.matmul_nbits(a, b[:3], by[:3], zeros[:3], K=256, N=3, block_size=32), (a[:2],), 1)
    assert ms.matmul_nbits(a.astype(jnp.bfloat16), b, by.astype(jnp.bfloat16), K=256, N=96, block_size=32).shape == (
        6,
        96,
    )


@pytest.mark.parametrize("kind", [0, 1])
def test_matmul_bnb4(kind):
    for k, n, block in ((64, 10, 32), (35, 7, 16)):
        a, b, by = RNG.normal(size=(3, k)).astype(f32), codes(-(-n * k // 2)), 20 * floats(-(-n * k // block))
        given = {"K": k, "N": n, "block_size": block, "quant_type": kind}
        agree("MatMulBnb4", (a, b, by), **given)
        # onnxruntime leaves the result of transB 0 unwritten
        w = np.asarray(ms.matmul_bnb4(np.eye(k, dtype=f32), b, by, **given)).T
        y = RNG.normal(size=(3, n)).astype(f32)
        np.testing.assert_allclose(ms.matmul_bnb4(y, b, by, transB=0, **given), y @ w, rtol=1e-4, atol=1e-5)


PLACES = np.array([[0, -1, 2], [4, 3, 7]])  # 7 is out of range


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gather_from_bytes(bits):
    table, by, zeros = codes(5, 3, 5 * bits), floats(5, 3, 3), codes(5, 3, -(-3 * bits // 8))
    given = {"bits": bits, "block_size": 16, "quantize_axis": 2}
    agree("GatherBlockQuantized", (table, PLACES, by, zeros), **given)
    agree("GatherBlockQuantized", (table, PLACES.astype(np.int32), by.astype(np.float16)), tolerance=1e-3, **given)


@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_from_4_bits(kind, axis):
    info = ml_dtypes.iinfo(kind)
    table, zeros = (RNG.integers(int(info.min), int(info.max) + 1, s).astype(kind) for s in ((5, 40, 8), (5, 3, 8)))
    given = {"block_size": 16, "gather_axis": axis, "quantize_axis": 1}
    agree("GatherBlockQuantized", (table, PLACES, floats(5, 3, 8), zeros), **given)
    agree("GatherBlockQuantized", (table, PLACES, floats(5, 3, 8)), **given)


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn])
def test_gather_from_floats(kind):
    table = RNG.normal(size=(5, 40, 8)).astype(kind)
    for axis, sizes in ((0, (5, 3, 8)), (0, (1, 3, 1)), (1, (5, 3, 1)), (2, (1, 3, 1))):
        given = {"block_size": 16, "gather_axis": axis, "quantize_axis": 1}
        agree("GatherBlockQuantized", (table, PLACES, floats(*sizes)), **given)
    agree("GatherBlockQuantized", (table, PLACES, floats(5, 1, 8)), block_size=0, gather_axis=-1, quantize_axis=1)


def test_gather_in_all_ways():
    table, by = codes(50, 64), floats(50, 8)

    def fn(places):
        return ms.gather_block_quantized(table, places, by, block_size=16)

    places = RNG.integers(-50, 50, (8, 30)).astype(np.int32)
    wanted = np.asarray(ours("GatherBlockQuantized", (table, places, by), block_size=16)[0])
    close(jax.jit(fn)(places), wanted)
    (spec,) = symbolic_args_specs([jnp.asarray(places)], ["n, m"])
    close(export(jax.jit(fn))(spec).call(places), wanted)


A, B, S = np.ones((2, 32), f32), np.ones((3, 2, 8), np.uint8), np.ones((3, 2), f32)
AT = {"K": 32, "N": 3, "block_size": 16}
BNB = {"K": 32, "N": 3, "quant_type": 1, "block_size": 16}
T, ROW = np.ones((4, 16), np.uint8), np.array([0])
ONE = np.ones((4, 1), f32)
ERRORS = [
    (lambda: ms.matmul_nbits(A, B, S, **AT, bits=3), ArgumentError, "`bits` is 3; it must be 2, 4 or 8"),
    (lambda: ms.matmul_nbits(A, B, S, **{**AT, "block_size": 24}), ArgumentError, "`block_size` is 24; it must be a p"),
    (lambda: ms.matmul_nbits(A, B[:2], S, **AT), ShapeError, r"`b` of \(2, 2, 8\) must be \(3, 2, 8\), as N is 3"),
    (lambda: ms.matmul_nbits(A, B, S[:2], **AT), ShapeError, r"`scales` of .* must be \(3, 2\) or \(6,\)"),
    (lambda: ms.matmul_nbits(A, B, S, B[0], **AT), ShapeError, r"`zero_points` of .* must be \(3, 1\) or \(3,\)"),
    (lambda: ms.matmul_nbits(A[:, 1:], B, S, **AT), ShapeError, r"`a` of \(2, 31\) must have K, 32, elements"),
    (lambda: ms.matmul_nbits(A, B, S, S.astype("i4"), **AT), DTypeError, r"`zero_points` is int32; it must be uint8"),
    (lambda: ms.matmul_nbits(A, B, S, None, A[0], **AT), DTypeError, "`g_idx` must be integers"),
    (lambda: ms.matmul_nbits(A, B, S, **AT, weight_prepacked=1), UnsupportedError, "`weight_prepacked` is 1: the weig"),
    (lambda: ms.matmul_bnb4(A, B[0, 0], S[0], **BNB), ShapeError, r"`b` of \(8,\) must have 48 elements"),
    (lambda: ms.matmul_bnb4(A, B, S, **{**BNB, "quant_type": 2}), ArgumentError, "`quant_type` is 2; it must be 0"),
    (lambda: ms.gather_block_quantized(T, ROW, np.ones((4, 2), f32)), ShapeError, r"`scales` of \(4, 2\) does not fit"),
    (lambda: ms.gather_block_quantized(T, ROW, np.ones(4, f32)), ShapeError, "must have the rank of `data`"),
    (
        lambda: ms.gather_block_quantized(T, ROW, ONE, T),
        ShapeError,
        r"`zero_points` of .* must be \(4, 1",
    ),
    (lambda: ms.gather_block_quantized(T, ROW, ONE, block_size=8), ArgumentError, "`block_size` is 8"),
    (lambda: ms.gather_block_quantized(T, ROW, ONE, bits=3), ArgumentError, "`bits` is 3; it must be 2"),
    (
        lambda: ms.gather_block_quantized(T, ROW, ONE, gather_axis=1),
        ArgumentError,
        "for uint8 `gather_a",
    ),
    (lambda: ms.gather_block_quantized(T, ROW, ONE, S), DTypeError, "`zero_points` is float32; it mus"),
    (lambda: ms.gather_block_quantized(T, A, ONE), DTypeError, "`indices` must be integers"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
