"""The choice of a token, beside the definitions of its options in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxops.tools.generate.sampling import Numbers, Sampling, log_probabilities, next_tokens

SIZE, DRAWS = 12, 4000
DRAW = jax.jit(next_tokens, static_argnums=3)
OFF = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
OPTIONS = {
    "temperature": {"temperature": 0.5},
    "top_k": {"top_k": 4},
    "top_k of all": {"top_k": 100},
    "top_p": {"top_p": 0.6},
    "a small top_p": {"top_p": 1e-6},
    "min_p": {"min_p": 0.2},
    "penalty": {"repetition_penalty": 1.7},
    "all": {"temperature": 0.8, "top_k": 6, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.3},
    "top_k before top_p": {"top_k": 3, "top_p": 0.7},
    "suppressed": {"suppressed": (1, 4, 7)},
    "suppressed before top_k": {"suppressed": (1, 4, 7), "top_k": 3, "top_p": 0.8, "min_p": 0.1},
}


def probabilities(logits, seen, *, top_k=0, suppressed=(), **given):
    """The probability of each token, one option after the other, as their documentation defines them."""
    options = OFF | given
    scores = np.where(logits > 0, logits / options["repetition_penalty"], logits * options["repetition_penalty"])
    scores = np.where(seen, scores, logits).astype(np.float64) / options["temperature"]
    scores[list(suppressed)] = -np.inf
    order = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    kept = order[: top_k or None]
    if options["top_p"] < 1:
        weights = np.exp(scores[kept] - scores[kept].max())
        reached = np.cumsum(weights / weights.sum())
        kept = kept[: int(np.sum(reached < options["top_p"])) + 1]
    kept = [token for token in kept if np.exp(scores[token] - scores[order[0]]) >= options["min_p"]]
    found = np.zeros(len(scores))
    found[kept] = np.exp(scores[kept] - scores[kept].max())
    return found / found.sum()


def drawn(logits, seen, count=DRAWS, *, top_k=0, suppressed=(), **given):
    options = OFF | given
    sampling = Sampling(True, top_k, options["top_p"] < 1, options["repetition_penalty"] != 1)
    rows = np.broadcast_to(np.float32(logits), (count, len(logits)))
    keys = jax.random.split(jax.random.key(7), count)
    numbers = Numbers(*(jnp.float32(options[name]) for name in Numbers._fields))
    suppressed = np.isin(np.arange(len(logits)), suppressed) if suppressed else None
    return np.asarray(DRAW(rows, np.broadcast_to(seen, rows.shape), keys, sampling, numbers, suppressed))


@pytest.mark.parametrize("name", OPTIONS)
def test_frequencies(name):
    """The chi-square of the draws is not in the last ten-thousandth, and tokens left out are never drawn."""
    rng = np.random.default_rng(3)
    logits, seen = rng.normal(size=SIZE) * 1.5, rng.random(SIZE) < 0.4
    expected = probabilities(np.float32(logits), seen, **OPTIONS[name]) * DRAWS
    counts = np.bincount(drawn(logits, seen, **OPTIONS[name]), minlength=SIZE)
    assert not counts[expected == 0].any()
    likely = expected > 5
    chi = np.sum((counts - expected)[likely] ** 2 / expected[likely])
    freedom = max(1, likely.sum() - 1)
    assert chi < freedom + 4 * np.sqrt(2 * freedom) + 6, (counts, expected)


def test_a_wrong_choice_is_seen():
    """The measure of `test_frequencies` is large for draws without the option."""
    logits = np.random.default_rng(3).normal(size=SIZE) * 1.5
    expected = probabilities(np.float32(logits), np.zeros(SIZE, bool), temperature=0.5) * DRAWS
    counts = np.bincount(drawn(logits, np.zeros(SIZE, bool)), minlength=SIZE)
    assert np.sum((counts - expected)[expected > 5] ** 2 / expected[expected > 5]) > 300


def test_equally_likely_tokens():
    """The first ones remain, exactly `top_k` of them."""
    none = np.zeros(6, bool)
    assert set(drawn([1, 3, 3, 3, 3, 0], none, 200, top_k=2)) == {1, 2}
    assert set(drawn([2, 2, 2, 2, 2, 2], none, 200, top_p=0.5)) == {0, 1, 2}
    assert set(drawn([2, 2, 2, 2, 2, 0], none, 200, min_p=1.0)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_infinite_logits(options):
    """A logit of infinity is certain, one of minus infinity never is."""
    none = np.zeros(5, bool)
    assert set(drawn([1, np.inf, 2, np.inf, -np.inf], none, 200, **options)) == {1, 3}
    assert set(drawn([-np.inf, 1.0, -np.inf, 1.1, 1.0], none, 200, **options)) == {1, 3, 4}
    logits = np.float32([[1, np.inf, 2, np.inf, -np.inf]])
    np.testing.assert_allclose(log_probabilities(logits, jnp.array([3])), [np.log(0.5)], rtol=1e-6)


def test_the_likeliest_token():
    logits = np.float32([[1, 4, 4, 2], [-3, -1, -2, -1], [0.5, 2, 1.9, 0]])
    seen = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]], bool)
    run = jax.jit(functools.partial(next_tokens, sampling=Sampling(penalizes=True)))
    numbers = Numbers(*map(jnp.float32, (1.0, 1.0, 0.0, 1.5)))
    assert run(logits, seen, None, numbers=numbers).tolist() == [1, 3, 2]
    assert next_tokens(logits, seen, None, Sampling(), numbers).tolist() == [1, 1, 1]
    suppressed = np.array([False, True, False, False])
    assert run(logits, seen, None, numbers=numbers, suppressed=suppressed).tolist() == [2, 3, 2]
    certain = np.float32([[1, np.inf, 0, 2]])
    assert next_tokens(certain, seen[:1], None, Sampling(), numbers, suppressed).tolist() == [3]


def test_log_probabilities():
    logits = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float16)
    expected = np.float64(logits) - np.log(np.exp(np.float64(logits)).sum(-1, keepdims=True))
    found = jax.jit(log_probabilities)(logits, np.array([0, 6, 3]))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected[[0, 1, 2], [0, 6, 3]], rtol=1e-5)
