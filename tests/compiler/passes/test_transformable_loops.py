"""Attention in parts that JAX may transform: the numbers and derivatives of all scores at once, in less memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_programs import CASES, array
from graphs import model
from programs import TARGET

import jaxops.onnx
from jaxops.compiler import pipeline
from jaxops.compiler.ir import Program
from jaxops.compiler.passes import block_attention as module
from jaxops.compiler.passes.block_attention import block_attention, inlined
from jaxops.compiler.passes.loop_over_blocks import Loop
from jaxops.kernels import kept_scores

PLAIN = dataclasses.replace(TARGET, specialized=False, prepared=False, compiled_here=False)


def looped(fn, operands, part, monkeypatch):
    """A function of arrays with all products of batches in parts of some bytes, and its program."""
    monkeypatch.setattr(kept_scores, "LONG", 2)
    monkeypatch.setattr(kept_scores, "_MOST_ON_CPU", part)
    monkeypatch.setattr(module, "_BLOCK", part)
    closed = jax.make_jaxpr(fn)(*operands)
    program = block_attention(Program.of(closed, inlined), PLAIN)
    function = pipeline.transformable(closed, PLAIN)
    return lambda *given: function(*given)[0], program


def floats(operands):
    return tuple(k for k, x in enumerate(operands) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating))


def derivatives(fn, operands):
    """The result, the gradients by all floats, and a derivative of the gradients."""
    moving = floats(operands)

    def loss(*given):
        return (fn(*given).astype(jnp.float32) ** 2).sum()

    def gradients(*given):
        return jax.grad(loss, moving)(*given)

    def all_of(*given):
        first = moving[0]
        x = given[first]
        along = jax.jvp(lambda x: gradients(*given[:first], x, *given[first + 1 :]), (x,), (x,))[1]
        return fn(*given), gradients(*given), along

    return jax.tree.leaves(jax.jit(all_of)(*operands))


def close(found, expected, tolerance=3e-5):
    """Compares arrays; tolerance: of the largest number of all, as some gradients are sums of large numbers to 0."""
    largest = max(np.abs(np.asarray(x, np.float32)).max() for x in expected)
    for got, want in zip(found, expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        got, want = np.asarray(got, np.float32), np.asarray(want, np.float32)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * largest)


OF_FLOATS = [name for name in CASES if name not in ("integers", "barrier", "some of the keys")]


# Several entries a part; and less than one, so that a second loop cuts the queries. 33 and 6 are no multiples.
@pytest.mark.grid
@pytest.mark.parametrize("part", [20_000, 1_500])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_derivatives(name, part, monkeypatch):
    fn, operands = CASES[name]
    call, program = looped(fn, operands, part, monkeypatch)
    assert sum(isinstance(operation, Loop) for operation in program.operations) == 1
    close(derivatives(call, operands), derivatives(fn, operands))


def test_mapped(monkeypatch):
    fn, (q, k, v, mask) = CASES["causal"]
    call, _ = looped(fn, (q, k, v, mask), 5_000, monkeypatch)
    qs = np.stack([q, q + 1])
    found = jax.jit(jax.vmap(call, (0, None, None, None)))(qs, k, v, mask)
    close(found, [fn(x, k, v, mask) for x in qs])


def test_gradients_of_16_bit_keys_are_summed_in_float32(monkeypatch):
    fn, operands = CASES["one example"]
    narrow = tuple(jnp.asarray(x, jnp.bfloat16) for x in operands)
    call, _ = looped(fn, narrow, 1_500, monkeypatch)
    moving = floats(narrow)
    found = jax.jit(jax.grad(lambda *given: call(*given).astype(jnp.float32).sum(), moving))(*narrow)
    exact = jax.grad(lambda *given: fn(*given).sum(), moving)(*(x.astype(jnp.float32) for x in narrow))
    close([x.astype(jnp.float32) for x in found], exact, 2e-2)


# The scale and the mask are broadcast to all scores, of which each block needs its own part alone.
LONG = """main (float[b,16,4096,64] q, float[b,16,4096,64] k, float[b,16,4096,64] v, float[b,1,1,4096] mask)
    => (float[b,16,4096,64] y) {
    u = MatMul(q, w)
    t = Transpose<perm = [0, 1, 3, 2]>(k)
    scores = MatMul(u, t)
    scaled = Mul(scores, scale)
    masked = Add(scaled, mask)
    weights = Softmax(masked)
    y = MatMul(weights, v)
}"""


@pytest.mark.parametrize("outside", [lambda fn: fn, jax.jit])
def test_the_gradient_of_a_model_keeps_no_scores(outside):
    """They take 1,074 MB. `grad` traces the model itself, or opens the operation that `jit` made of it."""
    constants = {"w": np.eye(64, dtype=np.float32), "scale": np.float32(0.125)}
    net = jaxops.onnx.load(model(LONG, initializers=constants))
    loss = outside(lambda params, q, k, v, mask: (net.apply(params, q, k, v, mask) ** 2).sum())
    x, mask = (jax.ShapeDtypeStruct(sizes, np.float32) for sizes in ((1, 16, 4096, 64), (1, 1, 1, 4096)))
    compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3))).lower(net.params, x, x, x, mask).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 220e6


def test_the_gradient_of_few_queries_keeps_no_scores():
    """Those of 512 queries and 65,536 keys take 2,147 MB; the keys take 268."""
    constants = {"w": np.eye(64, dtype=np.float32), "scale": np.float32(0.125)}
    text = LONG.replace("16,4096,64] q", "16,512,64] q").replace("16,4096,64] y", "16,512,64] y").replace("4096", "t")
    net = jaxops.onnx.load(model(text, initializers=constants))
    sizes = (1, 16, 512, 64), (1, 16, 65536, 64), (1, 16, 65536, 64), (1, 1, 1, 65536)
    operands = (jax.ShapeDtypeStruct(each, np.float32) for each in sizes)
    gradient = jax.grad(lambda *given: (net.apply(net.params, *given) ** 2).sum(), argnums=(0, 1, 2))
    assert jax.jit(gradient).lower(*operands).compile().memory_analysis().temp_size_in_bytes < 900e6


def test_static_inputs_of_a_model_under_grad_stay_known():
    """Sizes that no transformation traces are numbers there, as in a call node by node."""
    text = "main (float[n] x, int64[2] s) => (float[a,b] y) { z = Mul(x, w) y = Reshape(z, s) }"
    net = jaxops.onnx.load(model(text, initializers={"w": np.float32([2.0])}))
    gradient = jax.grad(lambda x: net.apply(net.params, x, np.array([2, 256]))[1].sum())(array(512))
    np.testing.assert_array_equal(gradient, np.repeat([0.0, 2.0], 256))
