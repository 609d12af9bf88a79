"""Caches in bfloat16 take half of the memory of those in float32, and give values near theirs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_graphs import group_query, in_place, no_mask
from language_models import language_model

import jaxops.onnx
from jaxops.errors import DTypeError

PROMPT = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
FILES = {
    "GroupQueryAttention": group_query,
    "sizes alone": no_mask,
    "written in place": lambda: in_place("M"),
    "sliding windows": lambda: language_model((4,)),
}


@functools.cache
def loaded(name, **options):
    model = jaxops.onnx.load(FILES[name]())
    return model.params, jaxops.onnx.decoder(model, length=16, **options)


def tokens_of(params, step):
    state, logits = step(params, step.init(2), PROMPT)
    found = [logits[:, -1]]
    for token in PROMPT.T:
        state, logits = step(params, state, token)
        found.append(logits)
    return state, np.stack(found)


@pytest.mark.parametrize("name", FILES)
def test_values_are_near_those_of_float32(name):
    (params, exact), (_, step) = loaded(name), loaded(name, cache_dtype=jnp.bfloat16)
    (wide, expected), (state, found) = tokens_of(params, exact), tokens_of(params, step)
    assert {x.dtype for x in state.caches.values()} == {jnp.dtype(jnp.bfloat16)}
    assert 2 * sum(x.nbytes for x in state.caches.values()) == sum(x.nbytes for x in wide.caches.values())
    assert found.dtype == np.float32
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert 0 < error < 0.02


def test_a_state_is_rounded_once():
    """Keys and values stay as they are while tokens are added, and a row goes to another state."""
    params, step = loaded("sizes alone", cache_dtype=jnp.bfloat16)
    state, _ = step(params, step.init(2), PROMPT)
    before = {name: np.asarray(x[:, :, :4].astype(np.float32)) for name, x in state.caches.items()}
    for token in PROMPT.T:
        state, _ = step(params, state, token)
    state = step.insert(step.init(2), [1, 0], state)
    for name, x in state.caches.items():
        np.testing.assert_array_equal(x[::-1, :, :4].astype(np.float32), before[name])
    past = {name: x[:, :, :4] for name, x in before.items()}
    assert {x.dtype for x in step.init(past=past).caches.values()} == {jnp.dtype(jnp.bfloat16)}


def test_donated_caches_are_written_in_place():
    params, step = loaded("GroupQueryAttention", cache_dtype=jnp.bfloat16)
    state = step.init(2)
    compiled = jax.jit(step, donate_argnums=1).lower(params, state, PROMPT[:, 0]).compile()
    assert compiled.memory_analysis().alias_size_in_bytes >= sum(x.nbytes for x in state.caches.values())


def test_what_they_take():
    """2 caches of 2 heads, 16 tokens and 8 numbers."""
    (_, wide), (_, step) = loaded("sizes alone"), loaded("sizes alone", cache_dtype=jnp.bfloat16)
    assert repr(wide).splitlines()[0] == "decoder of decoder · 16 tokens · caches of 2 KiB for each row"
    assert repr(step).splitlines()[0] == "decoder of decoder · 16 tokens · caches of 1 KiB for each row"


def test_errors():
    with pytest.raises(DTypeError, match=r"decoder: `cache_dtype` is int8, for past_k: .*; both must be floating"):
        loaded("sizes alone", cache_dtype=np.int8)
