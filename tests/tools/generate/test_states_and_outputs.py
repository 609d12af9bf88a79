"""Decoders with a state beside the caches, which each token updates, as the causal convolutions of LFM2 have one; and
with hidden states beside the logits, or in place of them."""

import json

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from decoders import agree, fixed, growing
from graphs import info
from language_models import GROUPS, HEAD, WIDTH, language_model

import jaxops.onnx
from jaxops.errors import ModelError, ShapeError, SignatureError, UnsupportedError

PROTO = language_model((0,), state=True)
PROMPTS = [np.random.default_rng(k).integers(1, 48, n).tolist() for k, n in enumerate((3, 7, 7, 5))]


def masks(batch, past, new):
    return {"attention_mask": np.ones((batch, past + new), np.int64)}


def test_a_step_keeps_the_state():
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(PROTO), length=24)
    feeds = {c.past.name: np.zeros((2, GROUPS, 0, HEAD), np.float32) for c in step.caches}
    feeds |= {"past.0.conv": np.zeros((2, WIDTH, 2), np.float32), "input_ids": np.array(PROMPTS[1:3])}
    caches = {c.past.name: c.present.name for c in step.caches}
    expected = growing(PROTO, caches, feeds, 12, others=masks)
    agree(fixed(step, model.params, step.init(2), feeds["input_ids"], 12), expected, 3e-5)


def test_prompts_give_what_each_gives_alone():
    model = jaxops.onnx.load(PROTO)
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=6)
    alone = [jaxops.onnx.generate(model, [prompt], max_tokens=6).tokens[0] for prompt in PROMPTS]
    np.testing.assert_array_equal(found.tokens, alone)


def test_chunks_and_what_is_refused():
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(PROTO), length=24)
    tokens = jnp.array(PROMPTS[1:2])
    state, logits = step(model.params, step.init(), tokens, last_only=True)
    again, in_chunks = step.prefill(model.params, step.init(), tokens, chunk=3)
    np.testing.assert_allclose(in_chunks, logits, atol=1e-4)
    np.testing.assert_allclose(again.caches["past.0.conv"], state.caches["past.0.conv"], atol=1e-5)
    with pytest.raises(SignatureError, match=r"unknown input 'attention_mask'; .*\n  hint .* run a prompt alone"):
        step(model.params, step.init(), tokens, attention_mask=jnp.ones((1, 7), np.int32))
    with pytest.raises(UnsupportedError, match="rewind: the caches have dropped tokens"):
        step.rewind(state, 1)


def test_the_file_beside_it_may_name_caches_of_later_layers(tmp_path):
    proto = language_model((0,))
    text = proto.SerializeToString().replace(b"past_key_values.0.", b"past_key_values.4.")
    onnx.save(onnx.ModelProto.FromString(text), tmp_path / "model.onnx")
    names = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    said = {"model": {"eos_token_id": 2, "vocab_size": 48, "decoder": {"inputs": names}}}
    (tmp_path / "genai_config.json").write_text(json.dumps(said))
    assert jaxops.onnx.generate(jaxops.onnx.load(tmp_path / "model.onnx"), PROMPTS[:1], max_tokens=2).tokens.size == 2


@pytest.fixture
def with_states():
    """A file that returns the hidden states before the logits."""
    proto = language_model((0,))
    proto.graph.node.append(onnx.helper.make_node("Identity", ["/model.norm"], ["hidden_states"]))
    others = list(proto.graph.output)
    del proto.graph.output[:]
    proto.graph.output.extend([info("hidden_states", ["batch_size", "sequence_length", WIDTH], 1), *others])
    return proto


def test_logits_are_found_by_their_name(with_states):
    plain, model = jaxops.onnx.load(language_model((0,))), jaxops.onnx.load(with_states)
    step = jaxops.onnx.decoder(model, length=8)
    assert step(model.params, step.init(), jnp.array([3]))[1].shape == (1, 48)
    expected = jaxops.onnx.generate(plain, PROMPTS, max_tokens=4)
    np.testing.assert_array_equal(jaxops.onnx.generate(model, PROMPTS, max_tokens=4).tokens, expected.tokens)


def test_hidden_states_are_no_logits(with_states):
    outputs = [v.name for v in with_states.graph.output if v.name != "logits"]
    model = jaxops.onnx.load(with_states, outputs=outputs)
    with pytest.raises(ModelError, match=r"generate: the model returns hidden_states: .* and no logits to choose"):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=2)


def test_an_error_of_the_model_is_not_one_of_unknown_sizes():
    """The sizes of caches are found by tracing the model, as `kv_cache_dim` is."""
    proto = language_model((0,))
    proto.graph.input.append(info("position_ids", [3, "batch_size", "sequence_length"], onnx.TensorProto.INT64))
    step = jaxops.onnx.decoder(jaxops.onnx.load(proto), length=8)
    assert "decoder of" in str(step)
    with pytest.raises(ShapeError, match=r"'position_ids' has shape \(1, 1\), but the model expects .*int64\[3, batch"):
        step.init()
