"""Each row of a batch gives what it gives alone, whatever its length, its padding and the rows beside it."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_graphs import (
    attention_23,
    fused_attention,
    group_query,
    in_place,
    no_mask,
    sliced_table,
    stacked,
    tokens_before_heads,
    window,
)
from decoders import MODELS
from language_models import language_model

import jaxops.onnx
from jaxops.errors import ShapeError, SignatureError, UnsupportedError

PROMPTS = [[7], [1, 2, 3, 4, 9], [5, 6, 8]]
COUNT, ROOM = 6, 16
WITH_MASK = {
    "gpt2, TorchScript": lambda: MODELS / "gpt2.script.onnx",
    "gpt2, dynamo": lambda: MODELS / "gpt2.dynamo.onnx",
    "llama, dynamo": lambda: MODELS / "llama.dynamo.onnx",
    "tokens before heads, position_ids": tokens_before_heads,
    "GroupQueryAttention": group_query,
    "GroupQueryAttention, lengths given": lambda: group_query(given=True),
    "a language model": language_model,
    "sliding windows": lambda: language_model((4, 0)),
    "4 bits": lambda: language_model(four_bits=True),
    "norms": lambda: language_model(norms=True),
}
WITHOUT_MASK = {
    "positions from sizes": no_mask,
    "mask cut out of a table": sliced_table,
    "a window": window,
    "keys and values in one": stacked,
    "Attention of opset 23": attention_23,
    "Attention of com.microsoft": fused_attention,
    "written in place": lambda: in_place("M"),
}
WAYS = {**WITH_MASK, **WITHOUT_MASK}


@pytest.fixture(scope="module")
def loaded():
    models = {}

    def load(name):
        if name not in models:
            model = jaxops.onnx.load(WAYS[name]())
            models[name] = model, jaxops.onnx.decoder(model, length=ROOM)
        return models[name]

    return load


def goes_on(model, step, state, logits, count=COUNT):
    """The logits (count, B, V) of the last token of a prompt and of those after it."""

    @jax.jit
    def generate(params, state, logits):
        def one(carry, k):
            state, logits = carry
            token = (logits.argmax(-1) + k) % logits.shape[-1]
            return step(params, state, token), logits

        return jax.lax.scan(one, (state, logits), jnp.arange(count))[1]

    return generate(model.params, state, logits)


def alone(model, step, prompts=PROMPTS, count=COUNT):
    found = []
    for prompt in prompts:
        state, logits = step(model.params, step.init(), np.array([prompt]))
        found.append(goes_on(model, step, state, logits[:, -1], count))
    return np.concatenate(found, 1)


def padded(prompts, side, width=None):
    """(tokens, mask), with junk in the padding; "inside" has it between the tokens, too."""
    width = width or max(map(len, prompts)) + 1
    tokens, mask = np.full((len(prompts), width), 33), np.zeros((len(prompts), width), int)
    for row, prompt in enumerate(prompts):
        columns = {"left": range(width - len(prompt), width), "right": range(len(prompt))}.get(side)
        columns = columns or sorted(np.random.default_rng(row).choice(width, len(prompt), replace=False))
        tokens[row, columns], mask[row, columns] = prompt, 1
    return tokens, mask


def last(logits, mask):
    return jnp.stack([logits[row, np.flatnonzero(kept)[-1]] for row, kept in enumerate(mask)])


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("side", ["left", "right", "inside"])
@pytest.mark.parametrize("name", WITH_MASK)
def test_padded_prompts(loaded, name, side):
    model, step = loaded(name)
    tokens, mask = padded(PROMPTS, side)
    named = {"mask" if "mask" in step._mask_name else "": mask}
    state, logits = step(model.params, step.init(3), tokens, **{step._mask_name: mask})
    assert named
    assert state.position.tolist() == [1, 5, 3]
    assert jnp.isnan(logits).all(-1).tolist() == (mask == 0).tolist()
    close(goes_on(model, step, state, last(logits, mask)), alone(model, step))


@pytest.mark.parametrize("name", WAYS)
def test_a_row_is_replaced(loaded, name):
    """The third row ends after three tokens, and a new prompt takes its place, while the others go on."""
    model, step = loaded(name)
    parts = [step(model.params, step.init(), np.array([prompt])) for prompt in PROMPTS]
    state = step.init(3)
    for row, (part, _) in enumerate(parts):
        state = step.insert(state, [row], part)
    logits = jnp.concatenate([logits[:, -1] for _, logits in parts])
    np.testing.assert_array_equal(state.position, [1, 5, 3])
    expected = alone(model, step)
    close(goes_on(model, step, state, logits), expected)
    for k in range(3):
        state, logits = step(model.params, state, (logits.argmax(-1) + k) % logits.shape[-1])
    part, first = step(model.params, step.init(), np.array([[4, 4, 2]]))
    state, logits = step.insert(state, [2], part), logits.at[2].set(first[0, -1])
    assert state.position.tolist() == [4, 8, 3]
    state, _ = step(model.params, state, jnp.array([1, 2, 3]))
    after = alone(model, step, [[4, 4, 2, 3]], 1)
    _, logits = step(model.params, state, jnp.array([5, 5, 5]))
    whole, both = step(model.params, step.init(), np.array([[4, 4, 2, 3, 5]]))
    close(logits[2], both[0, -1])
    assert after.shape == (1, 1, logits.shape[-1])
    for cache in step.caches:
        got, expected_cache = (
            np.take(np.asarray(x.caches[cache.past.name]), k, cache.batch) for x, k in ((state, 2), (whole, 0))
        )
        assert got.shape == expected_cache.shape


@pytest.mark.parametrize("name", [name for name in WAYS if name != "sliding windows"])
def test_tokens_are_taken_back(loaded, name):
    """Row by row, as a draft is refused."""
    model, step = loaded(name)
    prompts = np.array([[7, 8, 9, 3], [1, 2, 3, 4]])
    state, _ = step(model.params, step.init(2), prompts)
    state = step.rewind(state, np.array([2, 0]))
    assert state.position.tolist() == [2, 4]
    state, logits = step(model.params, state, np.array([[11, 12], [13, 14]]))
    for row, prompt in enumerate(([7, 8, 11, 12], [1, 2, 3, 4, 13, 14])):
        _, expected = step(model.params, step.init(), np.array([prompt]))
        close(logits[row], expected[0, -2:])


@pytest.mark.parametrize("name", [name for name in WITH_MASK if name != "sliding windows"])
def test_padding_after_earlier_tokens(loaded, name):
    """A chunk of a prompt with padding on the left, and a row that takes no token at all."""
    model, step = loaded(name)
    state, _ = step(model.params, step.init(3), np.array([[7, 8], [1, 2], [3, 4]]))
    tokens, mask = padded([[9], [3, 4, 5], []], "left", 3)
    state, _ = step(model.params, state, tokens, **{step._mask_name: mask})
    assert state.position.tolist() == [3, 5, 2]
    _, logits = step(model.params, state, np.array([6, 6, 6]))
    for row, prompt in enumerate(([7, 8, 9, 6], [1, 2, 3, 4, 5, 6], [3, 4, 6])):
        close(logits[row], step(model.params, step.init(), np.array([prompt]))[1][0, -1])


def test_a_sliding_cache_takes_no_padding_later(loaded):
    model, step = loaded("sliding windows")
    state, _ = step(model.params, step.init(2), np.array([[7, 8], [1, 2]]))
    tokens, mask = padded([[9], [3, 4]], "left", 2)
    _, logits = step(model.params, state, tokens, attention_mask=mask)
    assert jnp.isnan(logits).all((1, 2)).tolist() == [True, False]
    with pytest.raises(UnsupportedError, match="rewind: the caches have dropped tokens"):
        step.rewind(state, 1)


def test_a_model_that_knows_neither_mask_nor_lengths(loaded):
    model, step = loaded("positions from sizes")
    tokens, mask = padded(PROMPTS, "left")
    with pytest.raises(SignatureError, match=r"neither a mask nor lengths(.|\n)*equal lengths; .*step.insert"):
        step(model.params, step.init(3), tokens, attention_mask=mask)
    model, step = loaded("GroupQueryAttention")
    with pytest.raises(ShapeError, match=r"'attention_mask' is int\d+\[3,2\].*, but the tokens are int\d+\[3,6\]"):
        step(model.params, step.init(3), tokens, attention_mask=mask[:, :2])


def test_a_batch_that_the_file_fixes():
    """Its rows have the same number of tokens."""
    proto = tokens_before_heads()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(proto), length=8)
    prompts = np.array([[1, 2, 3], [4, 5, 6]])
    state, logits = step(model.params, step.init(2), prompts)
    free = jaxops.onnx.decoder(other := jaxops.onnx.load(tokens_before_heads()), length=8)
    close(logits, free(other.params, free.init(2), prompts)[1])
    assert step.rewind(state, 1).position.tolist() == [2, 2]
    problem = r"the model fixes its batch \(input_ids: int64\[2, S\]\), so all rows have the same number"
    for wrong in (
        lambda: step.insert(state, [0], state),
        lambda: step.rewind(state, np.array([1, 0])),
        lambda: step(model.params, state, prompts, attention_mask=np.ones((2, 3), int)),
    ):
        with pytest.raises(UnsupportedError, match=problem):
            wrong()


def test_a_step_is_pickled(loaded):
    model, step = loaded("a language model")
    copy = pickle.loads(pickle.dumps(step))
    _, logits = step(model.params, step.init(), np.array([[1, 2]]))
    np.testing.assert_array_equal(copy(model.params, copy.init(), np.array([[1, 2]]))[1], logits)
