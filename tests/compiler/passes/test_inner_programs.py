"""A pass on the programs inside of operations: which it reaches, and what it leaves alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxops.compiler.ir import Program, run
from jaxops.compiler.passes.inner_programs import changed_inside
from jaxops.compiler.primitives import jit_jaxpr

X = np.linspace(-1, 1, 300, dtype=np.float32)
TABLE = np.linspace(2, 3, 300, dtype=np.float32)


def layer(wave):
    """An operation that `jit` hides, with a table that is a constant of the inner jaxpr."""
    return jax.jit(lambda x: wave(x) * TABLE)


# A layer → a function with the layer inside of an operation.
CASES = {
    "jit": lambda inner: inner,
    "remat2": jax.checkpoint,
    "cond": lambda inner: lambda x: jax.lax.cond(x.sum() > -1, inner, jnp.negative, x),
    "scan": lambda inner: lambda x: jax.lax.scan(lambda c, _: (inner(c), c.sum()), x, None, 3),
    "while": lambda inner: lambda x: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: abs(inner(c)) + c + 1, x),
    "a branch in a loop": lambda inner: (
        lambda x: jax.lax.scan(lambda c, _: (jax.lax.cond(c[0] > 0, inner, inner, c), 0), x, None, 2)
    ),
}


def cosines(program):
    """A pass that makes cosines of sines, inside of operations, too."""
    program = changed_inside(program, cosines, jit_jaxpr)
    (cosine,) = jax.make_jaxpr(jnp.cos)(X).eqns
    changed = [
        dataclasses.replace(
            o, equation=o.equation.replace(primitive=cosine.primitive, params={**o.params, **cosine.params})
        )
        if o.name == "sin"
        else o
        for o in program.operations
    ]
    same = all(new is old for new, old in zip(changed, program.operations, strict=True))
    return program if same else program.replace(operations=changed)


@pytest.mark.parametrize("name", CASES)
def test_a_pass_runs_inside(name):
    before, after = (CASES[name](layer(wave)) for wave in (jnp.sin, jnp.cos))
    found = run(cosines(Program.of(jax.make_jaxpr(before)(X))), [X])
    expected = jax.tree.leaves(after(X))
    assert not np.allclose(expected[0], jax.tree.leaves(before(X))[0])
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_what_does_not_change_stays_the_same_object():
    for case in CASES.values():
        program = Program.of(jax.make_jaxpr(case(layer(jnp.sin)))(X))
        assert changed_inside(program, lambda inner: inner, jit_jaxpr) is program
