"""Gather and scatter by index: values from loops that spell the standard's text out, bounds, errors."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset, model
from jax.export import export, symbolic_shape

from jaxops import ops
from jaxops.errors import ArgumentError, AxisError, BoundsError, DTypeError, ShapeError
from jaxops.onnx import load

RNG = np.random.default_rng(1)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)
COMBINE = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def index(low: int, high: int, *shape: int) -> np.ndarray:
    return RNG.integers(low, high, shape)


def gather_elements(x: np.ndarray, i: np.ndarray, axis: int) -> np.ndarray:
    out = np.empty(i.shape, x.dtype)
    for at in np.ndindex(i.shape):
        out[at] = x[(*at[:axis], i[at], *at[axis + 1 :])]
    return out


def scatter_elements(x: np.ndarray, i: np.ndarray, u: np.ndarray, axis: int, how: str) -> np.ndarray:
    out = x.copy()
    for at in np.ndindex(i.shape):
        place = (*at[:axis], i[at], *at[axis + 1 :])
        out[place] = COMBINE[how](out[place], u[at])
    return out


def gather_nd(x: np.ndarray, i: np.ndarray, batch: int) -> np.ndarray:
    places = i.shape[:-1]
    flat = [x[(*at[:batch], *map(int, i[at]))] for at in np.ndindex(places)]
    return np.array(flat).reshape(places + x.shape[batch + i.shape[-1] :])


def scatter_nd(x: np.ndarray, i: np.ndarray, u: np.ndarray, how: str) -> np.ndarray:
    out = x.copy()
    for at in np.ndindex(i.shape[:-1]):
        place = tuple(map(int, i[at]))
        out[place] = COMBINE[how](out[place], u[at])
    return out


CASES: list[tuple[str, Callable[..., Any], list[np.ndarray], np.ndarray]] = []


def case(name: str, fn: Callable[..., Any], inputs: list[np.ndarray], expected: np.ndarray) -> None:
    CASES.append((name, fn, inputs, expected))


for axis, shape in ((0, (2, 4, 5)), (1, (3, 6, 5)), (2, (2, 3, 7))):
    i = index(-X.shape[axis], X.shape[axis], *shape)
    case(
        f"gather_elements/{axis}",
        lambda x, i, a=axis: ops.gather_elements(x, i, axis=a),
        [X, i],
        gather_elements(X, i, axis),
    )
    u = RNG.normal(size=shape).astype(np.float32)
    for how in ("add", "mul", "max", "min"):
        case(
            f"scatter_elements/{axis}/{how}",
            lambda x, i, u, a=axis, h=how: ops.scatter_elements(x, i, u, axis=a - 3, reduction=h),
            [X, i, u],
            scatter_elements(X, i, u, axis, how),
        )
distinct = np.argsort(RNG.normal(size=(3, 4, 5)), axis=1)[:2, :3, :]
u = RNG.normal(size=distinct.shape).astype(np.float32)
case(
    "scatter_elements/none",
    lambda x, i, u: ops.scatter_elements(x, i, u, axis=1),
    [X, distinct, u],
    scatter_elements(X, distinct, u, 1, "none"),
)
for batch, length in ((0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 1)):
    i = index(-3, 3, *X.shape[:batch], 4, length)
    case(
        f"gather_nd/{batch}/{length}",
        lambda x, i, b=batch: ops.gather_nd(x, i, batch_dims=b),
        [X, i],
        gather_nd(X, i, batch),
    )
for length in (1, 2, 3):
    i = index(-3, 3, 2, 4, length)
    u = RNG.normal(size=(2, 4, *X.shape[length:])).astype(np.float32)
    for how in ("add", "mul", "max", "min"):
        case(
            f"scatter_nd/{length}/{how}",
            lambda x, i, u, h=how: ops.scatter_nd(x, i, u, reduction=h),
            [X, i, u],
            scatter_nd(X, i, u, how),
        )
once = np.array([[0, 1], [-1, 3]])
case("scatter_nd/none", ops.scatter_nd, [X, once, X[:2, 0]], scatter_nd(X, once, X[:2, 0], "none"))
case("scatter_nd/empty", ops.scatter_nd, [X, once[:0], X[:0, 0]], X)
case("gather_nd/empty", ops.gather_nd, [X, once[:0]], X[:0, 0])
RUNS = ["static", "eager", "jit", "static indices", "vmap"]


@pytest.mark.grid
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("fn", "inputs", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_value(fn: Callable[..., Any], inputs: list[np.ndarray], expected: np.ndarray, run: str) -> None:
    x, i, *rest = inputs
    found = {
        "static": lambda: fn(*inputs),
        "eager": lambda: fn(*map(jnp.asarray, inputs)),
        "jit": lambda: jax.jit(fn)(*inputs),
        "static indices": lambda: jax.jit(lambda x, *r: fn(x, i, *r))(x, *rest),
        "vmap": lambda: jax.vmap(fn)(*(np.stack([v, v]) for v in inputs))[1],
    }[run]()
    assert isinstance(found, np.ndarray) == (run == "static")
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_wrong_operator_is_caught() -> None:
    with pytest.raises(AssertionError):
        test_value(ops.scatter_nd, [X, once, X[:2, 0]], scatter_nd(X, once, X[:2, 0], "add"), "jit")


def test_outside_while_traced() -> None:
    far = jnp.array([[7], [0]])
    assert jnp.isnan(ops.gather_nd(jnp.ones(3), far)[0])
    assert ops.scatter_nd(jnp.zeros(3), far, jnp.ones(2)).tolist() == [1, 0, 0]
    assert jnp.isnan(ops.gather_elements(jnp.ones(3), jnp.array([-4]))[0])


def test_far_outside_in_64_bits(x64: None) -> None:
    x = jnp.arange(1.0, 6)
    for far in (
        np.array([2**32, -(2**32), 2**40 + 1, -(2**63), 2**63 - 1]),
        np.array([2**32, 2**40 + 1, 2**63, 2**64 - 1], np.uint64),
    ):
        i = jnp.asarray(far)
        assert jnp.isnan(ops.gather_elements(x, i)).all()
        assert jnp.isnan(ops.gather_nd(x, i[:, None])).all()
        zeros = jnp.zeros(len(far))
        assert (ops.scatter_elements(x, i, zeros) == x).all()
        assert (ops.scatter_nd(x, i[:, None], zeros) == x).all()


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.uint64])
def test_narrow_and_unsigned_indices(dtype: Any, xp: Any, x64: None) -> None:
    last = 255 if np.iinfo(dtype).min == 0 else -1
    x, one = xp.arange(256 if last == 255 else 300, dtype=np.int32), xp.ones(1, np.int32)
    i = xp.array([last], dtype)
    assert ops.gather_elements(x, i)[0] == len(x) - 1
    assert ops.gather_nd(x, i[:, None])[0] == len(x) - 1
    assert ops.scatter_elements(x, i, one)[-1] == 1
    assert ops.scatter_nd(x, i[:, None], one)[-1] == 1


def test_the_last_of_two_updates_counts() -> None:
    for xp in (np, jnp):
        assert ops.scatter_elements(xp.zeros(2), xp.array([1, 1]), xp.array([5.0, 6.0])).tolist() == [0, 6]


def test_shape_arithmetic_stays_exact() -> None:
    found = ops.scatter_nd(np.array([2**40, 1]), np.array([[1]]), np.array([2**41]))
    assert found.dtype == np.int64
    assert found.tolist() == [2**40, 2**41]


def test_symbolic_sizes() -> None:
    spec = jax.ShapeDtypeStruct(symbolic_shape("b, n"), np.float32)
    x = X[0]
    pick = export(jax.jit(lambda x: ops.gather_elements(x, jnp.full((x.shape[0], 1), -1), axis=1)))(spec)
    np.testing.assert_array_equal(pick.call(x), x[:, -1:])
    put = export(jax.jit(lambda x: ops.scatter_nd(x, jnp.array([[0, -1]]), jnp.ones(1))))(spec)
    assert put.call(x)[0, -1] == 1


def test_gradients() -> None:
    i = np.array([[0, 1], [2, 3]])
    jax.test_util.check_grads(lambda x: ops.gather_nd(x, i), (X,), order=1, modes=["rev"], atol=1e-2, rtol=1e-2)
    put = lambda x, u: ops.scatter_nd(x, jnp.asarray(i), u, reduction="add")  # noqa: E731
    jax.test_util.check_grads(put, (X, X[:2, 0]), order=1, modes=["rev"], atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("node", ['ScatterND<reduction = "mul">', 'ScatterElements<reduction = "mul">'])
def test_a_model_with_products_for_every_platform(node: str) -> None:
    text = f"main (float[4,1] x, int64[2,1] at, float[2,1] by) => (float[4,1] y) {{ y = {node}(x, at, by) }}"
    net, x, at, by = load(model(text)), np.ones((4, 1), np.float32), np.array([[1], [3]]), np.float32([[2], [3]])
    exported = net.export(platforms=["cpu", "cuda", "tpu"])
    np.testing.assert_array_equal(exported.call({}, x, at.astype(np.int32), by), [[1], [2], [1], [3]])


def test_tensor_scatter() -> None:
    cache, update = X, RNG.normal(size=(3, 2, 5)).astype(np.float32)
    for mode, first in (("linear", [0, 2, 1]), ("circular", [3, 6, 1])):
        expected = cache.copy()
        for b, s in np.ndindex(3, 2):
            expected[b, (first[b] + s) % 4] = update[b, s]
        run = jax.jit(lambda c, u, i, m=mode: ops.tensor_scatter(c, u, i, mode=m))
        np.testing.assert_array_equal(run(cache, update, np.array(first)), expected)
    np.testing.assert_array_equal(ops.tensor_scatter(cache, update)[:, :2], update)


def test_tensor_scatter_at_an_index_of_a_type_that_does_not_hold_the_size() -> None:
    for kind, first in ((np.int8, 120), (np.uint8, 250)):
        for mode, size in (("linear", first + 20), ("circular", 300)):
            put = ops.tensor_scatter(
                jnp.zeros((1, size)), jnp.ones((1, 60)), jnp.array([first], kind), axis=1, mode=mode
            )
            expected = np.arange(first, first + 60)
            expected = expected[expected < size] if mode == "linear" else expected % size
            np.testing.assert_array_equal(np.flatnonzero(put), np.sort(expected))


def test_versions() -> None:
    row, place, value = np.zeros(3, np.float32), np.array([1]), np.float32([5])
    for op, opset in (("Scatter", 9), ("Scatter", 10), *(("ScatterElements", n) for n in (11, 13, 16, 18))):
        assert at_opset(op, opset, row, place, value)[0].tolist() == [0, 5, 0]
    for opset in (11, 13, 16, 18):
        assert at_opset("ScatterND", opset, row, place[:, None], value)[0].tolist() == [0, 5, 0]
    assert at_opset("ScatterElements", 18, row + 9, place, value, reduction="min")[0].tolist() == [9, 5, 9]
    assert at_opset("ScatterND", 16, row + 9, place[:, None], value, reduction="add")[0].tolist() == [9, 14, 9]
    for op, i in (("ScatterElements", place), ("ScatterND", place[:, None])):
        with pytest.raises(ArgumentError, match=f"{op}-16: `reduction` is 'max'; it must be one of 'none'"):
            at_opset(op, 16, row, i, value, reduction="max")


Z = np.zeros((2, 3), np.float32)
I1 = np.zeros((2, 3), int)
ERRORS = [
    (
        lambda: ops.gather_elements(Z, I1 + 3, axis=1),
        BoundsError,
        r"index 3 at position \(0, 0\) is out of range for a size of 3",
    ),
    (lambda: ops.gather_elements(Z, I1[0]), ShapeError, r"`indices` of \(3,\) must have the rank of data of \(2, 3\)"),
    (lambda: ops.gather_elements(Z, np.zeros((3, 3), int), axis=1), ShapeError, "exceed its sizes only along axis 1"),
    (lambda: ops.gather_elements(Z, Z), DTypeError, "gather_elements: `indices` must be integers"),
    (lambda: ops.gather_elements(Z, I1, axis=2), AxisError, "`axis` is 2"),
    (
        lambda: ops.gather_nd(Z, np.array([[0, 3]])),
        BoundsError,
        r"index 3 at position \(0, 1\) is out of range for a size of 3",
    ),
    (lambda: ops.gather_nd(Z, np.zeros((1, 3), int)), ShapeError, r"holds tuples of 3; data of \(2, 3\) needs 1 to 2"),
    (lambda: ops.gather_nd(Z, I1, batch_dims=2), ArgumentError, "`batch_dims` is 2; .* allow 0 to 1"),
    (lambda: ops.gather_nd(Z, np.zeros((3, 1), int), batch_dims=1), ShapeError, "the first 1 sizes .* must be equal"),
    (lambda: ops.gather_nd(Z[0, 0], I1), ShapeError, "must not be scalars"),
    (lambda: ops.scatter_elements(Z, I1, Z[:1]), ShapeError, r"`updates` of \(1, 3\) must be \(2, 3\) for these"),
    (lambda: ops.scatter_elements(Z, I1, Z, reduction="sub"), ArgumentError, "`reduction` is 'sub'; it must be one of"),
    (lambda: ops.scatter_elements(Z, I1, I1), DTypeError, "must have one element type"),
    (lambda: ops.scatter_elements(Z > 0, I1, Z > 0, reduction="add"), DTypeError, "'add' needs numbers"),
    (lambda: ops.scatter_nd(Z, np.array([[5]]), Z[:1]), BoundsError, "index 5 at position"),
    (lambda: ops.scatter_nd(Z, np.array([[1]]), Z), ShapeError, r"must be \(1, 3\) for these operands"),
    (lambda: ops.tensor_scatter(Z, Z, axis=0), AxisError, "the batch axis"),
    (lambda: ops.tensor_scatter(Z, Z, axis=1, mode="ring"), ArgumentError, "`mode` is 'ring'"),
    (lambda: ops.tensor_scatter(Z, Z[:1], axis=1), ShapeError, r"`updates` of \(1, 3\) must be \(2, 3\)"),
    (lambda: ops.tensor_scatter(Z, Z, Z, axis=1), DTypeError, "`write_indices` must be a vector of integers"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for _, _, m in ERRORS])
def test_error(call: Callable[[], Any], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        call()
