"""One-hot, top-k and the operators whose size depends on the data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_shape

from jaxops import ops
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, StaticError

X = np.float32([[3, 9, 9, 1], [2, -1, 2, 7]])
ROW = np.array([2, 1, 1, 3, 4, 3])


def best(x: np.ndarray, k: int, axis: int, largest: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-x.astype(np.float64) if largest else x, axis=axis, kind="stable").take(range(k), axis)
    return np.take_along_axis(x, order, axis), order


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8, np.uint8])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("k", "axis"), [(2, -1), (4, 1), (0, 1), (1, 0)])
def test_top_k(dtype: Any, largest: int, k: int, axis: int) -> None:
    x = np.abs(X).astype(dtype) if np.dtype(dtype).kind == "u" else X.astype(dtype)
    values, order = best(x, k, axis, largest)
    for run in (ops.top_k, jax.jit(ops.top_k, static_argnums=1, static_argnames=("axis", "largest"))):
        found, places = run(x, k, axis=axis, largest=largest)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, values)
        np.testing.assert_array_equal(places, order)


def test_top_k_smallest_of_extremes() -> None:
    for dtype in (np.int32, np.uint8):
        limits = np.iinfo(dtype)
        values, _ = ops.top_k(np.array([limits.max, limits.min], dtype), np.array([1]), largest=0)
        assert values.tolist() == [limits.min]


@pytest.mark.parametrize("run", [ops.top_k, jax.jit(ops.top_k, static_argnums=1, static_argnames="largest")])
def test_top_k_of_zeros_and_nans(run: Any) -> None:
    """Both zeros are equal, and NaN, whatever its sign, counts as infinity; equal elements keep their order."""
    x = np.array([-0.0, 0.0, np.nan, -np.inf, 0.0, -0.0, -np.nan, np.inf], np.float32)
    values, indices = run(x, 8)
    assert indices.tolist() == [2, 6, 7, 0, 1, 4, 5, 3]
    assert np.asarray(values).tobytes() == x[np.asarray(indices)].tobytes()
    values, indices = run(x, 8, largest=0)
    assert indices.tolist() == [3, 0, 1, 4, 5, 2, 6, 7]
    assert np.asarray(values).tobytes() == x[np.asarray(indices)].tobytes()


def test_top_k_types_and_gradient() -> None:
    with jax.enable_x64(True):
        assert ops.top_k(X, 1)[1].dtype == np.int64
    assert jax.grad(lambda x: ops.top_k(x, 1, largest=0)[0].sum())(X).tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    spec = jax.ShapeDtypeStruct(symbolic_shape("b, 4"), np.float32)
    values, _ = export(jax.jit(lambda x: ops.top_k(x, 2)))(spec).call(X)
    assert values.tolist() == [[9, 9], [7, 2]]


@pytest.mark.parametrize("axis", [-1, 0, 1, -3])
@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.uint8, np.int8])
def test_one_hot(axis: int, dtype: Any) -> None:
    i = np.array([[0, 2, 5], [1, 1, 0]], dtype)
    expected = np.moveaxis(np.where(i[..., None] == np.arange(3), 5, 4), -1, axis)
    runs = (ops.one_hot, jax.jit(ops.one_hot, static_argnums=1, static_argnames="axis"))
    for run in runs:
        np.testing.assert_array_equal(run(i, 3, np.float32([4, 5]), axis=axis), expected)


def test_one_hot_details() -> None:
    values = np.array([0, 1])
    assert ops.one_hot(np.array([-1, -4, 3]), np.float32([3.0]), values).tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert ops.one_hot(jnp.array(200, jnp.uint8), 300, jnp.array([0, 1])).argmax() == 200
    for xp in (np, jnp):
        assert not ops.one_hot(xp.array([2**32 - 1], np.uint32), 3, xp.array([0, 1])).any()
        assert ops.one_hot(xp.array([-1], np.int8), 300, xp.array([0, 1])).argmax() == 299
        with jax.enable_x64(True):
            assert not ops.one_hot(xp.array([2**64 - 1], np.uint64), 3, xp.array([0, 1])).any()
    assert ops.one_hot(np.array([1.9, -0.5]), 2, values).tolist() == [[0, 1], [1, 0]]
    assert at_opset("OneHot", 9, np.array([-1, 1]), np.int64(2), values)[0].tolist() == [[0, 0], [0, 1]]
    for opset in (11, 28):
        assert at_opset("OneHot", opset, np.array([-1, 1]), np.int64(2), values)[0].tolist() == [[0, 1], [0, 1]]
    (b,) = symbolic_shape("b")
    spec = jax.ShapeDtypeStruct((b,), np.int32)
    run = export(jax.jit(lambda i: ops.one_hot(i, i.shape[0], jnp.array([0, 1]))))(spec)
    assert run.call(np.int32([1, -2])).tolist() == [[0, 1], [1, 0]]


CONDITION = np.array([False, True, True])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis: int | None) -> None:
    condition = CONDITION[:2] if axis == 0 else CONDITION
    expected = np.compress(condition, X, axis)
    np.testing.assert_array_equal(ops.compress(X, condition, axis=axis), expected)
    np.testing.assert_array_equal(ops.compress(jnp.asarray(X), jnp.asarray(condition), axis=axis), expected)
    np.testing.assert_array_equal(jax.jit(lambda x: ops.compress(x, condition, axis=axis))(X), expected)
    bounded = jax.jit(lambda x, c: ops.compress(x, c, axis=axis, size=4))(X, condition)
    keep = expected.shape[axis or 0]
    np.testing.assert_array_equal(bounded.take(np.arange(keep), axis or 0), expected)
    assert (bounded.take(np.arange(keep, 4), axis or 0) == 0).all()


def test_compress_with_no_condition() -> None:
    none = jnp.zeros(0, bool)
    assert ops.compress(X, none).shape == (0,)
    assert jax.jit(lambda c: ops.compress(X, c, size=2))(none).tolist() == [0, 0]


@pytest.mark.parametrize("x", [X - 9, X > 2, np.zeros((2, 0)), np.array([0, 3])], ids=str)
def test_nonzero(x: np.ndarray) -> None:
    expected = np.stack(np.nonzero(x))
    found = ops.nonzero(x)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(ops.nonzero(jnp.asarray(x)), expected)
    bounded = jax.jit(lambda x: ops.nonzero(x, size=9))(x)
    np.testing.assert_array_equal(bounded[:, : expected.shape[1]], expected)
    assert (bounded[:, expected.shape[1] :] == -1).all()


def test_nonzero_of_a_scalar() -> None:
    assert ops.nonzero(np.array(5)).shape == (0, 1)
    assert ops.nonzero(jnp.array(0)).shape == (0, 0)
    assert jax.jit(lambda x: ops.nonzero(x, size=1))(5).shape == (0, 1)


UNIQUE = [
    ({}, ROW, [[1, 2, 3, 4], [1, 0, 3, 4], [1, 0, 0, 2, 3, 2], [2, 1, 2, 1]]),
    ({"sorted": 0}, ROW, [[2, 1, 3, 4], [0, 1, 3, 4], [0, 1, 1, 2, 3, 2], [1, 2, 2, 1]]),
    ({"axis": 0}, np.array([[1, 0], [1, 0], [2, 3]]), [[[1, 0], [2, 3]], [0, 2], [0, 0, 1], [2, 1]]),
    ({"axis": -1, "sorted": 0}, np.array([[5, 1, 5]]), [[[5, 1]], [0, 1], [0, 1, 0], [2, 1]]),
    ({"sorted": 0}, np.array([[3, 1], [1, 3]]), [[3, 1], [0, 1], [0, 1, 1, 0], [2, 2]]),
]


@pytest.mark.parametrize(("attributes", "x", "expected"), UNIQUE, ids=lambda v: str(v)[:20])
def test_unique(attributes: dict[str, Any], x: np.ndarray, expected: list[Any]) -> None:
    found = ops.unique(x, **attributes)
    assert [v.tolist() for v in found] == expected
    assert all(isinstance(v, np.ndarray) and v.dtype == np.int64 for v in found)
    assert [v.tolist() for v in ops.unique(jnp.asarray(x), **attributes)] == expected


@pytest.mark.parametrize(("rows", "axis"), [([[7.0]], None), ([[7.0, 7.0, 3.0]], 0), ([[7.0], [3.0]], -1)])
def test_unique_of_one_element_needs_no_size(rows: list[list[float]], axis: int | None) -> None:
    x = np.array(rows, np.float32)
    found = jax.jit(lambda x: ops.unique(x, axis=axis, sorted=0))(x)
    for got, expected in zip(found, ops.unique(x, axis=axis), strict=True):
        assert got.tolist() == expected.tolist()


def test_unique_of_strings_and_inside_jit() -> None:
    assert ops.unique(np.array(["b", "a", "b"], object))[0].tolist() == ["a", "b"]
    y, first, inverse, counts = jax.jit(lambda x: ops.unique(x, size=5))(ROW)
    assert (y[:4].tolist(), first[:4].tolist()) == ([1, 2, 3, 4], [1, 0, 3, 4])
    assert (inverse.tolist(), counts.tolist()) == ([1, 0, 0, 2, 3, 2], [2, 1, 2, 1, 0])


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, bool, ml_dtypes.int4])
def test_unique_of_a_fixed_size_in_the_order_of_appearance(axis: int | None, dtype: Any) -> None:
    x = np.array([[3, 1, 3, 2], [1, 0, 1, 2], [3, 1, 3, 2]]).astype(dtype)
    expected = ops.unique(x, axis=axis, sorted=0)
    number = expected[0].shape[axis or 0]
    y, first, inverse, counts = jax.jit(lambda x: ops.unique(x, axis=axis, sorted=0, size=number + 2))(x)
    along = axis or 0
    np.testing.assert_array_equal(np.take(np.asarray(y), range(number), along), expected[0])
    assert y.shape[along] == len(first) == len(counts) == number + 2
    assert (first[:number].tolist(), inverse.tolist()) == (expected[1].tolist(), expected[2].tolist())
    assert counts.tolist() == [*expected[3].tolist(), 0, 0]
    cut = jax.jit(lambda x: ops.unique(x, axis=axis, sorted=0, size=1))(x)
    assert cut[0].shape[along] == len(cut[1]) == len(cut[3]) == 1


def test_versions() -> None:
    values, indices = at_opset("TopK", 1, X, k=1, n_outputs=2)
    assert (values.tolist(), indices.tolist()) == ([[9], [7]], [[1], [3]])
    assert at_opset("TopK", 10, X, np.array([1]), axis=0, n_outputs=2)[1].tolist() == [[0, 0, 0, 1]]
    for opset in (11, 24):
        assert at_opset("TopK", opset, X, np.array([1]), largest=0, n_outputs=2)[0].tolist() == [[1], [-1]]
    for opset in (9, 11, 28):
        np.testing.assert_array_equal(at_opset("Compress", opset, X, CONDITION, axis=1)[0], X[:, 1:3])


def test_a_wrong_operator_is_caught() -> None:
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(ops.top_k(X, 2, largest=0)[0], best(X, 2, -1, 1)[0])


ERRORS = [
    (lambda: ops.top_k(X, 5), ShapeError, r"`k` is 5, but axis 1 of \(2, 4\) has 4 elements"),
    (lambda: ops.top_k(X, -1), ShapeError, "`k` is -1"),
    (lambda: ops.top_k(X > 0, 1), DTypeError, "top_k: operands must be real numbers, got bool"),
    (lambda: ops.top_k(X, 1, axis=2), AxisError, "`axis` is 2"),
    (lambda: ops.top_k(X, 1, sorted=2), ArgumentError, "`sorted` is 2"),
    (lambda: jax.jit(ops.top_k)(X, 1), StaticError, "`k` must be known"),
    (lambda: at_opset("TopK", 10, X, np.int64(1), n_outputs=2), ShapeError, "`k` must be a vector of one integer"),
    (lambda: ops.one_hot(ROW, 3, X), ShapeError, "`values` must hold two elements"),
    (lambda: ops.one_hot(ROW, -1, X[0, :2]), ArgumentError, "`depth` is -1"),
    (lambda: ops.one_hot(ROW, 3, X[0, :2], axis=2), AxisError, "`axis` is 2"),
    (
        lambda: at_opset("OneHot", 9, ROW, np.int64(3), X[0, :2], axis=-2),
        AxisError,
        "before opset 11 it must be -1 or more",
    ),
    (lambda: ops.compress(X, X[0]), DTypeError, "`condition` must be a vector of booleans"),
    (lambda: ops.compress(X, CONDITION, axis=0), ShapeError, "`condition` has 3 entries, more than axis 0"),
    (
        lambda: jax.jit(lambda c: ops.compress(X, c, axis=1))(CONDITION),
        StaticError,
        "depends on `condition`, which is traced",
    ),
    (
        lambda: jax.jit(ops.nonzero)(X),
        StaticError,
        r"outside `jax.jit`, as a loaded model does in `model\(…\)`, or give `size`: nonzero\(…, size=n\)",
    ),
    (lambda: jax.jit(ops.unique)(X), StaticError, "unique: the size of the result depends on `x`"),
    (lambda: ops.unique(X, axis=2), AxisError, "`axis` is 2"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for _, _, m in ERRORS])
def test_error(call: Callable[[], Any], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        call()
