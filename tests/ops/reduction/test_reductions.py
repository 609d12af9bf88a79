"""Reductions, running sums and products of matrices: values by NumPy, static and traced, every version, errors."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_shape

import jaxops.onnx
from jaxops import ops
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, SignatureError, StaticError
from jaxops.shapes.math import linear_algebra

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4)).astype(np.float32)
BIG = 2**53 + 1  # not a float64


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


FORMULAS = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "l1": lambda x, **k: np.sum(np.abs(x), **k),
    "l2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "log_sum": lambda x, **k: np.log(np.sum(x, **k)),
    "log_sum_exp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "sum_square": lambda x, **k: np.sum(x * x, **k),
}


def reducer(name: str) -> Any:
    return getattr(ops, f"reduce_{name}")


def data(name: str) -> np.ndarray:
    return np.abs(X) if name == "log_sum" else X


@pytest.mark.grid
@pytest.mark.parametrize("axes", [None, (), (0,), (-1, 0), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("name", FORMULAS)
def test_reduce(name: str, keepdims: int, axes: tuple[int, ...] | None) -> None:
    x, over = data(name), tuple(axes) if axes else (0, 1, 2)
    expected = FORMULAS[name](x.astype(np.float64), axis=over, keepdims=bool(keepdims))
    static = reducer(name)(x, axes, keepdims=keepdims)
    assert isinstance(static, np.ndarray)
    reduce = lambda v: reducer(name)(v, axes, keepdims=keepdims)  # noqa: E731
    for found in (static, reduce(jnp.asarray(x)), jax.jit(reduce)(x), jax.vmap(reduce)(x[None])[0]):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, strict=False)
        assert found.shape == expected.shape
    assert np.isfinite(jax.grad(lambda v: reduce(v).sum())(jnp.asarray(x))).all()


@pytest.mark.parametrize("axes", [None, (), np.zeros(0, np.int64)])
@pytest.mark.parametrize("name", FORMULAS)
def test_no_axes_are_no_reduction_on_request(name: str, axes: Any) -> None:
    x = data(name)
    expected = FORMULAS[name](x.astype(np.float64), axis=())
    for v in (x, jnp.asarray(x)):
        np.testing.assert_allclose(reducer(name)(v, axes, noop_with_empty_axes=1), expected, rtol=1e-5)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", [np.int32, np.float16, jnp.bfloat16])
def test_other_types(name: str, dtype: Any) -> None:
    x = np.array([[1, 2, 3], [4, 1, 2]]).astype(dtype)
    expected = FORMULAS[name](x.astype(np.float64), axis=1, keepdims=True)
    for v in (x, jnp.asarray(x)):
        found = reducer(name)(v, (1,))
        assert found.dtype == dtype
        wanted = np.trunc(expected) if dtype is np.int32 else expected
        np.testing.assert_allclose(np.asarray(found).astype(np.float64), wanted, rtol=1e-2)


@pytest.mark.parametrize("name", FORMULAS)
def test_rank_0_and_empty(name: str) -> None:
    empties = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "l1": 0, "l2": 0, "sum_square": 0, "mean": np.nan}
    for as_array in (np.asarray, jnp.asarray):
        scalar = reducer(name)(as_array(np.float32(2)))
        np.testing.assert_allclose(scalar, FORMULAS[name](np.float32(2)), rtol=1e-6)
        found = reducer(name)(as_array(np.zeros((2, 0), np.float32)), (1,))
        np.testing.assert_array_equal(found, np.full((2, 1), empties.get(name, -np.inf)))


def test_limits() -> None:
    for as_array in (np.asarray, jnp.asarray):
        none = as_array(np.zeros((0, 1), np.int32))
        assert ops.reduce_max(none, (0,), keepdims=0) == -(2**31)
        assert ops.reduce_min(none, (0,), keepdims=0) == 2**31 - 1
        assert ops.reduce_mean(none, (0,), keepdims=0) == 0
        flags = as_array(np.array([True, False]))
        assert ops.reduce_max(flags, keepdims=0)
        assert not ops.reduce_min(flags, keepdims=0)
        far = as_array(np.float32([1000, 1000]))
        assert ops.reduce_log_sum_exp(far) == pytest.approx(1000 + np.log(2))
        lowest = as_array(np.float32([-np.inf, -np.inf]))
        assert ops.reduce_log_sum_exp(lowest, keepdims=0) == -np.inf
        halves = as_array(np.full(70000, 0.5, np.float16))
        assert ops.reduce_sum(halves, keepdims=0) == 35008  # the float16 next to 35000
        assert ops.reduce_mean(as_array(np.int32([-3, -4])), keepdims=0) == -3  # toward zero
    assert ops.reduce_sum(np.array([BIG, 1]), keepdims=0) == BIG + 1
    assert ops.reduce_max(np.array([BIG, 1]), keepdims=0) == BIG


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("count", [1, 2, 3, 300, 70000])
def test_mean_of_integers_does_not_overflow(count: int, dtype: Any, x64: None) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = RNG.integers(low, high, (count, 4), dtype, endpoint=True)
    x[:, 0], x[:, 1] = low, high
    totals = [sum(map(int, column)) for column in x.T]
    expected = [abs(total) // count * (1 if total >= 0 else -1) for total in totals]
    for as_array in (np.asarray, jnp.asarray):
        found = ops.reduce_mean(as_array(x), (0,), keepdims=0)
        assert found.dtype == dtype
        assert found.tolist() == expected


def test_symbolic_sizes() -> None:
    b, s = symbolic_shape("b, s")
    sizes = np.array([b, 6], dtype=object)
    assert ops.reduce_prod(sizes, keepdims=0).item() == 6 * b
    assert ops.reduce_sum(sizes, keepdims=0).item() == b + 6
    assert ops.reduce_max(sizes, keepdims=0).item() == b.max(6)
    assert ops.reduce_min(sizes, keepdims=0).item() == b.min(6)
    assert list(ops.cumsum(sizes, 0)) == [b, b + 6]
    for name, formula in FORMULAS.items():
        program = export(jax.jit(reducer(name)))(jax.ShapeDtypeStruct((b, s, 4), np.float32))
        np.testing.assert_allclose(program.call(data(name)), formula(data(name), keepdims=True), rtol=1e-5)
    whole = export(jax.jit(ops.reduce_mean))(jax.ShapeDtypeStruct((b, s), np.int32))
    np.testing.assert_array_equal(whole.call(np.full((2, 3), 2**31 - 1, np.int32)), [[2**31 - 1]])
    last = export(jax.jit(lambda x: ops.arg_max(x, axis=1, select_last_index=1)))
    program = last(jax.ShapeDtypeStruct((b, s), np.float32))
    np.testing.assert_array_equal(program.call(np.float32([[1, 3, 3]])), [[2]])


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_arg_max_and_arg_min(keepdims: int, last: int) -> None:
    x = np.float32([[3, 1, 3, 1], [5, 5, 5, 5]])
    attributes = {"axis": -1, "keepdims": keepdims, "select_last_index": last}
    for fn, place in ((ops.arg_max, [2, 3] if last else [0, 0]), (ops.arg_min, [3, 3] if last else [1, 0])):
        wanted = np.reshape(place, (2, 1) if keepdims else (2,))
        found = fn(x, **attributes)
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.int64
        traced = jax.jit(lambda v, fn=fn: fn(v, **attributes))(x)
        for v in (found, traced, fn(jnp.asarray(x), **attributes)):
            np.testing.assert_array_equal(v, wanted)
        with jax.enable_x64(True):
            assert fn(jnp.asarray(x)).dtype == np.int64


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running(exclusive: int, reverse: int) -> None:
    for fn, start, combine in ((ops.cumsum, 0, np.add), (ops.cumprod, 1, np.multiply)):
        x = np.float32([[2, 3, 4], [5, 6, 7]])
        line = np.flip(x, 1) if reverse else x
        line = np.concatenate([np.full((2, 1), start), line[:, :-1]], 1) if exclusive else line
        wanted = combine.accumulate(line, axis=1)
        wanted = np.flip(wanted, 1) if reverse else wanted
        attributes = {"exclusive": exclusive, "reverse": reverse}
        for v in (x, jnp.asarray(x), x.astype(np.float16), jnp.asarray(x, jnp.bfloat16), x.astype(np.int64)):
            found = fn(v, np.array(-1), **attributes)
            assert found.dtype == v.dtype
            np.testing.assert_array_equal(np.asarray(found).astype(np.float64), wanted)
        assert fn(x[:, :0], 1, **attributes).shape == fn(jnp.asarray(x[:, :0]), 1, **attributes).shape == (2, 0)
        np.testing.assert_allclose(jax.jit(partial(fn, axis=1, **attributes))(x), wanted)


A, B, C = f32(2, 3), f32(3, 4), f32(4)


@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(
    "c", [None, C, f32(2, 1), f32(2, 4), np.float32(3)], ids=["none", "row", "column", "full", "0d"]
)
def test_gemm(c: Any, trans: tuple[int, int]) -> None:
    a, b = (A.T if trans[0] else A), (B.T if trans[1] else B)
    expected = 0.5 * (A @ B) + (0 if c is None else 2 * c)
    gemm = lambda a, b: ops.gemm(a, b, c, alpha=0.5, beta=2.0, transA=trans[0], transB=trans[1])  # noqa: E731
    for found in (gemm(a, b), jax.jit(gemm)(a, b), jax.vmap(gemm)(a[None], b[None])[0]):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_gemm_of_other_types() -> None:
    i = np.array([[1, 2], [3, 4]], np.int32)
    np.testing.assert_array_equal(ops.gemm(i, i, i, alpha=2.0), 2 * i @ i + i)
    np.testing.assert_array_equal(ops.gemm(i, i, alpha=0.5), (i @ i) // 2)
    assert ops.gemm(i.astype(jnp.bfloat16), i.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    wide = ops.gemm(jnp.ones((1, 4096), jnp.float16), jnp.ones((4096, 1), jnp.float16) * jnp.float16(0.5))
    assert wide == 2048
    primitives = [str(e.primitive) for e in jax.make_jaxpr(lambda a, b: ops.gemm(a, b, transB=1))(A, B.T).eqns]
    assert primitives == ["dot_general"]
    assert np.isfinite(ops.gemm(A, B, np.full(4, np.nan, np.float32), beta=0.0)).all()


@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3), (3, 4)), ((3,), (3,)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((5, 1, 2, 3), (4, 3, 6)), ((0, 3), (3, 4))],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = f32(*a), f32(*b)
    expected = np.matmul(x, y)
    assert linear_algebra.matmul(a, b) == expected.shape
    for found in (ops.matmul(x, y), jax.jit(ops.matmul)(x, y)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with jax.enable_x64(True):
        assert ops.matmul(x.astype(np.float64), y.astype(np.float64)).dtype == np.float64


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij, jk", [(2, 3), (3, 4)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("ba", [(2, 3)]),
    ("aB", [(2, 3)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("...i,...i", [(5, 1, 3), (4, 3)]),
    ("i,j->", [(2,), (3,)]),
    ("i...->...", [(2, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [f32(*s) for s in shapes]
    expected = np.einsum(equation, *inputs)
    found = ops.einsum(inputs, equation=equation)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    small = ops.einsum([x.astype(jnp.bfloat16) for x in inputs], equation=equation)
    assert small.dtype == jnp.bfloat16
    assert small.shape == expected.shape


def test_det() -> None:
    x = f32(5, 3, 3)
    np.testing.assert_allclose(ops.det(x), np.linalg.det(x.astype(np.float64)), rtol=1e-4)
    assert ops.det(x.astype(np.float16)).dtype == np.float16


def test_symbolic_products() -> None:
    (b,) = symbolic_shape("b")
    for fn, x, y in (
        (ops.matmul, f32(2, 3), f32(5, 3, 4)),
        (lambda a, b: ops.gemm(a, b, C), f32(2, 3), f32(3, 4)),
        (lambda a, b: ops.einsum([a, b], equation="bi,ij->bj"), f32(2, 3), f32(3, 4)),
    ):
        program = export(jax.jit(fn))(jax.ShapeDtypeStruct((b, 3), np.float32), jax.ShapeDtypeStruct(y.shape, y.dtype))
        np.testing.assert_allclose(program.call(x, y), fn(x, y), rtol=1e-5)
    assert linear_algebra.matmul((b, 2, 3), (3, b)) == (b, 2, b)


ERRORS = [
    (ops.reduce_sum, [X, (3,)], {}, AxisError, r"reduce_sum: `axes` is 3, but the operand has 3 axes"),
    (ops.reduce_sum, [X, (0, -3)], {}, AxisError, "reduce_sum: `axes` names an axis twice"),
    (ops.reduce_sum, [X], {"keepdims": 2}, ArgumentError, "reduce_sum: `keepdims` is 2; it must be 0 or 1"),
    (ops.arg_max, [X], {"axis": 3}, AxisError, "arg_max: `axis` is 3"),
    (ops.arg_max, [X[:0]], {}, ArgumentError, "arg_max: axis 0 has size 0; it must have at least one"),
    (ops.cumsum, [X, 3], {}, AxisError, "cumsum: `axis` is 3"),
    (
        ops.gemm,
        [A, A],
        {},
        ShapeError,
        r"gemm: a of \(2, 3\) \(transA=0\) and b .* do not fit: 3 columns against 2",
    ),
    (ops.gemm, [X, B], {}, ShapeError, r"gemm: `a` must be a matrix, got \(2, 3, 4\)"),
    (
        ops.gemm,
        [A, B, f32(1, 2, 4)],
        {},
        ShapeError,
        r"`c` of \(1, 2, 4\) must broadcast to \(2, 4\), not extend it",
    ),
    (ops.gemm, [A, B, f32(3)], {}, ShapeError, r"gemm: shapes \(2, 4\) and \(3,\) do not broadcast"),
    (ops.gemm, [A, B.astype(np.int32)], {}, DTypeError, "gemm: operands must have one element type"),
    (ops.matmul, [A, A], {}, ShapeError, r"matmul: a of \(2, 3\) and b of \(2, 3\) do not fit: 3 columns against 2"),
    (ops.matmul, [A, np.float32(1)], {}, ShapeError, "matmul: `b` is a scalar; both need at least one axis"),
    (ops.einsum, [[A, B]], {"equation": "ij->i"}, ArgumentError, "'ij->i' has 1 term for 2 operands"),
    (ops.einsum, [[A]], {"equation": "ijk"}, ShapeError, r"term 'ijk' of 'ijk' does not fit operand 0 of \(2, 3\)"),
    (ops.einsum, [[A, A]], {"equation": "ij,jk"}, ShapeError, "'j' of 'ij,jk' has the sizes 3 and 2"),
    (ops.einsum, [[A]], {"equation": "i1"}, ArgumentError, "term 'i1' of 'i1' may only have letters and one '...'"),
    (ops.einsum, [[A]], {"equation": "ij->k"}, ArgumentError, "the output 'k' of 'ij->k' may hold letters of the"),
    (ops.einsum, [[]], {"equation": ""}, SignatureError, "einsum: there are no operands"),
    (ops.det, [A], {}, ShapeError, r"det: the last two sizes of `x` must be equal, got \(2, 3\)"),
]


@pytest.mark.parametrize(("fn", "inputs", "attributes", "error", "match"), ERRORS)
def test_error(fn: Any, inputs: list[Any], attributes: dict[str, Any], error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        fn(*inputs, **attributes)


def test_arg_max_needs_a_size_that_is_not_0() -> None:
    spec = jax.ShapeDtypeStruct(symbolic_shape("b - 1"), np.float32)
    with pytest.raises(ShapeError, match=r"arg_max: axis 0 of \(b - 1,\) may be empty\n  hint    export with sizes="):
        export(jax.jit(ops.arg_max))(spec)
    sizes = symbolic_shape("b - 1", constraints=["b >= 2"])
    assert export(jax.jit(ops.arg_max))(jax.ShapeDtypeStruct(sizes, np.float32)).call(X[0, 0]) == X[0, 0].argmax()


def test_axes_must_be_known() -> None:
    for fn, name in ((ops.reduce_sum, "axes"), (ops.cumsum, "axis")):
        with pytest.raises(StaticError, match=f"`{name}` must be known while tracing"):
            jax.jit(fn)(X, np.array([0]))


NAMES = ["Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


@pytest.mark.parametrize(("name", "formula"), list(zip(NAMES, FORMULAS, strict=True)))
@pytest.mark.parametrize("opset", [1, 11, 12, 13, 17, 18, 20, 25])
def test_axes_moved_from_attribute_to_operand(name: str, formula: str, opset: int) -> None:
    x = data(formula)
    op = getattr(jaxops.onnx.opset(opset), f"Reduce{name}")
    expected = FORMULAS[formula](x.astype(np.float64), axis=(1,))
    operand = opset >= (13 if name == "Sum" else 18)
    found = op(x, np.array([1]), keepdims=0) if operand else op(x, axes=(1,), keepdims=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(op(x), FORMULAS[formula](x.astype(np.float64), keepdims=True), rtol=1e-5)
    if not operand:
        with pytest.raises(SignatureError, match="unknown attribute `noop_with_empty_axes`"):
            op(x, noop_with_empty_axes=1)


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 11, 13])
def test_gemm_versions(opset: int) -> None:
    gemm = jaxops.onnx.opset(opset).Gemm
    full = f32(2, 4)
    np.testing.assert_allclose(gemm(A, B.T, full, transB=1, alpha=2.0), 2 * A @ B + full, rtol=1e-5, atol=1e-6)
    if opset < 7:
        np.testing.assert_allclose(gemm(A, B, C, broadcast=1), A @ B + C, rtol=1e-5, atol=1e-6)
        with pytest.raises(ShapeError, match=r"operands of \(2, 4\) and \(4,\) must have one shape .*broadcast=1"):
            gemm(A, B, C)
    else:
        np.testing.assert_allclose(gemm(A, B, C), A @ B + C, rtol=1e-5, atol=1e-6)
    if opset < 11:
        with pytest.raises(SignatureError, match="input 2 `C` is missing"):
            gemm(A, B)
    else:
        np.testing.assert_allclose(gemm(A, B), A @ B, rtol=1e-5, atol=1e-6)


def test_the_harness_finds_a_wrong_operator() -> None:
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(ops.reduce_l1(X), FORMULAS["sum"](X, keepdims=True), rtol=1e-5)
