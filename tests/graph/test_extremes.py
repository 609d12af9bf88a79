"""Maxima and minima in the form that is fastest on a CPU: the same numbers as by one reduction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxops.graph import layout
from jaxops.graph.program import evaluate, opened_program

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)
SHAPES = [((3, 1500), (1,)), ((5, 64), (1,)), ((2, 7, 65), (1, 2)), ((64, 3072), (0, 1)), ((1, 40_001), (0, 1))]


def run(fn, x):
    """What a function gives in a model's own program, and the operations of this program."""
    closed = jax.make_jaxpr(fn)(x)
    program = opened_program(closed, "cpu")

    def call(x):
        return layout.settled(evaluate(program.operations, {0: x}, program.outputs, layout.bind)[0])

    return np.asarray(jax.jit(call)(x)), {eqn.primitive.name for eqn in jax.make_jaxpr(call)(x).eqns}


@pytest.mark.parametrize(("reduce", "wanted"), [(lax.reduce_max, np.max), (lax.reduce_min, np.min)])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_rows_are_compared_slice_by_slice(reduce, wanted, shape, axes):
    x = RNG.standard_normal(shape, np.float32)
    found, operations = run(lambda x: reduce(x, axes), x)
    np.testing.assert_array_equal(found, wanted(x, axes))
    assert "slice" in operations


@pytest.mark.parametrize("place", [0, 777, 40_000])
def test_a_nan_stays(place):
    x = RNG.standard_normal(40_001).astype(np.float32)
    x[place] = np.nan
    assert np.isnan(run(lambda x: lax.reduce_max(x, (0,)), x)[0])
    x[place] = np.inf
    assert run(lambda x: lax.reduce_max(x, (0,)), x)[0] == np.inf


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: lax.reduce_max(x, (1,)), (3, 63)),  # short rows
        (lambda x: lax.reduce_max(x, (0,)), (3000, 4)),  # columns
        (lambda x: jnp.argmax(x, 1), (3, 3000)),
        (lambda x: lax.reduce_sum(x, (1,)), (3, 3000)),
    ],
)
def test_others_are_left_as_they_are(fn, shape):
    x = RNG.standard_normal(shape, np.float32)
    found, operations = run(fn, x)
    np.testing.assert_array_equal(found, jax.jit(fn)(x))
    assert "slice" not in operations
