"""Products of quantized matrices of com.microsoft, beside onnxruntime."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import ours
from quantized_peer import agree, close
from whole_numbers import whole_numbers

from jaxops import microsoft as ms
from jaxops.errors import DTypeError, ShapeError

RNG = np.random.default_rng(6)
whole = whole_numbers(RNG)
f32 = np.float32
KINDS = [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)]


def floats(*shape, low=0.1, high=0.2):
    return RNG.uniform(low, high, shape).astype(f32)


@pytest.mark.parametrize(("left", "right"), KINDS)
def test_matmul_integer_to_float(left, right):
    a, b, op = whole(left, 4, 5, 30), whole(right, 30, 7), "MatMulIntegerToFloat"
    agree(op, (a, b, f32(0.1), floats(7), whole(left), whole(right, 7), floats(7)))
    agree(op, (a, b, f32(0.1), f32(0.2), whole(left), whole(right)))
    agree(op, (a, b, f32(0.1), f32(0.2)))


def test_all_ranks_and_16_bit_scales():
    a, b = whole(np.uint8, 4, 30), whole(np.int8, 30, 7)
    wanted = (a.astype(int) - 3) @ b.astype(int) * 0.125
    found = ms.matmul_integer_to_float(a, b, np.float16(0.5), np.float16(0.25), np.uint8(3))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    found = ms.matmul_integer_to_float(a[0], b, f32(0.5), f32(0.25), np.uint8(3), bias=np.ones(7, f32))
    np.testing.assert_allclose(found, wanted[0] + 1, rtol=1e-6)
    found = ms.matmul_integer_to_float(a, b, floats(4), f32(0.25), whole(np.uint8, 4))
    assert found.shape == (4, 7)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_dynamic_quantize_matmul(kind):
    a, b = RNG.normal(size=(4, 5, 30)).astype(f32), whole(kind, 30, 7)
    agree("DynamicQuantizeMatMul", (a, b, floats(7), whole(kind, 7), floats(7)))
    agree("DynamicQuantizeMatMul", (a, b, f32(0.1)))


@pytest.mark.parametrize(("left", "right"), KINDS)
@pytest.mark.parametrize("swapped", [0, 1])
def test_qgemm(left, right, swapped):
    a, b, zero = (
        whole(left, *(30, 4) if swapped else (4, 30)),
        whole(right, *(7, 30) if swapped else (30, 7)),
        whole(left),
    )
    given = (a, f32(0.1), zero, b, floats(7), whole(right, 7))
    for c in (None, RNG.integers(-999, 999, (4, 1) if swapped else 7).astype(np.int32)):
        agree("QGemm", (*given, c), transA=swapped, transB=swapped, alpha=0.5)
        agree("QGemm", (*given, c, f32(20), whole(left)), steps=1, transA=swapped, transB=swapped, alpha=0.5)
    single = (a, f32(0.1), zero, b, f32(0.2), whole(right), None, f32(20), whole(left))
    agree("QGemm", single, steps=1, transA=swapped, transB=swapped)


def test_matmul_integer16():
    agree("MatMulInteger16", (whole(np.int16, 2, 4, 6), whole(np.int16, 6, 5)))
    a, b = whole(np.uint16, 4, 6), whole(np.uint16, 6, 5)
    wanted = (a.astype(np.uint64) @ b.astype(np.uint64)).astype(np.uint32)
    close(ms.matmul_integer16(a, b), wanted)
    close(ms.matmul_integer16(a, b.view(np.int16)), (a.astype(int) @ b.view(np.int16).astype(int)).astype(np.int32))


def test_the_program_multiplies_int8():
    a, b = whole(np.uint8, 64, 300), whole(np.int8, 300, 20)
    zero = np.uint8(9)

    def fn(a, b):
        return ms.qgemm(a, f32(0.1), zero, b, f32(0.1), np.int8(0), None, f32(30), zero)

    lowered = jax.jit(fn).lower(a, b).as_text()
    assert re.search(r"dot_general .*tensor<6[45]x300xu?i8>, tensor<300x20xi8>\) -> tensor<6[45]x20xi32>", lowered)
    wanted = np.asarray(fn(a, b))
    close(jax.jit(fn)(a, b), wanted, steps=1)
    close(jax.vmap(lambda a: fn(a[None], b)[0])(a), wanted, steps=1)
    specs = symbolic_args_specs([jnp.asarray(a), jnp.asarray(b)], ["m, 300", "300, 20"])
    close(export(jax.jit(fn))(*specs).call(a, b), wanted, steps=1)
    with jax.enable_x64(True):
        close(fn(a, b), wanted, steps=1)
    assert ours("QGemm", (a, f32(1), zero, b, f32(1), np.int8(0)))[0].dtype == f32


A, B, S, Z = np.ones((2, 3), np.uint8), np.ones((3, 4), np.uint8), f32(1), np.uint8(0)
ERRORS = [
    (lambda: ms.matmul_integer_to_float(A, A, S, S), ShapeError, r"a of \(2, 3\) and b of \(2, 3\) do not fit"),
    (
        lambda: ms.matmul_integer_to_float(A, B, S, S, np.int8(0)),
        DTypeError,
        "`a_zero_point` is int8; it must be",
    ),
    (lambda: ms.matmul_integer_to_float(A, B, S, S, bias=np.ones(3, f32)), ShapeError, "do not broadcast"),
    (
        lambda: ms.matmul_integer_to_float(A, B, S, S, bias=np.ones((5, 1, 1), f32)),
        ShapeError,
        "`bias` of .* must broadcast",
    ),
    (lambda: ms.dynamic_quantize_matmul(A, B, S), DTypeError, "`a` is uint8; it must be float32"),
    (lambda: ms.qgemm(A, S, Z, B, S, Z, None, S), DTypeError, "give both `y_scale` and `y_zero_point`"),
    (lambda: ms.qgemm(A, S, Z, B, S, Z, np.ones(4, f32)), DTypeError, "`c` must be int32"),
    (lambda: ms.qgemm(A, S, Z, B, S, Z, np.ones((1, 2, 4), "i4")), ShapeError, "`c` of .* must broadcast to"),
    (lambda: ms.qgemm(A[0], S, Z, B, S, Z), ShapeError, r"`a` of \(3,\) must be \(rows, columns\)"),
    (lambda: ms.qgemm(A, np.ones(2, f32), Z, B, S, Z), ShapeError, r"`a_scale` of \(2,\) must be a scalar"),
    (lambda: ms.matmul_integer16(A, B), DTypeError, "`a` is uint8; it must be of type int16, uint16"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
