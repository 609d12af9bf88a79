"""Tokens drawn by the probabilities of a small decoder: as often as onnxruntime draws them."""

import jax
import numpy as np
import pytest
from search_models import VOCABULARY, gpt, logits, model_of_search, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, ShapeError, UnsupportedError
from jaxops.onnx import load

ROWS = 6000
IDS = np.tile(np.array([[12, 13, 18]], np.int32), (ROWS, 1))
ENDS = {"eos_token_id": -1, "pad_token_id": 1}
WORDS = (np.arange(VOCABULARY) % 3 > 0).astype(np.int32)
PRESENT = np.tile((np.arange(VOCABULARY) % 2).astype(np.int32), (ROWS, 1))


def some(*numbers):
    return np.array(numbers, np.int32)


def inputs(ids=IDS, max_length=4, seed=3, **others):
    names = ("min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "presence_mask")
    return {"input_ids": ids, "max_length": some(max_length), **dict.fromkeys(names), "seed": some(seed)} | others


def counts(sequences):
    return np.bincount(np.asarray(sequences)[:, 3], minlength=VOCABULARY)


CASES = [
    ({}, {"top_p": 1.0}),
    ({}, {"top_p": 0.8}),
    ({}, {"top_p": 0.5, "temperature": 2.0}),
    ({}, {"top_p": 0.5, "custom": 1}),
    ({}, {"top_p": 0.9, "custom": 1, "temperature": 3.0}),
    ({}, {"top_p": 0.1, "min_tokens_to_keep": 5}),
    ({}, {"top_p": 0.6, "filter_value": -1.0}),
    ({"vocab_mask": WORDS, "repetition_penalty": np.float32([1.5])}, {"top_p": 0.95, "temperature": 2.0}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ",".join([*case[0], *case[1]]))
def test_tokens_come_as_often_as_in_onnxruntime(case):
    given, attributes = case
    model, values = model_of_search("Sampling", inputs(**given), decoder=gpt(0, 1.0), **ENDS | attributes)
    found, expected = counts(load(model)(*values.values())), counts(runtime(model, values)[0])
    assert found.sum() == ROWS
    drawn = found + expected
    # Two samples of one distribution: chi-square, over the tokens that come often enough.
    often = drawn >= 10
    statistic = ((found - expected)[often] ** 2 / drawn[often]).sum()
    free = often.sum() - 1
    assert statistic < free + 5 * np.sqrt(2 * free) + 5
    assert drawn[~often].sum() < 60


def test_a_penalty_of_presence():
    # onnxruntime's CPU reads the mask, and ignores it.
    attributes = {"top_p": 1.0, "presence_penalty": 1.5, "temperature": 2.0}
    model, values = model_of_search(
        "Sampling", inputs(presence_mask=PRESENT), decoder=gpt(0, 1.0), **ENDS, **attributes
    )
    found = counts(load(model)(*values.values()))
    scores = logits(gpt(0, 1.0), IDS[:1]) / 2 - 1.5 * PRESENT[0]
    expected = ROWS * np.exp(scores) / np.exp(scores).sum()
    often = expected >= 5
    statistic = ((found - expected)[often] ** 2 / expected[often]).sum()
    assert statistic < often.sum() + 5 * np.sqrt(2 * often.sum())


def test_the_likeliest_tokens_are_kept():
    model, values = model_of_search("Sampling", inputs(), decoder=gpt(0, 1.0), **ENDS, top_p=0.1, min_tokens_to_keep=5)
    assert (counts(load(model)(*values.values())) > 0).sum() == 5
    greedy, _ = model_of_search("GreedySearch", dict(list(values.items())[:2]), decoder=gpt(0, 1.0), **ENDS)
    model, values = model_of_search("Sampling", inputs(), decoder=gpt(0, 1.0), **ENDS, top_p=0.1, custom=1)
    np.testing.assert_array_equal(load(model)(*values.values()), load(greedy)(*list(values.values())[:2]))


def test_a_seed_decides_all():
    model, values = model_of_search("Sampling", inputs(IDS[:50], 12), decoder=gpt(0, 1.0), **ENDS, top_p=0.9)
    loaded = load(model)
    first, again = loaded(*values.values()), loaded(*values.values())
    np.testing.assert_array_equal(first, again)
    other = loaded(*[some(4) if name == "seed" else x for name, x in values.items()])
    assert (np.asarray(first) != np.asarray(other)).any()
    length = values["max_length"]
    jitted = jax.jit(lambda ids, seed: loaded(ids, length, seed))
    np.testing.assert_array_equal(jitted(values["input_ids"], values["seed"]), first)
    # Each step draws anew.
    assert len(np.unique(np.asarray(first)[:, 3:])) > 3


def call(**others):
    def decoder(*given):
        raise AssertionError

    decoder.inputs = [None] * 3 + [jax.ShapeDtypeStruct((2, 1, 1, 0, 1), np.float32)]
    return ms.sampling(IDS[:2], 9, **{"decoder": decoder, **ENDS, **others})


ERRORS = [
    (lambda: call(n_outputs=2), UnsupportedError, "the output `filtered_logits` is not supported"),
    (lambda: call(min_tokens_to_keep=-1), ArgumentError, "`min_tokens_to_keep` is -1; it must be at least 0"),
    (lambda: call(seed=some(1, 2)), ShapeError, r"`seed` of \(2,\) must be one integer"),
    (lambda: call(model_type=1), UnsupportedError, "sampling: `model_type` is 1; it must be 0"),
]


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case[2])
def test_errors(case):
    run, kind, text = case
    with pytest.raises(kind, match=text):
        run()
