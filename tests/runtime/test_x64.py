"""Models that run with x64 on, inside of programs with x64 off."""

import jax
import jax.numpy as jnp
import numpy as np
from graphs import model

import jaxops.onnx


def test_operators_of_a_caller_may_read_tracers():
    """Their gradient under `jit` is not zero, as that of a constant would be."""
    held, weights = {}, np.ones((6, 4), np.float32)
    proto = model("main (float[N,6] x) => (float[N,4] y) { y = MatMul(x, w) }", initializers={"w": weights})
    found = jaxops.onnx.load(proto, operators={("", "MatMul"): lambda x, w: x @ w + x @ held["more"]}, x64=True)
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)

    def loss(params, more):
        held["more"] = more
        return (found.apply(params, x) ** 2).sum()

    def expected(params, more):
        return ((x @ params["w"] + x @ more) ** 2).sum()

    arguments = dict(found.params), jnp.full((6, 4), 0.5)
    np.testing.assert_allclose(jax.jit(loss)(*arguments), expected(*arguments), rtol=1e-5)
    got = jax.jit(jax.grad(loss, (0, 1)))(*arguments)
    want = jax.grad(expected, (0, 1))(*arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), got, want)
