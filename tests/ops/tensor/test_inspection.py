"""Shape and Size: what they answer is static, whatever they are asked about."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import data, equations, same
from jax.export import export, symbolic_args_specs

import jaxops as jo
from jaxops.errors import DTypeError, ShapeError, StaticError
from jaxops.static import is_symbolic

X = data(2, 3, 4)
SHAPES = [
    ({}, [2, 3, 4]),
    ({"start": 1}, [3, 4]),
    ({"end": -1}, [2, 3]),
    ({"start": -2, "end": 2}, [3]),
    ({"start": 2, "end": 1}, []),
    ({"start": -9, "end": 9}, [2, 3, 4]),
    ({"start": 0, "end": 2**63 - 1}, [2, 3, 4]),
    ({"start": -(2**63)}, [2, 3, 4]),
    ({"start": np.int64(1), "end": np.array(2)}, [3]),
]


@pytest.mark.parametrize(("attributes", "expected"), SHAPES)
@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, np.ndarray.tolist], ids=["static", "traced", "list"])
def test_shape(attributes, expected, kind):
    found = jo.shape(kind(X), **attributes)
    assert isinstance(found, np.ndarray)
    same(found, np.array(expected, np.int64))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 4), (2, 3, 4)])
def test_shape_and_size(shape):
    for x in (np.zeros(shape), jnp.zeros(shape)):
        same(jo.shape(x), np.array(shape, np.int64))
        same(jo.size(x), np.array(int(np.prod(shape)), np.int64))


def test_static_inside_transformations():
    seen = []

    def fn(x):
        seen.extend([jo.shape(x), jo.size(x)])
        return x.sum()

    jax.jit(fn)(X)
    jax.grad(fn)(jnp.asarray(X))
    jax.vmap(fn)(X)  # the mapped axis is not seen
    assert all(type(s) is np.ndarray and s.dtype == np.int64 for s in seen)
    assert [s.tolist() for s in seen] == [[2, 3, 4], 24, [2, 3, 4], 24, [3, 4], 12]
    assert equations(lambda x: (jo.shape(x), jo.size(x)), X) == 0


def test_symbolic_sizes_are_objects():
    def fn(x):
        sizes, count = jo.shape(x), jo.size(x)
        assert sizes.dtype == object
        assert is_symbolic(sizes)
        assert str(sizes.tolist()) == "[b, c, 4]"
        assert str(count) == "4*b*c"
        assert jo.shape(x, start=2).dtype == np.int64  # nothing symbolic is left
        return jo.reshape(x, (count,)) + jo.cast(count, to=np.float32)

    made = export(jax.jit(fn))(*symbolic_args_specs([jnp.asarray(X)], ["b, c, 4"]))
    np.testing.assert_array_equal(made.call(jnp.asarray(X)), X.ravel() + 24)


def test_sizes_beyond_32_bits_are_not_cut():
    huge = jax.ShapeDtypeStruct((2**20, 2**20), np.int8)
    assert jax.eval_shape(lambda x: jo.cast(np.float64(jo.size(x)) > 2**39, to=bool), huge).dtype == bool
    seen = []
    jax.eval_shape(lambda x: seen.append(jo.size(x)), huge)
    same(seen[0], np.array(2**40))


def test_errors():
    with pytest.raises(DTypeError, match="shape: `start` must be integers, got float64"):
        jo.shape(X, start=1.0)
    with pytest.raises(ShapeError, match="shape: `end` must hold one integer"):
        jo.shape(X, end=(1, 2))
    for attribute in ("start", "end"):
        with pytest.raises(StaticError, match=f"shape: `{attribute}` must be known while tracing, but it is traced"):
            jax.jit(lambda n, attribute=attribute: jo.shape(X, **{attribute: n}))(1)
