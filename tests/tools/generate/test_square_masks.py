"""A file whose mask fits a prompt after no tokens, or one token at a time, as gpt-oss in float16."""

import jax
import numpy as np
import pytest
from decoder_graphs import no_mask, square_mask
from decoders import agree, fixed, growing

import jaxops.onnx
from jaxops.errors import ShapeError

PROMPT = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
NEVER_FITS = "two_columns = Range(zero, two, one) mask = LessOrEqual(two_columns, rows)"
MASK = np.array([[1, 1, 1, 1], [0, 0, 1, 1]])


@pytest.fixture(scope="module")
def loaded():
    model = jaxops.onnx.load(square_mask())
    return model.params, jaxops.onnx.decoder(model, length=16)


def others(batch, past, new):
    places = np.broadcast_to(np.arange(past, past + new), (batch, new))
    return {"attention_mask": np.ones((batch, past + new), np.int64), "position_ids": places}


def test_generation(loaded):
    params, step = loaded
    names = {"past_k": "present_k", "past_v": "present_v"}
    past = {name: np.zeros((2, 2, 0, 8), np.float32) for name in names}
    expected = growing(square_mask(), names, {"input_ids": PROMPT, **past}, 10, others=others)
    agree(fixed(step, params, step.init(2), PROMPT, 10), expected, 3e-5)


def test_tokens_after_others_are_taken_in_turn(loaded):
    """Rows of different lengths, with padding, give what each gives alone."""
    params, step = loaded
    state, _ = step(params, step.init(2), PROMPT, attention_mask=MASK)
    more = np.array([[9, 10, 11], [12, 13, 33]])
    mask = np.array([[1, 1, 1], [1, 1, 0]])
    state, logits = step(params, state, more, attention_mask=mask)
    assert state.position.tolist() == [7, 4]
    for row, tokens in enumerate(([1, 2, 3, 4, 9, 10, 11], [7, 8, 12, 13])):
        alone, expected = step.init(), []
        for token in tokens:
            alone, logits_of_token = step(params, alone, np.array([token]))
            expected.append(logits_of_token[0])
        count = mask[row].sum()
        np.testing.assert_allclose(logits[row, :count], expected[-count:], rtol=0, atol=3e-5)
        for name, cache in alone.caches.items():
            np.testing.assert_allclose(state.caches[name][row], cache[0], rtol=0, atol=3e-5)
    assert np.isnan(logits[1, 2]).all()


def test_the_last_token_alone(loaded):
    params, step = loaded
    given = {"attention_mask": MASK}
    state, every = step(params, step.init(2), PROMPT, **given)
    found, last = step.prefill(params, step.init(2), PROMPT, chunk=3, **given)
    np.testing.assert_allclose(last, every[:, -1], rtol=0, atol=3e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=3e-5), found, state)


@pytest.mark.parametrize(("prompt", "sizes"), [(PROMPT[:1], r"\(4, 2\)"), (PROMPT[:1, :1], r"\(1, 2\).* s\)")])
def test_a_mask_that_never_fits(prompt, sizes):
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(no_mask(mask=NEVER_FITS)), length=16)
    with pytest.raises(ShapeError, match=f"where: .*{sizes}"):
        step(model.params, step.init(), prompt)
