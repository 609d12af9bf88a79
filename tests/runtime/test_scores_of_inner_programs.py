"""Attention inside of an If, a Scan or a Loop keeps no scores of long sequences, forward and in the gradient."""

import jax
import numpy as np
import pytest
from graphs import model

from jaxops.compiler.passes import block_attention
from jaxops.compiler.passes.loop_over_blocks import Loop
from jaxops.kernels import kept_scores
from jaxops.onnx import load
from jaxops.ops.common import query_blocks, scaled_dot_product

RNG = np.random.default_rng(0)
SIZES = "float[1,4,s,32]"
SCORES = 4 * 4 * 2048 * 2048  # bytes of the scores of X
X = RNG.standard_normal((1, 4, 2048, 32)).astype(np.float32)
LAYER = """t{0} = Transpose<perm = [0, 1, 3, 2]>(h{0})
    s{0} = MatMul(h{0}, t{0})
    c{0} = Mul(s{0}, scale)
    p{0} = Softmax(c{0})
    y{0} = MatMul(p{0}, h{0})"""
ATTENTION = "y{0} = Attention(h{0}, h{0}, h{0})"
TEXTS = {
    "If": """main (SIZES x, bool use) => (SIZES y) {
        y = If (use) <then_branch = first () => (SIZES y0) { h0 = Identity(x) LAYER0 },
                      else_branch = second () => (SIZES y1) { h1 = Neg(x) LAYER1 }>
    }""",
    "Scan": """main (SIZES x, float[2] factors) => (SIZES y) {
        y = Scan<num_scan_inputs = 1, body = layer (SIZES h, float f) => (SIZES y0) { h0 = Mul(h, f) LAYER0 }>
            (x, factors)
    }""",
    "Loop": """main (SIZES x, int64 count) => (SIZES y) {
        y = Loop (count, , x) <body = layer (int64 i, bool go, SIZES h) => (bool go1, SIZES y0) {
            go1 = Identity(go) h0 = Sin(h) LAYER0 }>
    }""",
    "If in a Scan": """main (SIZES x, bool[2] use) => (SIZES y) {
        y = Scan<num_scan_inputs = 1, body = layer (SIZES h, bool u) => (SIZES z) {
            z = If (u) <then_branch = first () => (SIZES y0) { h0 = Sin(h) LAYER0 },
                        else_branch = second () => (SIZES n) { n = Neg(h) }>
        }>(x, use)
    }""",
}
GIVEN = {
    "If": np.array(True),
    "Scan": np.array([0.5, 2.0], np.float32),
    "Loop": np.array(2),
    "If in a Scan": np.array([True, False]),
}


@pytest.fixture
def few(monkeypatch):
    """Half of these scores are too many for a CPU, too."""
    monkeypatch.setattr(kept_scores, "_MOST_ON_CPU", SCORES // 2)


def call_of(name, layer=LAYER):
    """The function of a model with attention inside, and its arguments."""
    text = TEXTS[name].replace("LAYER0", layer.format(0)).replace("LAYER1", layer.format(1)).replace("SIZES", SIZES)
    is_exported = layer is LAYER
    constants = {"scale": np.float32(32**-0.5)} if is_exported else {}
    net = load(model(text, opset=18 if is_exported else 23, initializers=constants))

    def call(x, given):
        return net.apply(net.params, x, given)

    call.model = net
    return call


def gradient_of(call):
    return lambda x, given: jax.grad(lambda x: (call(x, given) ** 2).sum())(x)


def results(name, layer, x):
    """The results of a program with `grad`, of a call of the model and, for a Scan, of a mapped call."""
    call, given = call_of(name, layer), GIVEN[name]
    step = call if name == "Loop" else lambda x, given: (call(x, given), gradient_of(call)(x, given))
    found = [call.model(x, given), jax.jit(step)(x, given)]
    return jax.tree.leaves([*found, jax.vmap(call, (0, None))(x[None], given)] if name == "Scan" else found)


def compiled(function, name):
    given = GIVEN[name]
    return jax.jit(function).lower(X, given.astype(jax.dtypes.canonicalize_dtype(given.dtype))).compile()


CASES = [*((name, LAYER) for name in TEXTS), ("If in a Scan", ATTENTION)]


@pytest.mark.parametrize(("name", "layer"), CASES)
def test_memory(name, layer, few):
    found = [compiled(call_of(name, layer), name)]
    if name != "Loop":  # JAX has no derivative of a loop of unknown length
        found.append(compiled(gradient_of(call_of(name, layer)), name))
    sizes = [each.memory_analysis().temp_size_in_bytes for each in found]
    assert max(sizes) < SCORES, sizes


@pytest.mark.parametrize(
    ("name", "layer", "value"), [*((*case, 1) for case in CASES), ("If", LAYER, np.nan), ("If", LAYER, np.inf)]
)
def test_numbers(name, layer, value, monkeypatch):
    x = X[:, :, :67].copy()
    x[0, 1, 66, 3] = value
    expected = results(name, layer, x)
    loops, lowered, scanned = [], Loop.lower, query_blocks.in_blocks
    monkeypatch.setattr(Loop, "lower", lambda self, *given: loops.append(self) or lowered(self, *given))
    monkeypatch.setattr(scaled_dot_product, "in_blocks", lambda *given: loops.append(given) or scanned(*given))
    for module, size in ((kept_scores, "_MOST_ON_CPU"), (block_attention, "_LARGE"), (block_attention, "_BLOCK")):
        monkeypatch.setattr(module, size, 9000)
    for module in (kept_scores, query_blocks):
        monkeypatch.setattr(module, "LONG", 2)
    monkeypatch.setattr(query_blocks, "_BLOCK", 9000)
    found = results(name, layer, x)
    assert loops
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want[np.isfinite(want)]).max(initial=1))
