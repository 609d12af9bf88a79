"""The operations of a jaxpr, without those that undo others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET, inlined

import jaxops as jo
from jaxops.compiler.ir import Program, run
from jaxops.compiler.passes.inline_calls import inline_calls
from jaxops.compiler.passes.select_kernels import select_kernels
from jaxops.compiler.primitives import called_jaxpr

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

# A function → the operations that are left of it.
LEFT = {
    "there and back": (lambda x: x.reshape(6, 4).reshape(2, 3, 4) + 1, ["add"]),
    "in three steps": (
        lambda x: jnp.squeeze(lax.reshape(x.reshape(24), (1, 2, 12)), 0).reshape(2, 3, 4) + 1,
        ["add"],
    ),
    "the same shape twice": (lambda x: x.reshape(6, 4) + x.reshape(24).reshape(6, 4), ["reshape", "add"]),
    "another shape": (lambda x: x.reshape(6, 4).reshape(2, 12) + 1, ["reshape", "reshape", "add"]),
    "other elements between": (lambda x: (x.reshape(6, 4) + 1).reshape(2, 3, 4), ["reshape", "add", "reshape"]),
    "transposes": (lambda x: jnp.transpose(jnp.transpose(x, (2, 0, 1)), (1, 2, 0)) + 1, ["add"]),
    "a transpose between": (lambda x: x.reshape(6, 4).T.reshape(2, 3, 4), ["reshape", "transpose", "reshape"]),
    "a number": (lambda x: x + jnp.reshape(jnp.reshape(np.float32(3), (1,)), ()), None),
}


def test_what_jax_replaces_late_is_opened():
    """nonzero and searchsorted are one operation each in a jaxpr of JAX 0.12, about which no pass knows anything."""
    x = np.arange(8, dtype=np.float32) % 3
    for fn in (lambda x: jnp.nonzero(x, size=4)[0], lambda x: jnp.searchsorted(jnp.sort(x), x)):
        program = inlined(fn, x)
        assert not [operation.name for operation in program.operations if "primitive" in operation.name]
        np.testing.assert_array_equal(run(program, [x])[0], fn(jnp.asarray(x)))


def test_a_selected_kernel_is_opened():
    def depthwise(x, w):
        return jo.conv(x, w, group=64)

    traced = Program.of(jax.make_jaxpr(depthwise)(jnp.ones((1, 64, 14, 14)), jnp.ones((64, 1, 3, 3))))
    program = inline_calls(select_kernels(traced, TARGET), TARGET)
    assert "channel_sum" in [operation.name for operation in program.operations]
    assert all(called_jaxpr(operation.equation) is None for operation in program.operations)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name):
    fn, names = LEFT[name]
    program = inlined(fn, X)
    if names is not None:
        assert [operation.name for operation in program.operations] == names
    (found,) = run(program, [X])
    np.testing.assert_array_equal(found, fn(X))
    assert found.shape == fn(X).shape
