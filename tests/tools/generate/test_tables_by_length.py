"""Files that read other tables of positions for many tokens than for few (LongRoPE), as Phi-3 does with a long text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoders import agree, fixed, growing
from language_models import GROUPS, HEAD, language_model

import jaxops.onnx
from jaxops.errors import UnsupportedError

FEW = 12
PROTO = language_model((0, 0), few=FEW)
PROMPTS = [np.random.default_rng(k).integers(1, 48, n).tolist() for k, n in enumerate((3, 11, 12, 14))]


def one_by_one(model, prompt, count):
    """The likeliest tokens by calls of the file itself, whose caches grow."""
    tokens, written = np.array([prompt]), []
    caches = {v.name: np.zeros((1, GROUPS, 0, HEAD), np.float32) for v in model.inputs if "past" in v.name}
    for k in range(count):
        mask = np.ones((1, len(prompt) + k), np.int64)
        logits, *presents = model({"input_ids": tokens, "attention_mask": mask, **caches})
        names = [v.name.replace("present", "past_key_values") for v in model.outputs[1:]]
        caches, tokens = dict(zip(names, presents, strict=True)), np.asarray(logits[:, -1:]).argmax(-1)
        written.append(int(tokens[0, 0]))
    return written


@pytest.mark.parametrize("length", [3, 9])
def test_generation_beyond_the_few(length):
    """The step changes the tables where onnxruntime does."""
    model = jaxops.onnx.load(PROTO)
    step = jaxops.onnx.decoder(model, length=32)
    feeds = {c.past.name: np.zeros((2, GROUPS, 0, HEAD), np.float32) for c in step.caches}
    feeds["input_ids"] = np.random.default_rng(0).integers(1, 48, (2, length))
    masks = {"others": lambda batch, past, new: {"attention_mask": np.ones((batch, past + new), np.int64)}}
    expected = growing(PROTO, {c.past.name: c.present.name for c in step.caches}, feeds, 16, **masks)
    agree(fixed(step, model.params, step.init(2), feeds["input_ids"], 16), expected, 3e-5)


def test_rows_change_tables_by_their_own_tokens():
    """Neither the padding of shorter prompts nor longer ones beside them count."""
    model = jaxops.onnx.load(PROTO)
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=8)
    assert found.tokens[:, 0].tolist() == [one_by_one(model, prompt, 8) for prompt in PROMPTS]


@pytest.mark.parametrize("side", [0, 1])
def test_padding_and_chunks(side):
    """A padded prompt, and one in chunks, reads the tables for its number of tokens, as the prompt alone does."""
    model = jaxops.onnx.load(PROTO)
    step = jaxops.onnx.decoder(model, length=32)
    short, long = PROMPTS[1], PROMPTS[3]
    more = [0] * (len(long) - len(short))
    row = [more + short, short + more][side]
    tokens, mask = jnp.array([row, long]), jnp.array([[int(t > 0) for t in row], [1] * len(long)])
    expected = [step(model.params, step.init(), jnp.array([p]))[1][0, -1] for p in (short, long)]
    _, at_once = step(model.params, step.init(2), tokens, attention_mask=mask, last_only=True)
    _, in_chunks = step.prefill(model.params, step.init(2), tokens, attention_mask=mask, chunk=4)
    _, traced = jax.jit(lambda p, s, t, m: step.prefill(p, s, t, attention_mask=m, chunk=4))(
        model.params, step.init(2), tokens, mask
    )
    for found in (at_once, in_chunks, traced):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_draft_needs_one_pair_of_tables():
    model = jaxops.onnx.load(PROTO)
    step, short = (jaxops.onnx.decoder(model, length=length) for length in (32, FEW))
    prompt = jnp.array(PROMPTS[:1])
    with pytest.raises(UnsupportedError, match=r"speculative: the target reads other tables .* for many tokens than"):
        jaxops.onnx.speculative(step, step)(model.params, model.params, prompt, count=4)
    (tokens,), _ = jaxops.onnx.speculative(short, short)(model.params, model.params, prompt, count=4)
    assert tokens.tolist() == one_by_one(model, PROMPTS[0], 4)


def test_tables_are_not_trained():
    flags = jaxops.onnx.load(PROTO).trainable
    tables = {f"{wave}_cache_{rows}" for rows in (64, FEW) for wave in ("cos", "sin")}
    assert {name for name, trained in flags.items() if not trained} == tables
