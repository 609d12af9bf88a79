"""`generate` takes long prompts in chunks, and gives what it gives for whole ones."""

import numpy as np
import pytest
from decoder_graphs import no_mask, square_mask
from language_models import language_model

import jaxops.onnx
from jaxops.tools.generate import prompt_programs

PROMPTS = [[7, 3], [30, 2, 11, 4, 5, 6, 7, 8, 9]]
FILES = {
    "sliding windows": (lambda: language_model((4,)), [1, 4]),
    "neither mask nor lengths": (no_mask, [1, 2, 4]),
    "a mask that fits after no tokens": (square_mask, [1, 16]),
}


@pytest.mark.parametrize("name", FILES)
def test_chunks_give_what_whole_prompts_give(name, monkeypatch):
    """A file that would take later tokens in turn still takes its prompts whole."""
    file, sizes = FILES[name]
    expected = jaxops.onnx.generate(jaxops.onnx.load(file()), PROMPTS, max_tokens=5)
    taken, of_step = set(), prompt_programs.Decoder._step
    monkeypatch.setattr(prompt_programs, "_CHUNK", 4)

    def noted(step, last_only, params, state, tokens, named):
        taken.add(tokens.shape[1])
        return of_step(step, last_only, params, state, tokens, named)

    monkeypatch.setattr(prompt_programs.Decoder, "_step", noted)
    found = jaxops.onnx.generate(jaxops.onnx.load(file()), PROMPTS, max_tokens=5)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.log_probabilities, expected.log_probabilities, rtol=0, atol=1e-4)
    assert sorted(taken) == sizes
