"""That what is computed once is kept behind the elementwise operations that follow, and no further."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET, inlined

from jaxops.compiler.ir import run
from jaxops.compiler.passes.sink_barriers import sink_barriers
from jaxops.kernels.xla_workarounds import computed_once

X = np.random.default_rng(0).standard_normal((4, 6), np.float32)
Y = X + 1


def program_of(fn):
    return inlined(fn, X, Y)


def order(fn):
    """The names of the operations once the marks have moved; the values stay as they were."""
    program = sink_barriers(program_of(fn), TARGET)
    found = jax.jit(lambda x, y: run(program, [x, y]))(X, Y)
    wanted = fn(jnp.asarray(X), jnp.asarray(Y))
    for a, b in zip(found, jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return [operation.name for operation in program.operations]


def activated(x):
    return lax.mul(x, lax.logistic(lax.neg(x)))


def test_behind_a_bias_and_an_activation():
    def fn(x, y):
        z = activated(lax.add(computed_once(lax.square(x)), y))
        return lax.exp(z) @ y.T, lax.reduce_sum(z, (0,))

    names = order(fn)
    assert names.index("computed_once") == names.index("mul") + 1
    assert names.count("computed_once") == 1


@pytest.mark.parametrize(
    ("fn", "before"),
    [
        (lambda x, y: (computed_once(lax.square(x)) @ y.T,), "square"),
        # Two values are read of it, and no one value is made of them.
        (lambda x, y: (lambda z: (lax.exp(z) @ y.T, lax.sin(z) @ y.T))(computed_once(lax.square(x))), "square"),
        (lambda x, y: (lambda z: (lax.exp(z), z))(computed_once(lax.square(x))), "square"),  # itself an output
        (lambda x, y: (lax.exp(lax.slice(computed_once(lax.square(x)), (0, 0), (2, 2))),), "square"),
        (
            lambda x, y: (
                lax.reduce_sum(lax.convert_element_type(lax.neg(computed_once(lax.square(x))), np.int32), (1,)),
            ),
            "neg",
        ),
        (lambda x, y: (lax.reduce_sum(lax.exp(computed_once(lax.square(x))), (1,)),), "exp"),
        (lambda x, y: (lax.exp(computed_once(lax.square(x))),), "exp"),
    ],
)
def test_no_further_than_one_value(fn, before):
    names = order(fn)
    assert names[names.index("computed_once") - 1] == before


def test_marks_behind_each_other():
    names = order(lambda x, y: (lax.sin(computed_once(lax.add(lax.neg(computed_once(lax.square(x))), y))) @ y.T,))
    assert names[:6] == ["square", "neg", "add", "computed_once", "sin", "computed_once"]


def test_a_program_without_marks_is_left_as_it_is():
    program = program_of(lambda x, y: (lax.exp(x),))
    assert sink_barriers(program, TARGET) is program
