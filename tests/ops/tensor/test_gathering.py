"""Gather: values in every way it can be run, indices of every type, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import Case, data, equations, name, same, table
from hypothesis import given, settings, strategies as st
from jax import lax
from jax.export import export, symbolic_args_specs

import jaxops as jo
from jaxops.errors import AxisError, BoundsError, DTypeError

X = data(3, 4, 2)


def fixed(axis, indices, x=X, symbolic=None):
    """Indices known while tracing."""
    title = f"gather/{x.shape} at {axis}: {np.shape(indices)} {np.asarray(indices).dtype}"
    expected = np.take(x, indices, axis)
    return Case(title, lambda v: jo.gather(v, indices, axis=axis), (x,), expected, symbolic)


def moving(axis, indices, x=X):
    """Indices as a second operand."""
    title = f"gather/{x.shape} at {axis}: operand {indices.shape} {indices.dtype}"
    return Case(title, lambda v, i: jo.gather(v, i, axis=axis), (x, indices), np.take(x, indices.astype(int), axis))


CASES = [
    fixed(0, np.array([2, 0, 0]), symbolic=("3, b, c",)),
    fixed(1, np.array([[0, -1], [-4, 3]]), symbolic=("b, 4, c",)),
    fixed(-1, np.array(1), symbolic=("b, c, 2",)),
    fixed(-3, np.int32(-1), symbolic=("b, 4, 2",)),
    fixed(0, np.array([0, -1]), symbolic=("b, 4, 2",)),
    fixed(1, np.zeros((0,), np.int64)),
    fixed(1, np.zeros((2, 0), np.int64)),
    fixed(0, np.zeros((0, 3), np.int64), x=data(0, 2)),
    fixed(1, np.array([1]), x=data(0, 2)),
    fixed(0, np.array([1, -300, 299], np.int16), x=data(300)),
    fixed(0, np.array([-1, 5, -128], np.int8), x=data(300)),
    fixed(0, np.array([255, 0], np.uint8), x=data(300, dtype=np.int32)),
    fixed(0, np.array([2, 0], np.uint64)),
    moving(0, np.array([2, 0, -1], np.int32)),
    moving(1, np.array([[0, -1], [-4, 3]], np.int32)),
    moving(2, np.array(1, np.int32)),
    moving(0, np.array([-1, -128, 100], np.int8), x=data(300)),
    moving(0, np.array([255, 1], np.uint8), x=data(300)),
    moving(0, np.array([7, -8, 2], jnp.int4), x=data(300)),
    moving(1, np.zeros((0, 2), np.int32)),
    moving(0, np.zeros((0,), np.int32), x=data(0, 2)),
    # The ends of a shape, which travel in NumPy.
    Case("gather/of a shape", lambda x: jo.reshape(x, jo.gather(jo.shape(x), np.array([1, 0, 2]))), (X,),
         X.reshape(4, 3, 2), ("b, c, 2",)),
]  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize(("way", "case"), table(CASES), ids=name)
def test_value(way, case):
    way(case)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
                                  jnp.int4, jnp.uint4, jnp.int2, jnp.uint2])  # fmt: skip
def test_any_integer_is_an_index(kind):
    indices = np.array([1, 0, 1], kind)
    same(jo.gather(X, indices), X[[1, 0, 1]])
    same(jo.gather(jnp.asarray(X), indices), X[[1, 0, 1]])
    if np.dtype(kind).itemsize < 8:
        same(jo.gather(X, jnp.asarray(indices)), X[[1, 0, 1]])
        same(jax.jit(jo.gather)(X, jnp.asarray(indices)), X[[1, 0, 1]])


def test_64_bit_indices(x64):
    for kind in (np.int64, np.uint64):
        indices = np.array([2, 0], kind)
        same(jax.jit(jo.gather)(X, indices), X[[2, 0]])
    out_of_bounds = jax.jit(jo.gather)(X, np.array([2**63 + 1, 2**32], np.uint64))
    assert np.isnan(out_of_bounds).all()
    for far in (2**32, -(2**32), 2**40 + 1, 2**63 - 1, -(2**63)):
        found = jo.gather(jnp.arange(3.0), jnp.array([far, -1]))
        assert np.isnan(found[0])
        assert found[1] == 2


@pytest.mark.parametrize(
    ("dtype", "fill"), [(np.float32, np.nan), (np.int32, -(2**31)), (np.uint8, 255), (np.float16, np.nan), (bool, True)]
)
def test_traced_indices_out_of_bounds(dtype, fill):
    x = np.array([0, 1, 0]).astype(dtype)
    for indices in ([3, 1], [-4, 1], [2**31 - 1, 1], [-(2**31), 1]):
        expected = np.array([fill, x[1]]).astype(dtype)
        np.testing.assert_array_equal(jo.gather(x, jnp.array(indices)), expected)
        np.testing.assert_array_equal(jax.jit(jo.gather)(x, np.array(indices, np.int32)), expected)
    largest = jnp.array([2**32 - 1, 1], np.uint32)  # must not pass for -1
    np.testing.assert_array_equal(jo.gather(x, largest), np.array([fill, x[1]]).astype(dtype))


def test_symbolic_index():
    made = export(jax.jit(lambda x: jo.gather(x, jo.shape(x) - 1)))(*symbolic_args_specs([jnp.zeros(3)], ["b"]))
    for size in (1, 5):
        same(made.call(jnp.asarray(data(size))), data(size)[-1:])


def test_symbolic_axis_and_negative_index():
    program = jax.jit(lambda x: jo.gather(x, np.array([0, -1, -2])))
    made = export(program)(*symbolic_args_specs([jnp.zeros((3, 2))], ["b, 2"]))
    for size in (2, 5):
        same(made.call(jnp.asarray(data(size, 2))), data(size, 2)[[0, -1, -2]])


def test_gradient_is_a_scatter():
    weights = jnp.array([1.0, 2.0, 4.0])
    found = jax.grad(lambda x: (jo.gather(x, np.array([0, 2, 0])) * weights).sum())(jnp.zeros(4))
    same(found, np.array([5, 0, 2, 0], np.float32))
    found = jax.jit(jax.grad(lambda x, i: (jo.gather(x, i) * weights).sum()))(jnp.zeros(4), jnp.array([0, 9, -1]))
    same(found, np.array([1, 0, 0, 4], np.float32))


def test_jaxpr_of_static_indices():
    dims = lax.GatherDimensionNumbers(offset_dims=(1, 2), collapsed_slice_dims=(0,), start_index_map=(0,))

    def bare(x, i):
        return lax.gather(x, lax.expand_dims(i, (1,)), dims, (1, 4, 2), mode="promise_in_bounds")

    assert equations(lambda x: jo.gather(x, np.array([0, 2])), X) <= equations(bare, X, np.array([0, 2], np.int32))


def test_indices_as_static_argname():
    fn = jax.jit(jo.gather, static_argnames=("axis",))
    same(fn(X, np.array([0, 1], np.int32), axis=2), X)


ERRORS = [
    (lambda x: jo.gather(x, np.array([3])), BoundsError,
     r"gather: index 3 is outside axis 0 of size 3 \(float32\[3,4,2\]"),
    (lambda x: jo.gather(x, np.array([0, -5]), axis=1), BoundsError, r"index -5 is outside axis 1 of size 4"),
    (lambda x: jo.gather(x, np.array([2**64 - 1], np.uint64)), BoundsError, r"index 18446744073709551615 is outside"),
    (lambda x: jo.gather(x, np.array([-128], np.int8)), BoundsError, r"index -128 is outside"),
    (lambda x: jo.gather(x, np.array([3], jnp.int4)), BoundsError, r"index 3 is outside"),
    (lambda x: jo.gather(x[:0], np.array([0])), BoundsError, r"axis 0 of float32\[0,4,2\].* is empty, but `indices`"),
    (lambda x: jo.gather(x[:0], jnp.array([0])), BoundsError,
     r"axis 0 of float32\[0,4,2\].* is empty, but `indices`"),
    (lambda x: jo.gather(x, np.array([1.0])), DTypeError,
     r"gather: `indices` must be integers, got float64\[1\] \[1.\]"),
    (lambda x: jo.gather(x, np.array([True])), DTypeError, r"`indices` must be integers, got bool\[1\]"),
    (lambda x: jo.gather(x, jnp.array([1.0])), DTypeError, r"`indices` must be integers, got float32\[1\]"),
    (lambda x: jo.gather(x, np.array([0]), axis=3), AxisError, r"gather: `axis` is 3, .* \[-3, 2\]"),
    (lambda x: jo.gather(x[0, 0, 0], np.array([0])), AxisError, r"the range is empty: it is a scalar"),
]  # fmt: skip


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["static", "traced"])
@pytest.mark.parametrize(("fn", "error", "match"), ERRORS, ids=[f"{i}" for i in range(len(ERRORS))])
def test_error(fn, error, match, kind):
    with pytest.raises(error, match=match):
        fn(kind(X))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_gather_is_numpy_take(shape, draw):
    axis = draw.draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    indices = np.array(draw.draw(st.lists(st.integers(-size, size - 1), max_size=4)), np.int64)
    same(jo.gather(data(*shape), indices, axis=axis), np.take(data(*shape), indices, axis))
