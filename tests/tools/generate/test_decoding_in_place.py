"""A decoder whose caches keep their size gives what onnxruntime gives with growing caches and the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_graphs import in_place, no_mask
from decoders import agree, fixed, growing

import jaxops.onnx
from jaxops.errors import ModelError, ShapeError

PROMPT = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])


@pytest.mark.parametrize(("room", "attention"), [("M", False), (16, True)])
def test_caches_that_are_written_in_place(room, attention):
    """TensorScatter, beside the loop of growing caches with the same weights."""
    count = 12
    model = jaxops.onnx.load(in_place(room, attention))
    step = jaxops.onnx.decoder(model, length=16)
    grown = no_mask()
    names = {"past_k": "present_k", "past_v": "present_v"}
    past = {name: np.zeros((2, 2, 0, 8), np.float32) for name in names}
    expected = growing(grown, names, {"input_ids": PROMPT, **past}, count)
    agree(fixed(step, model.params, step.init(2), PROMPT, count), expected, 3e-5)
    assert {c.past.name: c.present.name for c in step.caches} == names
    state = step.init(2)
    for tokens in (PROMPT, PROMPT, PROMPT, PROMPT):
        state, logits = step(model.params, state, tokens)
    assert not jnp.isnan(logits).any()
    _, logits = jax.jit(step)(model.params, state, PROMPT[:, 0])
    assert jnp.isnan(logits).all()


@pytest.mark.parametrize("attention", [False, True])
def test_circular_caches_hold_the_last_tokens(attention):
    """Beside a loop of onnxruntime, which is handed the same caches; generates three times what they hold."""
    room, count = 8, 24
    proto = in_place(room, attention, "circular")
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(proto), length=room)
    past = {name: np.zeros((2, 2, room, 8), np.float32) for name in ("past_k", "past_v")}

    def others(batch, before, new):
        rows = {"nonpad_kv_seqlen": np.full(batch, min(before + new, room))} if attention else {}
        return {"write_indices": np.full(batch, before), **rows}

    names = {"past_k": "present_k", "past_v": "present_v"}
    expected = growing(proto, names, {"input_ids": PROMPT, **past}, count, others=others)
    agree(fixed(step, model.params, step.init(2), PROMPT, count), expected, 3e-5)


def test_caches_in_place_have_a_size():
    with pytest.raises(ShapeError, match=r"past_k: .* has room for 16 tokens, not for 32\n.*length=16\)"):
        jaxops.onnx.decoder(jaxops.onnx.load(in_place(16)), length=32)
    growing_caches = no_mask(inputs="int64[N] write_indices", sizes=("M", "M"))
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(growing_caches), length=8)
    with pytest.raises(
        ModelError, match=r"'past_k' is declared to keep its size \(1, 2, 8, 8\), but .* \(1, 2, 9, 8\)"
    ):
        step(model.params, step.init(1), np.array([1]))
