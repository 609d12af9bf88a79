"""Speculative decoding finds the tokens of the target alone, whatever the draft proposes."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_graphs import group_query, in_place, no_mask, tokens_before_heads
from language_models import language_model

import jaxops.onnx
from jaxops.errors import ArgumentError, ShapeError, SignatureError, UnsupportedError

PROMPTS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9]])
MASK = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 0, 0, 0]])
COUNT, LENGTH = 12, 24


@functools.cache
def loaded(graph, *options):
    model = jaxops.onnx.load(graph(*options))
    return model.params, jaxops.onnx.decoder(model, length=LENGTH)


def near(params, scale):
    """Parameters of a draft that often agrees."""
    rng = np.random.default_rng(1)
    return {k: x + scale * rng.normal(size=x.shape).astype(x.dtype) if x.ndim > 1 else x for k, x in params.items()}


def greedy(params, step, prompts, **named):
    state, logits = step(params, step.init(len(prompts)), prompts, last_only=True, **named)

    def one(carry, _):
        state, token = carry
        state, logits = step(params, state, token)
        return (state, logits.argmax(-1)), token

    _, found = jax.lax.scan(one, (state, logits.argmax(-1)), length=COUNT)
    return found.T


DRAFTS = {"itself": 0.0, "one that often agrees": 0.03, "one that never agrees": 3.0}


@functools.cache
def speculation(graph):
    step = loaded(graph)[1]
    return jaxops.onnx.speculative(step, step, ahead=3)


@functools.cache
def tokens_of_the_target(graph):
    params, step = loaded(graph)
    return greedy(params, step, PROMPTS, **{step.mask_name: MASK})


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("graph", [group_query, tokens_before_heads])
def test_tokens_of_the_target_alone(graph, draft):
    params = loaded(graph)[0]
    run = speculation(graph)
    found = run(params, near(params, DRAFTS[draft]), PROMPTS, count=COUNT, mask=MASK)
    np.testing.assert_array_equal(found.tokens, tokens_of_the_target(graph))
    least, most = {"itself": (4, 4), "one that often agrees": (4, 11), "one that never agrees": (7, 12)}[draft]
    assert least <= found.steps <= most


def test_two_models_without_a_mask():
    (params, step), (of_draft, draft) = loaded(no_mask), loaded(in_place, "M")
    found = jaxops.onnx.speculative(step, draft, ahead=2)(params, of_draft, PROMPTS, count=COUNT)
    np.testing.assert_array_equal(found.tokens, greedy(params, step, PROMPTS))


def test_it_is_compiled_once_and_pickled():
    params, step = loaded(no_mask)
    run = jaxops.onnx.speculative(step, step)
    found = [run(params, params, prompts, count=3).tokens for prompts in (PROMPTS, PROMPTS + 1)]
    assert run._compiled._cache_size() == 1
    copy = pickle.loads(pickle.dumps(run))
    np.testing.assert_array_equal(copy(params, params, PROMPTS, count=3).tokens, found[0])


def test_errors():
    params, step = loaded(no_mask)
    with pytest.raises(ArgumentError, match="speculative: `ahead` is 0"):
        jaxops.onnx.speculative(step, step, ahead=0)
    run = jaxops.onnx.speculative(step, step)
    with pytest.raises(ShapeError, match=r"speculative: the target has room for 24 tokens, but prompts of 5, 16 more"):
        run(params, params, PROMPTS, count=16)
    with pytest.raises(ShapeError, match=r"speculative: `prompts` must be integers \(B, n\), not int\d+\[5\]"):
        run(params, params, PROMPTS[0], count=2)
    with pytest.raises(SignatureError, match="speculative: the target takes neither a mask nor lengths"):
        run(params, params, PROMPTS, count=2, mask=MASK)
    of_other, other = loaded(language_model, (0,))
    with pytest.raises(ShapeError, match="speculative: the target chooses from 40 tokens, and the draft from 48"):
        jaxops.onnx.speculative(step, other)(params, of_other, PROMPTS, count=2)
    of_sliding, sliding = loaded(language_model, (4, 0))
    with pytest.raises(UnsupportedError, match="rewind: the caches have dropped tokens"):
        jaxops.onnx.speculative(sliding, sliding)(of_sliding, of_sliding, jnp.asarray(PROMPTS), count=2)
