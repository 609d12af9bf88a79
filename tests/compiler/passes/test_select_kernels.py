"""Named calls become the kernels of a target, wherever they stand in a program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import equations, specialized

import jaxops as jo
from jaxops.compiler.ir import Program, run
from jaxops.compiler.passes.inline_calls import inline_calls
from jaxops.compiler.passes.select_kernels import select_kernels
from jaxops.kernels.target import Target

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(1, 8, 9, 9)), jnp.float32)
W = jnp.asarray(RNG.normal(size=(8, 1, 3, 3)), jnp.float32)


def conv(x, w):
    return jo.conv(x, w, group=8, pads=(1, 1, 1, 1))


def in_loops(x, w):
    x = lax.scan(lambda c, _: (jnp.tanh(conv(c, w)), None), x, None, length=2)[0]
    x = lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, jnp.tanh(conv(c[1], w))), (0, x))[1]
    return lax.cond(x.sum() > 0, lambda x: conv(x, w), lambda x: -conv(x, w), x)


PROGRAMS = {
    "call": conv,
    "jit": jax.jit(conv),
    "loops": in_loops,
    "jit in a loop": lambda x, w: lax.scan(lambda c, _: (jax.jit(conv)(c, w), None), x, None, length=2)[0],
}


def names(fn, *args):
    return [eqn.primitive.name for eqn in equations(jax.make_jaxpr(fn)(*args).jaxpr)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_replaced(name):
    fn = PROGRAMS[name]
    found = names(specialized(fn), X, W)
    assert "channel_sum" in found
    assert "convolution" not in found
    np.testing.assert_allclose(jax.jit(specialized(fn))(X, W), fn(X, W), rtol=1e-4, atol=1e-5)


def test_derivatives_and_maps_have_forms_that_jax_can_transform():
    def fn(x, w):
        return jax.vmap(jax.grad(lambda x, w: jnp.sum(conv(x[None], w) ** 2)), (0, None))(x, w)

    found = names(specialized(fn), X, W)
    assert not {"channel_sum", "convolution"} & set(found)
    np.testing.assert_allclose(jax.jit(specialized(fn))(X, W), fn(X, W), rtol=1e-4, atol=1e-4)


def test_a_mapped_product_of_integers():
    """No processor gets a product here that has no rule for batches."""
    a, b = RNG.integers(0, 256, (3, 4, 5, 6), np.uint8), RNG.integers(-128, 128, (6, 7), np.int8)
    target = Target("cpu", frozenset({"avx512_vnni"}), specialized=True, prepared=True)

    def fn(a, b):
        return jax.vmap(jo.matmul_integer, (0, None))(a, b)

    program = inline_calls(select_kernels(Program.of(jax.make_jaxpr(fn)(a, b)), target), target)
    (found,) = jax.jit(lambda a, b: run(program, [a, b]))(a, b)
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize(
    ("features", "dtype"), [({"amx_bf16"}, "bfloat16"), ({"avx512_bf16", "GenuineIntel"}, "float32"), ((), "float32")]
)
def test_the_target_decides_and_not_the_machine(features, dtype):
    a = np.ones((16, 32), np.float32)
    with jax.default_matmul_precision("bfloat16"):
        run = specialized(lambda a: jo.matmul(a, a.T), Target("cpu", frozenset(features)))
        products = [e for e in equations(jax.make_jaxpr(run)(a).jaxpr) if e.primitive is lax.dot_general_p]
    assert [e.invars[0].aval.dtype.name for e in products] == [dtype]


def test_an_elementwise_call_stays():
    assert "normal_distribution" in names(specialized(jo.gelu), X)
    gradient = jax.make_jaxpr(specialized(jax.grad(lambda x: jnp.sum(jo.gelu(x)))))(X)
    calls = [eqn.params["call"] for eqn in gradient.eqns if eqn.primitive.name == "normal_distribution"]
    assert [call.transforms for call in calls] == [()]  # the derivative is written out


def test_a_program_without_calls_is_left_as_it_is():
    program = Program.of(jax.make_jaxpr(lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=2)[0])(X))
    after = select_kernels(program, Target("cpu", specialized=True, prepared=True))
    assert [o.equation for o in after.operations] == [o.equation for o in program.operations]


def test_weights_are_not_turned_inside_of_a_loop():
    """There, they would be turned at each step, as nothing inside of a loop is prepared."""

    def product(x, w):
        return jo.matmul(x, w)

    def steps(x, w):
        return lax.scan(lambda c, _: (product(c, w), None), x, None, length=3)[0]

    x, w = jnp.ones((8, 1024), jnp.float32), jnp.ones((1024, 1024), jnp.float32)
    target = Target("cpu", specialized=True, prepared=True)
    assert "transpose" in names(specialized(product, target), x, w)
    assert "transpose" not in names(specialized(steps, target), x, w)
