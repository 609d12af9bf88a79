"""Maxima and minima in the form that is fastest on a CPU: the same numbers as by one reduction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET, inlined

from jaxops.compiler.pipeline import function_of, lowering

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)
SHAPES = [((3, 1500), (1,)), ((5, 64), (1,)), ((2, 7, 65), (1, 2)), ((64, 3072), (0, 1)), ((1, 40_001), (0, 1))]
SHAPES += [((3, 67, 770), (1, 2)), ((5, 9, 64), (0, 1, 2)), ((2, 500, 64), (0, 1, 2))]
SHAPES += [((3, 1021, 64), (1,)), ((2, 14, 13, 32), (1, 2)), ((300, 9), (0,)), ((2, 40, 3, 5), (1,))]  # of rows


def run(fn, x):
    """What a function gives in a model's own program, and the operations of this program."""
    function = function_of(inlined(fn, x), lowering(TARGET))

    def call(x):
        return function([x])[0]

    return np.asarray(jax.jit(call)(x)), {eqn.primitive.name for eqn in jax.make_jaxpr(call)(x).eqns}


@pytest.mark.parametrize(("reduce", "wanted"), [(lax.reduce_max, np.max), (lax.reduce_min, np.min)])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_rows_are_compared_slice_by_slice(reduce, wanted, shape, axes):
    x = RNG.standard_normal(shape, np.float32)
    found, operations = run(lambda x: reduce(x, axes), x)
    np.testing.assert_array_equal(found, wanted(x, axes))
    assert "slice" in operations


@pytest.mark.parametrize("place", [0, 777, 40_000])
@pytest.mark.parametrize("shape", [(40_001,), (40_001, 8)])
def test_a_nan_stays(place, shape):
    x = RNG.standard_normal(shape, np.float32)
    x[place] = np.nan
    assert np.isnan(run(lambda x: lax.reduce_max(x, (0,)), x)[0]).all()
    x[place] = np.inf
    assert (run(lambda x: lax.reduce_max(x, (0,)), x)[0] == np.inf).all()


def test_rows_of_columns_come_first():
    x = RNG.standard_normal((1, 67, 770), np.float32)

    def centred(x):
        return x - lax.broadcast_in_dim(lax.reduce_sum(x, (2,)) / 770, x.shape, (0, 1))

    found, operations = run(lambda x: lax.reduce_max(centred(x), (0, 1, 2)), x)
    np.testing.assert_allclose(found, (x - x.mean(2, keepdims=True)).max(), rtol=1e-6)
    assert "slice" in operations
    for place in ((0, 0, 0), (0, 66, 769), (0, 40, 300)):
        holed = x.copy()
        holed[place] = np.nan
        assert np.isnan(run(lambda x: lax.reduce_max(x, (0, 1, 2)), holed)[0])


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: lax.reduce_max(x, (1,)), (3, 63)),  # short rows
        (lambda x: lax.reduce_max(x, (0,)), (3000, 4)),  # columns
        (lambda x: jnp.argmax(x, 1), (3, 3000)),
        (lambda x: lax.reduce_sum(x, (0, 1)), (30, 30, 300)),
        (lambda x: lax.reduce_prod(x, (0, 1)), (30, 30, 300)),
    ],
)
def test_others_are_left_as_they_are(fn, shape):
    x = RNG.standard_normal(shape, np.float32)
    found, operations = run(fn, x)
    np.testing.assert_array_equal(found, jax.jit(fn)(x))
    assert "slice" not in operations
