"""Operators that shift by the maximum, behind producers that XLA fuses into them, with values of up to 1e12."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax import lax
from onnx import TensorProto, helper
from scipy import special

import jaxops as jo
from jaxops.onnx import opset

pytestmark = pytest.mark.optimized

SHAPES = [(1, 10), (1, 1000), (4, 1000), (64, 1000), (3, 5000)]
SCALES = [1e3, 1e6, 7e9, 1e12]
PRODUCERS = {
    "product": lambda x, c, d: x * c,
    "constant": lambda x, c, d: x * np.float32(7e9),
    "sum": lambda x, c, d: x * c + d,
    "quotient": lambda x, c, d: x / (1 / c),
    "square": lambda x, c, d: x * x * c,
    "batch norm": lambda x, c, d: (x - d / c) * lax.rsqrt(1 / (c * c)) + d,
    "mean": lambda x, c, d: jnp.mean(x[..., None] * jnp.ones((1, 1, 9)), -1) * c,
    "difference": lambda x, c, d: x * c - d * x,
}


def _data(shape, scale):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x[:, ::7] = x[:, :1]  # equal elements stay equal
    return jnp.asarray(x), jnp.float32(scale * 1.2345), jnp.float32(scale * 0.37)


def _softmax(z):
    return special.softmax(np.asarray(z, np.float64), -1)


def _log_softmax(z):
    return special.log_softmax(np.asarray(z, np.float64), -1)


def _log_sum_exp(z):
    return special.logsumexp(np.asarray(z, np.float64), -1, keepdims=True)


OPERATORS = {
    "softmax": (jo.softmax, _softmax),
    "log_softmax": (jo.log_softmax, _log_softmax),
    "reduce_log_sum_exp": (lambda z: jo.reduce_log_sum_exp(z, (-1,)), _log_sum_exp),
}


@pytest.mark.grid
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_behind_a_producer(producer, shape):
    make = PRODUCERS[producer]

    @jax.jit
    def run(x, c, d):
        z = make(x, c, d)
        return {name: fn(z) for name, (fn, _) in OPERATORS.items()}, jo.hardmax(z)

    alone = {name: jax.jit(lambda *a, fn=fn: fn(make(*a))) for name, (fn, _) in OPERATORS.items()}
    for scale in SCALES:
        operands = _data(shape, scale)
        z = np.asarray(jax.jit(make)(*operands))
        # The logits may differ by their last bit, as XLA rounds them once or twice.
        ulp = np.spacing(np.abs(z).max())
        found, hard = run(*operands)
        assert np.array_equal(np.sum(hard, -1), np.ones(shape[0]))
        for name, (_, expected) in OPERATORS.items():
            for value in (found[name], alone[name](*operands)):
                if name == "softmax":
                    np.testing.assert_allclose(np.sum(value, -1), 1, rtol=1e-4)
                    if ulp < 1e-3 or ulp > 100:
                        np.testing.assert_allclose(value, expected(z), rtol=1e-3 + 4 * min(ulp, 1e-3), atol=1e-6)
                else:
                    np.testing.assert_allclose(value, expected(z), rtol=1e-5, atol=4 * ulp + 1e-3)


def test_float64(x64):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 1000)))
    for scale in (1e12, 7e18):
        assert np.allclose(jax.jit(lambda x, c: jo.softmax(x * c))(x, scale).sum(-1), 1)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_narrow_floats(dtype):
    scale = 1e4 if dtype == jnp.float16 else 1e12
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 1000)), dtype)
    for op in (jo.softmax, jo.hardmax):
        total = np.sum(np.asarray(jax.jit(lambda x, c, op=op: op(x * c))(x, jnp.asarray(scale, dtype)), np.float32), -1)
        np.testing.assert_allclose(total, 1, rtol=1e-2)


def test_mean_of_an_image_and_its_softmax():
    x = jnp.asarray(np.random.default_rng(0).uniform(6e9, 7e9, (1, 1000, 13, 13)).astype(np.float32))
    z = np.asarray(jo.global_average_pool(x))
    value = np.asarray(jax.jit(lambda x: jo.softmax(jo.global_average_pool(x), axis=1))(x))
    # The mean is a sum times a constant; two maxima that differ by less than an ulp share the one.
    np.testing.assert_allclose(value.sum(), 1, rtol=1e-6)
    assert z.ravel()[value.argmax()] >= z.max() - 2 * np.spacing(z.max())


def test_attention_and_loss():
    ops, rng = opset(23), np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(1, 2, 16, 8)).astype(np.float32)) for _ in range(3))
    attend = jax.jit(lambda q, k, v, c: ops.Attention(q * c, k * c, v))
    found = attend(q, k, jnp.ones_like(v), jnp.float32(1e5))
    np.testing.assert_allclose(jax.tree.leaves(found)[0], 1, rtol=1e-5)
    loss = jax.jit(lambda x, c, y: opset(13).SoftmaxCrossEntropyLoss(x * c, y, reduction="none"))
    x = jnp.asarray(rng.normal(size=(3, 1000)).astype(np.float32))
    value = jax.tree.leaves(loss(x, jnp.float32(7e9), jnp.argmax(x, 1)))[0]
    np.testing.assert_allclose(value, 0)


ROWS = {
    "nan": [0.0, np.nan, 1.0],
    "infinite": [0.0, np.inf, 1.0],
    "masked": [0.0, -np.inf, 1.0],
    "all masked": [-np.inf, -np.inf, -np.inf],
    "zeros": [0.0, -0.0, 0.0],
    "least": [1e-38, -1e-38, 0.0],
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "ReduceLogSumExp"])
@pytest.mark.parametrize("repeat", [1, 2000])
def test_as_onnxruntime(op, row, repeat):
    x = np.array([ROWS[row] * repeat, [1.0, 2.0, 3.0] * repeat], np.float32)
    inputs, attributes = (["x", "axes"], {}) if op == "ReduceLogSumExp" else (["x"], {"axis": -1})
    node = helper.make_node(op, inputs, ["y"], **attributes)
    axes = [helper.make_tensor("axes", TensorProto.INT64, [1], [1])] if len(inputs) == 2 else []
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        axes,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    ours = {"Softmax": jo.softmax, "LogSoftmax": jo.log_softmax, "ReduceLogSumExp": lambda x: lse(x, (1,))}[op]
    np.testing.assert_allclose(jax.jit(ours)(x), expected, rtol=1e-5, atol=1e-6)


lse = jo.reduce_log_sum_exp


def test_no_elements():
    assert jo.softmax(jnp.zeros((2, 0))).shape == (2, 0)
    assert jo.log_softmax(jnp.zeros((0, 3))).shape == (0, 3)
    assert jo.hardmax(jnp.zeros((2, 0))).shape == (2, 0)
    assert jo.reduce_log_sum_exp(jnp.zeros((2, 0)), (1,)).tolist() == [[-np.inf]] * 2


def test_of_zero_the_logarithm_of_the_sum_is_zero():
    assert lse(jnp.zeros((1, 1)), (1,)).tolist() == [[0.0]]


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(3, 5), (2, 1000)], ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "reduce_log_sum_exp"])
def test_derivatives(name, shape):
    theirs = {
        "softmax": jax.nn.softmax,
        "log_softmax": jax.nn.log_softmax,
        "reduce_log_sum_exp": lambda x: jax.nn.logsumexp(x, -1, keepdims=True),
    }[name]
    ours, rng = OPERATORS[name][0], np.random.default_rng(0)
    x, t, u = (jnp.asarray(rng.normal(size=shape).astype(np.float32)) for _ in range(3))
    x = x.at[:, 2].set(x.max(-1)).at[:, 1].set(x.max(-1))  # the maximum stands twice or more
    w = jnp.asarray(rng.normal(size=theirs(x).shape).astype(np.float32))

    def both(of):
        return [of(f) for f in (ours, theirs)]

    def close(values):
        chex.assert_trees_all_close(*values, rtol=2e-4, atol=2e-6)

    close(both(lambda f: jax.jit(lambda: jax.jvp(f, (x,), (t,)))()))
    close(both(lambda f: jax.jit(jax.grad(lambda x: jnp.sum(f(x) * w)))(x)))
    close(both(lambda f: jax.jit(jax.vmap(jax.grad(lambda x, w: jnp.sum(f(x) * w))))(x, w)))
    # Second derivatives, forward over reverse and reverse over forward.
    close(both(lambda f: jax.jit(lambda: jax.jvp(jax.grad(lambda x: jnp.sum(f(x) * w)), (x,), (u,))[1])()))
    close(both(lambda f: jax.jit(jax.grad(lambda x: jnp.sum(jax.jvp(f, (x,), (t,))[1] * w)))(x)))


def test_gradient_behind_a_large_product():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 1000)).astype(np.float32))
    grad = jax.jit(jax.grad(lambda x, c: jnp.sum(jo.reduce_log_sum_exp(x * c, (-1,)))))(x, jnp.float32(7e9))
    np.testing.assert_allclose(grad, np.where(x == x.max(-1, keepdims=True), 7e9, 0).astype(np.float32))


def test_a_norm_whose_reciprocal_is_subnormal():
    x = np.full((2, 5000), 1, np.float32)
    x[1] = 3e38
    found = jax.jit(lambda x: jo.lp_normalization(x, axis=0, p=1))(x)
    np.testing.assert_array_equal(found[1], np.ones(5000, np.float32))
