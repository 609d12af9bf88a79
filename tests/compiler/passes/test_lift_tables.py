"""That large constants are prepared once, with what is computed from them, and small ones stay in the program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import TARGET, inlined

from jaxops.compiler import ir
from jaxops.compiler.partition.weight_only import split_weight_only
from jaxops.compiler.passes.lift_tables import TABLE, lift_tables
from jaxops.compiler.pipeline import specialize
from jaxops.compiler.run.prepare_weights import WeightProgram

RNG = np.random.default_rng(0)
TABLE_OF_FLOATS = RNG.standard_normal((200, 200), np.float32)
SMALL = RNG.standard_normal((100, 200), np.float32)[:, :100]
assert TABLE_OF_FLOATS.nbytes >= TABLE > SMALL.nbytes
X = RNG.standard_normal((3, 200), np.float32)


def lifted(fn, *arguments):
    return lift_tables(inlined(fn, *map(jnp.asarray, arguments)), TARGET)


def prepared(fn, x):
    """The shapes of the values that are prepared; the results stay as they were."""
    split = split_weight_only(lifted(fn, x), 0, TARGET)
    values = WeightProgram.of(split.prepare).cached({}, [])
    (y,) = ir.run(split.run, [*values, x])
    np.testing.assert_allclose(y, fn(x), rtol=1e-5, atol=1e-5)
    return [value.shape for value in values]


def test_a_large_constant_is_a_value():
    program = lifted(lambda x: x @ TABLE_OF_FLOATS + TABLE_OF_FLOATS.sum(), X)
    assert [operation.name for operation in program.operations].count("constant") == 1
    assert prepared(lambda x: x @ TABLE_OF_FLOATS, X) == [(200, 200)]


def test_one_value_for_each_constant():
    table = jnp.asarray(TABLE_OF_FLOATS)
    assert prepared(lambda x: jnp.sin(x @ table) @ table, X) == [(200, 200)]


def test_what_is_computed_from_a_large_constant_is_prepared():
    def fn(x):
        return x @ jnp.cos(jnp.asarray(TABLE_OF_FLOATS))

    assert prepared(fn, X) == [(200, 200)]
    assert "cos" not in str(split_weight_only(lifted(fn, X), 0, TARGET).run)


def test_a_small_constant_stays():
    assert prepared(lambda x: x @ jnp.cos(jnp.asarray(SMALL)), X[:, :100]) == []


@pytest.mark.optimized
def test_xla_does_not_fold_a_large_constant():
    """It is an argument of the program that prepares what is computed from it, and of the one that runs."""
    specialized = specialize(jax.make_jaxpr(lambda x: x @ jnp.cos(jnp.asarray(TABLE_OF_FLOATS)))(X), 0, TARGET)
    values = specialized.prepare.cached({}, [])
    np.testing.assert_allclose(values[0], np.cos(TABLE_OF_FLOATS), rtol=1e-5, atol=1e-6)
    assert "f32[200,200]{1,0} constant" not in jax.jit(specialized.run).lower(values, [], [X]).compile().as_text()
