"""FlexAttention against its formula in NumPy, and in a model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from onnx import helper

import jaxops as jo
import jaxops.onnx
from jaxops.errors import DTypeError, ModelError, ShapeError, SignatureError

RNG = np.random.default_rng(2)
Q, K, V = (RNG.normal(size=s).astype(np.float32) for s in ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)))


def formula(q, k, v, scale=None, score_mod=None, prob_mod=None):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = score_mod(scores) if score_mod else scores
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    return (prob_mod(weights) if prob_mod else weights) @ v


def close(found, expected, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=tolerance, atol=tolerance)


def masked(scores):
    """Of the keys up to the position of the query, those before it the less the further they are."""
    distance = np.arange(3)[:, None] - np.arange(5)
    xp = np if isinstance(scores, np.ndarray) else jnp
    kept = xp.broadcast_to(distance >= 0, scores.shape)
    return xp.where(kept, scores - xp.broadcast_to(distance.astype(scores.dtype) / 4, scores.shape), -np.inf)


def test_values():
    close(jo.preview.flex_attention(Q, K, V), formula(Q, K, V))
    found = jo.preview.flex_attention(Q, K, V, scale=0.3, score_mod=lambda s: [masked(s)], prob_mod=lambda p: [p * p])
    close(found, formula(Q, K, V, 0.3, masked, np.square))
    nothing = jo.preview.flex_attention(Q, K, V, score_mod=lambda s: [jnp.full_like(s, -np.inf)])
    assert np.isnan(nothing).all()


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_element_types(dtype, x64):
    seen = []
    given = [x.astype(dtype) for x in (Q, K, V)]
    found = jo.preview.flex_attention(*given, score_mod=lambda s: seen.append(s.dtype) or [s])
    assert (found.dtype, seen) == (dtype, [np.float64 if dtype == np.float64 else np.float32])
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}[np.dtype(dtype).name]
    close(found, formula(*given), tolerance)
    jo.preview.flex_attention(*given, softmax_precision=np.float16, prob_mod=lambda p: seen.append(p.dtype) or [p])
    assert seen[1] == np.float16


def test_transformations():
    run = jax.jit(lambda q, k, v: jo.preview.flex_attention(q, k, v, score_mod=lambda s: [jnp.tanh(s)]))
    close(run(Q, K, V), formula(Q, K, V, score_mod=np.tanh))
    check_grads(run, (Q, K, V), 1, modes=["rev"], rtol=2e-2, atol=2e-2)
    close(jax.vmap(run)(Q[None], K[None], V[None])[0], formula(Q, K, V, score_mod=np.tanh))
    exported = export(run)(*symbolic_args_specs((Q, K, V), ("b,4,s,8", "b,2,t,8", "b,2,t,6")))
    close(exported.call(Q, K, V), formula(Q, K, V, score_mod=np.tanh))


def model(inputs=("s",)):
    """A score_mod that adds the captured input `bias`, expanded to the shape of the scores."""
    nodes = [node("Shape", ["s"], ["sizes"]), node("Expand", ["bias", "sizes"], ["wide"])]
    nodes.append(node("Add", ["s", "wide"], ["out"]))
    graph = helper.make_graph(nodes, "mod", [info(name, [None] * 4) for name in inputs], [info("out", [None] * 4)])
    attend = node("FlexAttention", ["q", "k", "v"], ["y"], score_mod=graph)
    attend.domain = "ai.onnx.preview"
    shapes = {"q": ["B", 4, "S", 8], "k": ["B", 2, "T", 8], "v": ["B", 2, "T", 6], "bias": ["T"]}
    operands = [info(name, shape) for name, shape in shapes.items()]
    return build(attend, inputs=operands, opsets=(("", 24), ("ai.onnx.preview", 1)))


def test_a_modifier_captures_values():
    loaded = jaxops.onnx.load(model())
    bias = RNG.normal(size=5).astype(np.float32)
    for run in (loaded, lambda *a: loaded.apply(loaded.params, *a)):
        close(run(Q, K, V, bias), formula(Q, K, V, score_mod=lambda s: s + bias))


def test_a_modifier_has_one_input():
    with pytest.raises(ModelError, match="`score_mod` has 2 inputs, but the node hands over 1"):
        jaxops.onnx.load(model(inputs=("s", "s2")))


def attend(**attributes):
    return jo.preview.flex_attention(Q, K, V, **attributes)


ERRORS = [
    (lambda: jo.preview.flex_attention(Q[0], K, V), ShapeError, r"`q` of \(4, 3, 8\) must be \(batch, heads"),
    (lambda: jo.preview.flex_attention(Q[:, :3], K, V), ShapeError, "the 3 heads of the query are not a multiple"),
    (lambda: jo.preview.flex_attention(Q, K, V.astype(np.float16)), DTypeError, "v float16"),
    (lambda: attend(softmax_precision="int8"), DTypeError, "`softmax_precision` is int8"),
    (lambda: attend(score_mod=lambda s: s), SignatureError, "`score_mod` must return a sequence of one array"),
    (lambda: attend(prob_mod=lambda p: [p, p]), SignatureError, "`prob_mod` must return a sequence of one array"),
    (lambda: attend(prob_mod=lambda p: [p[0]]), ShapeError, r"like its input float32\[2,4,3,5\], got float32\[4,3,5\]"),
    (lambda: attend(score_mod=lambda s: [s > 0]), DTypeError, r"like its input .*, got bool\[2,4,3,5\]"),
]


@pytest.mark.parametrize(("call", "error", "match"), ERRORS)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_wrong_formula_is_caught():
    with pytest.raises(AssertionError):
        close(attend(), formula(Q, K, V, scale=1))
