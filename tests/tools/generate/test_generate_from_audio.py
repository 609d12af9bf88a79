"""Text from audio by an encoder and a decoder, as Whisper: greedy tokens are those of full recomputation."""

import numpy as np
import onnx
import pytest
from decoder_graphs import merged
from decoders import MODELS, session

import jaxops.onnx

SPEECH = MODELS / "speech"
AUDIO = np.random.default_rng(0).normal(size=(3, 8, 24)).astype(np.float32)
PROMPTS = [[1], [1, 9, 4], [1]]
COUNT = 12


@pytest.fixture(scope="module")
def states():
    """What the encoder hears in each recording, (3, 12, 16)."""
    return jaxops.onnx.load(SPEECH / "encoder.onnx")(AUDIO)


@pytest.fixture(scope="module")
def recomputed():
    """The likeliest tokens of each row, and the logarithms of their probabilities, by onnxruntime without caches."""
    (heard,) = session(SPEECH / "encoder.onnx").run(None, {"input_features": AUDIO})
    run, found = session(SPEECH / "first.onnx"), []
    for row, prompt in enumerate(PROMPTS):
        tokens, logs = list(prompt), []
        for _ in range(COUNT):
            feeds = {"input_ids": np.array([tokens]), "encoder_hidden_states": heard[row : row + 1]}
            logits = run.run(["logits"], feeds)[0][0, -1].astype(np.float64)
            tokens.append(int(logits.argmax()))
            logs.append(logits.max() - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
        found.append((tokens[len(prompt) :], logs))
    return found


def agree(found, recomputed):
    for row, (tokens, logs) in enumerate(recomputed):
        assert found.tokens[row, 0].tolist() == tokens
        np.testing.assert_allclose(found.log_probabilities[row, 0], logs, rtol=0, atol=1e-4)


def test_one_file_with_both_decoders(states, recomputed):
    first, third = recomputed[0][0], recomputed[2][0]
    assert len(set(first)) > 5
    assert first != third  # the prompts are equal, but not the recordings
    model = jaxops.onnx.load(merged(*(onnx.load(SPEECH / f"{name}.onnx") for name in ("first", "later"))))
    agree(jaxops.onnx.generate(model, PROMPTS, max_tokens=COUNT, encoder_hidden_states=states), recomputed)


def test_a_file_for_each_decoder(states, recomputed):
    """The first one makes keys and values of the audio, once; the decoder of later tokens takes the prompt, too."""
    first, later = (jaxops.onnx.load(SPEECH / f"{name}.onnx") for name in ("first", "later"))
    made = first({"input_ids": np.ones((3, 1), np.int64), "encoder_hidden_states": states}, outputs="*")
    cross = {
        name.replace("present", "past_key_values"): x for name, x in made.items() if name.startswith("present.0.enc")
    }
    agree(jaxops.onnx.generate(later, PROMPTS, max_tokens=COUNT, **cross), recomputed)
