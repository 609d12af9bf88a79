"""Steps of a decoder with parameters that were prepared once give what steps with `model.params` give."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from decoder_graphs import in_place
from decoders import MODELS, agree, fixed
from onnx import helper, numpy_helper

import jaxops.onnx
import jaxops.openvino
from jaxops.errors import ShapeError, UnsupportedError

PROMPT = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
BLOCK, WIDTH = 16, 2048


def with_blocks_of_4_bits(model):
    """The model with weights of its products as int4, which DequantizeLinear gives scales for blocks."""
    graph, weights = model.graph, {t.name: t for t in model.graph.initializer}
    for node in list(graph.node):
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        name = node.input[1]
        w = numpy_helper.to_array(weights[name])
        scales = np.abs(w.reshape(-1, BLOCK, w.shape[1])).max(1) / 7
        numbers = np.rint(w / np.repeat(scales, BLOCK, 0)).astype(int)
        graph.initializer.append(helper.make_tensor(f"{name}_int4", onnx.TensorProto.INT4, w.shape, numbers.ravel()))
        graph.initializer.append(numpy_helper.from_array(scales, f"{name}_scale"))
        inputs = [f"{name}_int4", f"{name}_scale"]
        dequantize = helper.make_node("DequantizeLinear", inputs, [f"{name}_float"], axis=0, block_size=BLOCK)
        graph.node.insert(list(graph.node).index(node), dequantize)
        node.input[1] = f"{name}_float"
        graph.initializer.remove(weights[name])
    return model


@pytest.fixture(scope="module")
def verses():
    """The decoder of the notebooks, in which two products are large enough to be kept packed."""
    model, rng = onnx.load("notebooks/verses.onnx"), np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.name in ("up0", "down0"):
            sizes = (48, WIDTH) if tensor.name == "up0" else (WIDTH, 48)
            tensor.CopyFrom(numpy_helper.from_array(rng.normal(size=sizes).astype(np.float32) / 20, tensor.name))
    return with_blocks_of_4_bits(model)


def test_weights_in_blocks_stay_packed(verses):
    model = jaxops.onnx.load(verses)
    step = jaxops.onnx.decoder(model, length=32)
    prepared = step.prepare(model.params, batch=2)
    codes = [x for x in prepared.values.values() if x.dtype == jnp.uint8]
    assert sum(x.nbytes for x in codes) == 2 * 48 * WIDTH // 2
    assert "dequantize" not in str(jax.make_jaxpr(step)(prepared, step.init(2), PROMPT[:, 0]))
    agree(fixed(step, prepared, step.init(2), PROMPT, 20), fixed(step, model.params, step.init(2), PROMPT, 20))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_models_of_floats(name):
    model = jaxops.onnx.load(MODELS / f"{name}.dynamo.onnx")
    step = jaxops.onnx.decoder(model, length=32)
    expected = fixed(step, model.params, step.init(2), PROMPT, 20)
    agree(fixed(step, step.prepare(model.params, batch=2), step.init(2), PROMPT, 20), expected)


def test_caches_of_fixed_size():
    model = jaxops.onnx.load(in_place())
    step = jaxops.onnx.decoder(model, length=16)
    expected = fixed(step, model.params, step.init(2), PROMPT, 8)
    agree(fixed(step, step.prepare(model.params, batch=2), step.init(2), PROMPT, 8), expected)


def test_caches_that_are_variables():
    model = jaxops.openvino.load("notebooks/tiny_decoder.xml")
    step = jaxops.openvino.decoder(model, length=32)
    expected = fixed(step, model.params, step.init(), PROMPT[:1], 8)
    agree(fixed(step, step.prepare(model.params), step.init(), PROMPT[:1], 8), expected)


def test_what_was_not_prepared_is_computed(verses):
    """The prompt, and steps of another batch."""
    model = jaxops.onnx.load(verses)
    step = jaxops.onnx.decoder(model, length=32)
    prepared = step.prepare(model.params)
    for tokens in (PROMPT[:1, 0], PROMPT[:, 0], PROMPT, np.arange(64).reshape(4, 16)):
        state, logits = step(prepared, step.init(len(tokens)), tokens)
        expected_state, expected = step(model.params, step.init(len(tokens)), tokens)
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
        assert jax.tree.structure(state) == jax.tree.structure(expected_state)
    nothing = prepared._replace(values={})
    np.testing.assert_allclose(step(nothing, step.init(), PROMPT[:1])[1], step(prepared, step.init(), PROMPT[:1])[1])


def test_prepare_is_a_pure_function_of_the_parameters(verses):
    model = jaxops.onnx.load(verses)
    step = jaxops.onnx.decoder(model, length=32)
    doubled = {name: x * 2 if name.endswith("_scale") else x for name, x in model.params.items()}
    logits = {}
    for key, params in {"once": model.params, "doubled": doubled, "again": model.params}.items():
        prepared = step.prepare(params)
        traced = jax.jit(step.prepare)(params)
        jax.tree.map(np.testing.assert_array_equal, prepared, traced)
        logits[key] = step(prepared, step.init(), PROMPT[:1])[1]
        expected = step(params, step.init(), PROMPT[:1])[1]
        np.testing.assert_allclose(logits[key], expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(logits["once"], logits["again"])
    assert not np.allclose(logits["once"], logits["doubled"])


def test_one_program_serves_all_tokens(verses):
    model = jaxops.onnx.load(verses)
    step = jaxops.onnx.decoder(model, length=32)
    prepared, run = step.prepare(model.params), jax.jit(step, donate_argnums=1)
    state, logits = run(prepared, step.init(), PROMPT[:1])
    for _ in range(4):
        state, logits = run(prepared, state, logits.reshape(1, -1)[:, -logits.shape[-1] :].argmax(-1))
    assert run._cache_size() == 2


REFUSED = "a step with prepared parameters has kernels without a derivative and without a batching rule"


def test_transformations_are_refused(verses):
    model = jaxops.onnx.load(verses)
    step = jaxops.onnx.decoder(model, length=32)
    prepared, state = step.prepare(model.params), step.init()
    with pytest.raises(UnsupportedError, match=re.escape(REFUSED)):
        jax.vmap(lambda tokens: step(prepared, state, tokens)[1])(jnp.asarray(PROMPT)[:, :1])

    def loss(scale):
        params = {name: x * scale if name.endswith("_scale") else x for name, x in model.params.items()}
        return step(step.prepare(params), state, PROMPT[:1])[1].sum()

    with pytest.raises(UnsupportedError, match=re.escape(r"step(model.params, …)")):
        jax.grad(loss)(1.0)


def test_parameters_of_other_shapes(verses):
    model = jaxops.onnx.load(verses)
    step = jaxops.onnx.decoder(model, length=32)
    name = next(name for name in model.params if name.endswith("_scale"))
    with pytest.raises(ShapeError, match=re.escape(name)):
        step.prepare({**model.params, name: jnp.ones((1, 2))})
