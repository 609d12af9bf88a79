"""Jaxprs of `jax.lax` alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node, tensor
from jax import lax
from programs import equations

import jaxops as jo
import jaxops.onnx
from jaxops.jaxprs import lax_only

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(2, 8, 7, 7)), jnp.float32)
W = jnp.asarray(RNG.normal(size=(8, 1, 3, 3)), jnp.float32)


def layer(x, w):
    return jo.gelu(jo.conv(x, w, group=8, pads=(1, 1, 1, 1)))


def looped(x, w):
    def step(x, _):
        return lax.cond(x.sum() > 0, lambda x: layer(x, w), lambda x: -layer(x, w), x), None

    x = lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, layer(c[1], w)), (0, x))[1]
    return lax.scan(step, x, None, length=2)[0]


FUNCTIONS = {
    "layer": layer,
    "loops": looped,
    "jit": jax.jit(layer),
    "derivative": jax.grad(lambda x, w: jnp.sum(jnp.sin(layer(x, w))), argnums=1),
    "mapped": lambda x, w: jax.vmap(layer, (0, None))(x[:, None], w),
    "products": jax.grad(lambda x, w: jnp.sum(jo.cumprod(x, np.int32(1)))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_primitives_are_those_of_lax(name):
    fn = FUNCTIONS[name]
    ours = {"convolution", "normal_distribution", "linear"}
    written = {eqn.primitive.name for eqn in equations(jax.make_jaxpr(lax_only(fn))(X, W).jaxpr)}
    assert written
    assert not written & (ours | {"platform_index", "custom_jvp_call", "pjit", "jit"})
    np.testing.assert_allclose(lax_only(fn)(X, W), fn(X, W), rtol=1e-4, atol=1e-4)


def test_without_it_there_are_primitives_of_ours():
    names = {eqn.primitive.name for eqn in equations(jax.make_jaxpr(looped)(X, W).jaxpr)}
    assert {"convolution", "normal_distribution"} <= names
    assert "linear" in {eqn.primitive.name for eqn in equations(jax.make_jaxpr(FUNCTIONS["products"])(X, W).jaxpr)}


def test_a_model():
    convolution = node("Conv", ["x", "w"], ["c"], group=8)
    made = build(
        convolution,
        node("Gelu", ["c"], ["y"]),
        inputs=[info("x", X.shape)],
        initializers=[tensor(W, "w")],
        opsets=(("", 20),),
    )
    model = jaxops.onnx.load(made)
    names = {eqn.primitive.name for eqn in equations(jax.make_jaxpr(lax_only(model.apply))(model.params, X).jaxpr)}
    assert "conv_general_dilated" in names
    assert not names & {"convolution", "normal_distribution"}
    np.testing.assert_allclose(lax_only(model.apply)(model.params, X), model(X), rtol=1e-5, atol=1e-5)
