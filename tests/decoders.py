"""Generation by onnxruntime with growing caches, and by `jaxops.onnx.decoder`, to compare.

Small random models repeat a token for ever. So the next token is the likeliest one plus the number of the step.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime

MODELS = Path(__file__).parent / "models"


def session(model):
    """An onnxruntime session of a path or ModelProto."""
    return onnxruntime.InferenceSession(model if isinstance(model, str | Path) else model.SerializeToString())


def growing(model, caches, feeds, count, *, others=lambda batch, past, new: {}):
    """(tokens (B, count), logits of each, (count, B, V)) of a loop of onnxruntime.

    caches: input → output. feeds: what the first call takes, the caches included. others: further inputs of a call,
    from the size of the batch, the number of past tokens and of new ones.
    """
    run, tokens = session(model), "input_ids"
    names = [o.name for o in run.get_outputs()]
    first, logits_of, chosen = dict(feeds), [], []
    (batch, new), past = first[tokens].shape, 0
    for k in range(count):
        found = dict(zip(names, run.run(None, first | others(batch, past, new)), strict=True))
        logits = next(value for name, value in found.items() if name not in caches.values())
        past += new
        logits_of.append(logits[:, -1])
        chosen.append((logits_of[-1].argmax(-1) + k) % logits.shape[-1])
        new = 1
        first = {name: value for name, value in first.items() if name not in caches and name != tokens}
        first |= {given: found[made] for given, made in caches.items()}
        first[tokens] = chosen[-1][:, None].astype(feeds[tokens].dtype)
    return np.stack(chosen, 1), np.stack(logits_of)


def fixed(step, params, state, prompt, count, *, prompted=None, **named):
    """The same by a decoder, in one compiled program. prompted: inputs of the prompt only; named: of each step."""

    @jax.jit
    def generate(params, state, prompt):
        state, logits = step(params, state, prompt, **(prompted or {}), **named)

        def one(carry, k):
            state, logits = carry
            token = (logits.argmax(-1) + k) % logits.shape[-1]
            return step(params, state, token, **named), (token, logits)

        _, found = jax.lax.scan(one, (state, logits[:, -1]), jnp.arange(count))
        return found

    tokens, logits = generate(params, state, jnp.asarray(prompt))
    return np.asarray(tokens).T, np.asarray(logits)


def agree(got, expected, tolerance=1e-5):
    """Asserts the same tokens, and logits that differ by no more than rounding does."""
    assert got[1].shape == expected[1].shape
    np.testing.assert_allclose(got[1], expected[1], rtol=0, atol=tolerance * max(1.0, np.abs(expected[1]).max()))
    np.testing.assert_array_equal(got[0], expected[0])
    assert len(np.unique(expected[0])) > 5, "a loop that repeats a few tokens shows little"
