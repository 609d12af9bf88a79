"""Reductions in the form that is fastest on a CPU: the same numbers as by one reduction."""

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
        (lambda x: lax.reduce_sum(x, (1,)), (3, 3000)),
        (lambda x: lax.reduce_sum(x, (0,)), (300, 300)),
        (lambda x: lax.reduce_sum(x, (0, 2)), (64, 64, 64)),
        (lambda x: lax.reduce_sum(x, (0, 1)), (5, 6, 3000)),  # few rows
        (lambda x: lax.reduce_sum(x, (0, 1)), (60, 60, 2)),  # few numbers
        (lambda x: lax.reduce_sum(x.astype(jnp.int32), (0, 1)), (30, 30, 300)),
        (lambda x: lax.reduce_sum(x.astype(jnp.float16), (0, 1)), (30, 30, 300)),
        (lambda x: lax.reduce_prod(x, (0, 1)), (30, 30, 300)),
    ],
)
def test_others_are_left_as_they_are(fn, shape):
    x = RNG.standard_normal(shape, np.float32)
    found, operations = run(fn, x)
    np.testing.assert_array_equal(found, jax.jit(fn)(x))
    assert operations.isdisjoint({"slice", "reduce_window_sum"})


COLUMNS = [
    ((1, 56, 56, 32), (1, 2)),
    ((8, 7, 7, 1400), (1, 2)),
    ((2, 3, 10, 4, 1700), (2, 3)),
    ((50, 5, 5, 70), (0, 1, 2)),
    ((16, 2, 2100), (0, 1)),
]


@pytest.mark.parametrize(("shape", "axes"), COLUMNS)
def test_columns_are_summed_window_by_window(shape, axes):
    x = RNG.random(shape, np.float32) + 1
    found, operations = run(lambda x: lax.reduce_sum(x, axes), x)
    np.testing.assert_allclose(found, x.sum(axes, np.float64), rtol=3e-7)
    assert "reduce_window_sum" in operations


def test_channels_that_are_last_are_summed_window_by_window():
    x = RNG.random((2, 20, 20, 196), np.float32)
    found, operations = run(lambda x: lax.reduce_sum(lax.transpose(x, (0, 3, 1, 2)), (2, 3)), x)
    np.testing.assert_allclose(found, x.sum((1, 2), np.float64), rtol=3e-7)
    assert "reduce_window_sum" in operations
    assert "transpose" not in operations


def test_what_is_not_finite_stays_in_its_column():
    x = RNG.random((40, 30, 64), np.float32)
    x[1, 7, 3], x[19, 2, 5], x[2, 20, 8], x[2, 21, 8] = np.nan, np.inf, np.inf, -np.inf
    found, operations = run(lambda x: lax.reduce_sum(x, (0, 1)), x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found, x.sum((0, 1), np.float64), rtol=1e-6)
    assert np.isfinite(found).sum() == 61
    assert "reduce_window_sum" in operations


def test_equal_columns_have_equal_sums():
    x = np.repeat(RNG.standard_normal((13, 13, 1), np.float32), 1001, 2)
    found, operations = run(lambda x: lax.reduce_sum(x, (0, 1)), x)
    assert "reduce_window_sum" in operations
    assert len(set(found.tolist())) == 1
