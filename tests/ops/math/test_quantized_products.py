"""Products of quantized matrices against NumPy's integers, and against onnxruntime, exactly."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from peer import runtime
from whole_numbers import whole_numbers

import jaxops as jo
from jaxops.errors import DTypeError, ShapeError

RNG = np.random.default_rng(9)
whole = whole_numbers(RNG)
KINDS = [(a, b) for a in (np.int8, np.uint8) for b in (np.int8, np.uint8)]
SHAPES = [((7, 90), (90, 11)), ((2, 3, 5, 64), (2, 3, 64, 6)), ((3, 5, 64), (64, 6)), ((40,), (40, 3)), ((4, 9), (9,))]


def same(found, wanted):
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert (found != wanted).sum() == 0, f"{(found != wanted).sum()} of {found.size} differ"


def product(a, b, a_zero, b_zero):
    """Zero points in the shapes that broadcast."""
    return np.matmul(a.astype(np.int64) - a_zero, b.astype(np.int64) - b_zero)


def requantized(total, factor, zero):
    info = np.iinfo(zero.dtype)
    ratio = np.rint(total.astype(np.float32) * np.float32(factor)).astype(np.float64)
    return np.clip(ratio + int(zero), info.min, info.max).astype(zero.dtype)


@pytest.mark.grid
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize(("left", "right"), KINDS)
def test_matmul_integer(left, right, shapes):
    a, b = whole(left, *shapes[0]), whole(right, *shapes[1])
    zeros = whole(left), whole(right)
    wanted = product(a, b, *map(int, zeros)).astype(np.int32)
    for fn in (jo.matmul_integer, jax.jit(jo.matmul_integer)):
        same(fn(a, b, *zeros), wanted)
    same(jo.matmul_integer(a, b), product(a, b, 0, 0).astype(np.int32))
    if left is np.uint8 or right is np.int8:  # onnxruntime has no int8 times uint8
        for given in ((a, b, *zeros), (a, b), (a, b, None, zeros[1])):
            same(at_opset("MatMulInteger", 10, *given)[0], runtime("MatMulInteger", given, 10)[0])


def test_zero_points_of_rows_and_columns():
    for shapes in SHAPES[:3]:
        a, b = whole(np.uint8, *shapes[0]), whole(np.int8, *shapes[1])
        rows, columns = whole(np.uint8, *a.shape[:-1], 1), whole(np.int8, *b.shape[:-2], 1, b.shape[-1])
        wanted = product(a, b, rows.astype(np.int64), columns.astype(np.int64)).astype(np.int32)
        same(jax.jit(jo.matmul_integer)(a, b, rows, columns), wanted)
        vectors = whole(np.uint8, a.shape[-2]), whole(np.int8, b.shape[-1])
        wanted = product(a, b, vectors[0][:, None].astype(np.int64), vectors[1].astype(np.int64)).astype(np.int32)
        same(jo.matmul_integer(a, b, *vectors), wanted)
        scales = RNG.uniform(0.01, 0.02, a.shape[-2]).astype("f4"), RNG.uniform(0.1, 0.2, b.shape[-1]).astype("f4")
        found = jo.qlinear_matmul(a, scales[0], vectors[0], b, scales[1], vectors[1], np.float32(3), np.int8(4))
        same(found, requantized(wanted, scales[0][:, None] * scales[1] / np.float32(3), np.int8(4)))
    # onnxruntime has zero points of columns only.
    a, b, columns = whole(np.uint8, 7, 90), whole(np.int8, 90, 11), whole(np.int8, 11)
    same(jo.matmul_integer(a, b, None, columns), runtime("MatMulInteger", (a, b, None, columns), 10)[0])


def test_sums_wrap_around_in_32_bits():
    a = np.full((1, 140_000), -128, np.int8)
    b = np.full((140_000, 1), -128, np.int8)
    total = product(a, b, 127, 0)
    assert total > 2**31
    same(jo.matmul_integer(a, b, np.int8(127)), total.astype(np.int32))


@pytest.mark.grid
@pytest.mark.parametrize("scale", ["scalar", "columns"])
@pytest.mark.parametrize("shapes", [*SHAPES[:3], ((64, 300), (300, 200))], ids=str)
@pytest.mark.parametrize(("left", "right", "out"), [(a, b, a) for a, b in KINDS] + [(np.uint8, np.int8, np.int8)])
def test_qlinear_matmul(left, right, out, shapes, scale):
    a, b = whole(left, *shapes[0]), whole(right, *shapes[1])
    sizes = () if scale == "scalar" or len(shapes[1]) > 2 else b.shape[-1:]
    by = [np.float32(RNG.uniform(0.001, 0.02)), RNG.uniform(0.001, 0.02, sizes).astype(np.float32)]
    zeros = [whole(left), whole(right, *sizes), whole(out)]
    total = product(a, b, int(zeros[0]), zeros[1].astype(np.int64))
    by.append(np.float32((total * by[0] * by[1]).std() / 70))
    given = [a, by[0], zeros[0], b, by[1], zeros[1], by[2], zeros[2]]
    wanted = requantized(total, np.asarray(by[0]) * by[1] / by[2], zeros[2])
    same(jax.jit(jo.qlinear_matmul)(*given), wanted)
    # Static scales are constants of the program.
    rest = given[1:3], given[4:]
    same(jax.jit(lambda a, b: jo.qlinear_matmul(a, *rest[0], b, *rest[1]))(a, b), wanted)
    if left is out and (left, right) != (np.int8, np.uint8):
        same(runtime("QLinearMatMul", given, 10)[0], wanted)


def test_one_axis():
    row, column = whole(np.uint8, 40), whole(np.uint8, 40)
    matrix, one, zero = whole(np.uint8, 4, 40), np.float32(1), np.uint8(3)
    scales = RNG.uniform(0.001, 0.002, 4).astype(np.float32)
    zeros = whole(np.uint8, 4)
    wanted = requantized(product(matrix, column, zeros[:, None].astype(np.int64), 3), scales, zero)
    same(jo.qlinear_matmul(matrix, scales, zeros, column, one, zero, one, zero), wanted)
    wanted = requantized(product(row, matrix.T, 3, zeros.astype(np.int64)), scales, zero)
    same(jo.qlinear_matmul(row, one, zero, matrix.T, scales, zeros, one, zero), wanted)
    assert jo.qlinear_matmul(row, np.float32(1e-3), zero, column, one, zero, one, zero).shape == ()


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_float8(kind):
    kind = getattr(ml_dtypes, kind)
    a, b = (RNG.normal(size=s).astype(kind) for s in ((5, 30), (30, 7)))
    zero, by = np.zeros((), kind), np.float16(0.5)
    wanted = np.matmul(a.astype(np.float64), b.astype(np.float64)) * 0.5
    found = jax.jit(jo.qlinear_matmul)(a, by, zero, b, by, zero, by, zero)
    assert found.dtype == kind
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=0.13, atol=0.01)
    # A float8 beside integers.
    found = jo.qlinear_matmul(
        np.uint8([[3, 5]]), by, np.uint8(1), np.array([[2], [-1]], kind), by, zero, by, np.int8(1)
    )
    assert found.tolist() == [[1]]


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_scales_of_16_bits(kind):
    a, b = whole(np.uint8, 20, 50), whole(np.uint8, 50, 30)
    by, zero = [np.asarray(v, kind) for v in (0.01, 0.02, 0.3)], np.uint8(117)
    wanted = requantized(product(a, b, 117, 117), np.float32(by[0]) * np.float32(by[1]) / np.float32(by[2]), zero)
    same(at_opset("QLinearMatMul", 21, a, by[0], zero, b, by[1], zero, by[2], zero)[0], wanted)


def test_vmap_export_and_x64(x64):
    a, b, zero = whole(np.uint8, 3, 4, 50), whole(np.int8, 50, 6), whole(np.int8, 6)
    wanted = jo.matmul_integer(a, b, np.uint8(7), zero)
    same(wanted, product(a, b, 7, zero.astype(np.int64)).astype(np.int32))
    same(jax.vmap(lambda v: jo.matmul_integer(v, b, np.uint8(7), zero))(a), np.asarray(wanted))
    made = export(jax.jit(lambda v: jo.matmul_integer(v, b, np.uint8(7), zero)))
    (spec,) = symbolic_args_specs([jnp.asarray(a)], ["n, m, 50"])
    same(made(spec).call(a), np.asarray(wanted))
    by, rest = RNG.uniform(0.001, 0.01, 6).astype(np.float32), (np.float32(0.02), np.uint8(5))
    fn = jax.jit(lambda v: jo.qlinear_matmul(v, np.float32(0.1), np.uint8(7), b, by, zero, *rest))
    same(export(fn)(spec).call(a), np.asarray(fn(a)))
    same(fn(a), requantized(np.asarray(wanted), np.float32(0.1) * by / np.float32(0.02), np.uint8(5)))


def test_a_wrong_zero_point_is_caught():
    a, b = whole(np.uint8, 3, 4), whole(np.uint8, 4, 3)
    with pytest.raises(AssertionError, match="differ"):
        same(jo.matmul_integer(a, b, np.uint8(1)), product(a, b, 0, 1).astype(np.int32))


A, B, S, Z = np.ones((2, 3), np.uint8), np.ones((3, 4), np.uint8), np.float32(1), np.uint8(0)
ERRORS = [
    (lambda: jo.matmul_integer(A, A), ShapeError, r"matmul_integer: a of \(2, 3\) and b of \(2, 3\) do not fit"),
    (lambda: jo.matmul_integer(A.astype("i4"), B), DTypeError, "`a` is int32; it must be of type int8, uint8"),
    (lambda: jo.matmul_integer(A, B, np.int8(1)), DTypeError, "`a_zero_point` is int8; it must be uint8, as `a` is"),
    (lambda: jo.matmul_integer(A, B, None, np.int8(1)), DTypeError, "`b_zero_point` is int8; it must be uint8, as `b`"),
    (
        lambda: jo.matmul_integer(A, B, np.ones(3, "u1")),
        ShapeError,
        r"`a_zero_point` of \(3,\) does not fit the matrix of \(2, 3\); it must be a scalar, or \(2,\) or \(2, 1\)",
    ),
    (
        lambda: jo.matmul_integer(A, B, None, np.ones((3, 1), "u1")),
        ShapeError,
        r"`b_zero_point` of \(3, 1\) does not fit the matrix of \(3, 4\); it must be a scalar, or \(4,\) or \(1, 4\)",
    ),
    (lambda: jo.matmul_integer(A[0], B, np.ones(3, "u1")), ShapeError, "a scalar, or one element, as there is one ax"),
    (lambda: jo.qlinear_matmul(A, S, Z, B, S, Z, np.ones(4, "f4"), Z), ShapeError, r"`y_scale` of \(4,\) must be a s"),
    (lambda: jo.qlinear_matmul(A, S, Z, B, S, Z, S, np.ones(4, "u1")), ShapeError, "`y_zero_point` of .* a scalar"),
    (lambda: jo.qlinear_matmul(A, S, Z, B, np.int8(1), Z, S, Z), DTypeError, "`b_scale` is int8; it must be floating"),
    (lambda: jo.qlinear_matmul(A, S, Z, B, S, Z, S, np.int16(0)), DTypeError, "`y_zero_point` is int16; it must be of"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
