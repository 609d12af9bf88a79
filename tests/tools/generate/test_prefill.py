"""`step.prefill` takes a long prompt in chunks, and gives what the whole prompt at once gives."""

import functools

import chex
import jax
import numpy as np
import pytest
from decoder_graphs import group_query, no_mask, tokens_before_heads
from language_models import language_model

import jaxops.onnx
from jaxops.errors import ArgumentError, ShapeError

PROMPTS = np.random.default_rng(0).integers(0, 40, (2, 11))
FILES = {
    "lengths": group_query,
    "positions": tokens_before_heads,
    "sizes alone": no_mask,
    "sliding windows": lambda: language_model((4, 0)),
}


@functools.cache
def loaded(name):
    model = jaxops.onnx.load(FILES[name]())
    return model, jaxops.onnx.decoder(model, length=16)


def close(found, expected):
    chex.assert_trees_all_close(found, expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("name", FILES)
def test_chunks_give_what_the_whole_prompt_gives(name):
    model, step = loaded(name)
    state, every = step(model.params, step.init(2), PROMPTS)
    found = step.prefill(model.params, step.init(2), PROMPTS, chunk=4)
    close(found, (state, every[:, -1]))
    if name in ("lengths", "sizes alone"):  # with padding in the first chunk, and without
        close(jax.jit(lambda *args: step.prefill(*args, chunk=6))(model.params, step.init(2), PROMPTS), found)
    # Later tokens continue a state.
    first = step.prefill(model.params, step.init(2), PROMPTS[:, :6], chunk=4)[0]
    close(step.prefill(model.params, first, PROMPTS[:, 6:], chunk=4), found)


@pytest.mark.parametrize("name", ["lengths", "positions", "sliding windows"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_prompts(name, side):
    """A row with padding in its last chunk has the logits of its own last token."""
    model, step = loaded(name)
    mask = np.ones(PROMPTS.shape, int)
    mask[1] = np.arange(11) >= 6 if side == "left" else np.arange(11) < 5
    found = step.prefill(model.params, step.init(2), PROMPTS, chunk=4, **{step.mask_name: mask})
    close(found, step(model.params, step.init(2), PROMPTS, last_only=True, **{step.mask_name: mask}))


def test_one_program_serves_prompts_of_all_lengths():
    model = jaxops.onnx.load(FILES["lengths"]())
    step = jaxops.onnx.decoder(model, length=16)
    for count in (1, 3, 4, 7, 11):
        step.prefill(model.params, step.init(1), PROMPTS[:1, :count], chunk=4)
    assert step._compiled._cache_size() == 1


def test_errors():
    model, step = loaded("lengths")
    with pytest.raises(ShapeError, match="17 tokens are more than the length 16 of the decoder"):
        step.prefill(model.params, step.init(1), np.zeros((1, 17), int), chunk=4)
    with pytest.raises(ArgumentError, match="prefill: `chunk` is 0"):
        step.prefill(model.params, step.init(1), PROMPTS[:1], chunk=0)
    for run in (step, step.prefill):
        with pytest.raises(ShapeError, match=r"tokens of shape \(4,\) are one token .*\n.*has shape \(1, 4\)"):
            run(model.params, step.init(1), [1, 5, 17, 33])
