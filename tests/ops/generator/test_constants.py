"""ConstantOfShape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import data, same
from jax.export import export, symbolic_args_specs

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError

CASES = [
    ((2, 3), {}, np.zeros((2, 3), np.float32)),
    ([2, 0], {}, np.zeros((2, 0), np.float32)),
    ((), {}, np.zeros((), np.float32)),
    (np.array([], np.int64), {"value": np.int64([7])}, np.array(7)),
    (np.array([3]), {"value": np.array([True])}, np.ones(3, bool)),
    (jnp.array([1, 2]), {"value": np.float16(2.5)}, np.full((1, 2), 2.5, np.float16)),
    ((2,), {"value": np.array([["x"]], object)}, np.array(["x", "x"], object)),
    ((2,), {"value": 3}, np.array([3, 3])),
    ((2,), {"value": np.uint64(2**64 - 1)}, np.full(2, 2**64 - 1, np.uint64)),
]


@pytest.mark.parametrize(("shape", "attributes", "expected"), CASES)
def test_value(shape, attributes, expected):
    found = jo.constant_of_shape(shape, **attributes)
    assert isinstance(found, np.ndarray)
    same(found, expected)


def test_a_large_constant_is_a_view():
    found = jo.constant_of_shape((2**20, 2**20))
    assert found.strides == (0, 0)


def test_static_under_jit_and_traced_with_data():
    x = data(2, 3)

    def fn(v):
        ones = jo.constant_of_shape(jo.shape(v), value=np.float32(1))
        assert isinstance(ones, np.ndarray)
        return jo.concat([v, ones], axis=0)

    expected = np.concatenate([x, np.ones((2, 3), np.float32)])
    same(fn(jnp.asarray(x)), expected)
    same(jax.jit(fn)(x), expected)
    same(jax.vmap(fn)(x[None]), expected[None])


def test_symbolic():
    program = jax.jit(lambda x: jo.constant_of_shape(jo.shape(x), value=np.int32([5])))
    made = export(program)(*symbolic_args_specs([jnp.zeros((2, 3))], ["b, 3"]))
    for size in (1, 4):
        same(made.call(jnp.zeros((size, 3))), np.full((size, 3), 5, np.int32))


ERRORS = [
    (lambda: jo.constant_of_shape((2, -1)), ArgumentError,
     r"constant_of_shape: `input` \(2, -1\) holds -1; .* not be neg"),
    (lambda: jo.constant_of_shape((2,), value=np.zeros(2)), ShapeError,
     r"`value` must be one number\n  value   float64\[2\]"),
    (lambda: jo.constant_of_shape((2,), value=np.zeros(0)), ShapeError, r"`value` must be one number"),
    (lambda: jo.constant_of_shape(2), ShapeError, r"`input` must be 1-D, but has 0 axes"),
    (lambda: jo.constant_of_shape((2.0,)), DTypeError, r"`input` must be integers, got float64"),
    (lambda: jo.constant_of_shape((2**40, 2**40)), ShapeError, r"more elements than an int64 can count"),
    (lambda: jax.jit(jo.constant_of_shape)(np.array([2])), StaticError, r"`input` must be known while tracing"),
    (lambda: jax.jit(lambda v: jo.constant_of_shape((2,), value=v))(1.0), StaticError, r"`value` must be known"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "error", "match"), ERRORS, ids=[f"{i}" for i in range(len(ERRORS))])
def test_error(fn, error, match):
    with pytest.raises(error, match=match):
        fn()
