"""Each row of a batch gives what it gives alone, whatever its length, its padding and the rows beside it."""

import functools
import pickle

import chex
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
from jaxops.errors import BoundsError, ShapeError, SignatureError, UnsupportedError

PROMPTS = [[7], [1, 2, 3, 4, 9], [5, 6, 8]]
COUNT, ROOM = 6, 16
WITH_MASK = {
    "gpt2, dynamo": lambda: MODELS / "gpt2.dynamo.onnx",
    "llama, dynamo": lambda: MODELS / "llama.dynamo.onnx",
    "tokens before heads, position_ids": tokens_before_heads,
    "GroupQueryAttention": group_query,
    "GroupQueryAttention, lengths given": lambda: group_query(given=True),
    "sliding windows": lambda: language_model((4, 0)),
    "4 bits, norms": lambda: language_model((0,), four_bits=True, norms=True),
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


class Loaded:
    """A model, its decoder, and steps that are compiled once for each number of rows and tokens."""

    def __init__(self, name):
        self.model = jaxops.onnx.load(WAYS[name]())
        self.step = jaxops.onnx.decoder(self.model, length=ROOM)
        self.run = functools.partial(self.step, self.model.params)

    def goes_on(self, state, logits, count=COUNT):
        """The logits (count, B, V) of the last token of a prompt and of those after it."""
        found = [logits]
        for k in range(count - 1):
            state, logits = self.run(state, (logits.argmax(-1) + k) % logits.shape[-1])
            found.append(logits)
        return np.stack(found)

    def prompt(self, tokens):
        """(the state, the logits of the last token) of one row, token by token."""
        state = self.step.init()
        for token in tokens:
            state, logits = self.run(state, np.array([token]))
        return state, logits

    def rows(self):
        """The state after the prompts, each run alone and put into its row."""
        state = self.step.init(3)
        for row, tokens in enumerate(PROMPTS):
            state = self.step.insert(state, [row], self.prompt(tokens)[0])
        return state

    @functools.cached_property
    def alone(self):
        return np.concatenate([self.goes_on(*self.prompt(tokens)) for tokens in PROMPTS], 1)


@pytest.fixture(scope="module")
def loaded():
    return functools.cache(Loaded)


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


@pytest.mark.parametrize("side", ["left", "inside"])
@pytest.mark.parametrize("name", WITH_MASK)
def test_padded_prompts(loaded, name, side):
    one = loaded(name)
    tokens, mask = padded(PROMPTS, side)
    state, logits = one.run(one.step.init(3), tokens, **{one.step.mask_name: mask})
    assert state.position.tolist() == [1, 5, 3]
    assert jnp.isnan(logits).all(-1).tolist() == (mask == 0).tolist()
    close(one.goes_on(state, last(logits, mask)), one.alone)


@pytest.mark.grid
@pytest.mark.parametrize("name", WAYS)
def test_logits_of_the_last_token_alone(loaded, name):
    one = loaded(name)
    tokens = np.array([[7, 2, 3, 1], [4, 9, 5, 6], [1, 2, 3, 4]])
    found, logits = one.run(one.step.init(3), tokens, last_only=True)
    state = one.step.init(3)
    for column in tokens.T:
        state, expected = one.run(state, column)
    assert logits.shape == expected.shape
    close(logits, expected)
    jax.tree.map(close, found, state)


@pytest.mark.parametrize("name", ["llama, dynamo", "4 bits, norms", "a window"])
def test_logits_of_one_token_are_those_of_the_last(loaded, name):
    one = loaded(name)
    state, token = one.rows(), np.array([7, 4, 1])
    chex.assert_trees_all_equal(one.run(state, token, last_only=True), one.run(state, token))


@pytest.mark.parametrize("name", ["GroupQueryAttention", "llama, dynamo", "4 bits, norms"])
def test_logits_of_the_last_token_of_padded_prompts(loaded, name):
    """A row without a token has none."""
    one = loaded(name)
    tokens, mask = padded([*PROMPTS, []], "left")
    state, logits = one.run(one.step.init(4), tokens, **{one.step.mask_name: mask}, last_only=True)
    assert state.position.tolist() == [1, 5, 3, 0]
    close(logits[:3], one.alone[0])
    assert jnp.isnan(logits[3]).all()


@pytest.mark.parametrize("name", WAYS)
def test_a_row_is_replaced(loaded, name):
    """Prompts are run alone, and put into rows; later a new one takes the place of the third, while two go on."""
    one = loaded(name)
    state, first = one.step.init(3), []
    for row, tokens in enumerate(PROMPTS):
        part, logits = one.prompt(tokens)
        state = one.step.insert(state, [row], part)
        first.append(logits)
    assert state.position.tolist() == [1, 5, 3]
    found, logits = [], jnp.concatenate(first)
    for k in range(COUNT):
        found.append(logits)
        if k == 3:
            part, logits_of_new = one.prompt([4, 4])
            state, logits = one.step.insert(state, [2], part), logits.at[2].set(logits_of_new[0])
        state, logits = one.run(state, (logits.argmax(-1) + k) % logits.shape[-1])
    found = np.stack(found)
    close(found[:, :2], one.alone[:, :2])
    close(found[:4], one.alone[:4])
    token = (logits_of_new.argmax(-1) + 3) % logits.shape[-1]
    _, expected = one.prompt([4, 4, int(token[0])])
    close(found[4, 2], expected[0])


@pytest.mark.parametrize("name", [name for name in WAYS if name != "sliding windows"])
def test_tokens_are_taken_back(loaded, name):
    """Row by row, as a draft is refused."""
    one = loaded(name)
    state = one.rows()
    for tokens in ([11, 12, 13], [14, 15, 16]):
        state, _ = one.run(state, np.array(tokens))
    state = one.step.rewind(state, np.array([2, 0, 1]))
    assert state.position.tolist() == [1, 7, 4]
    _, logits = one.run(state, np.array([3, 3, 3]))
    for row, more in enumerate(([], [12, 15], [13])):
        close(logits[row], one.prompt([*PROMPTS[row], *more, 3])[1][0])


@pytest.mark.parametrize("name", [name for name in WITH_MASK if name != "sliding windows"])
def test_padding_after_earlier_tokens(loaded, name):
    """A chunk of a prompt with padding on the left, and a row that takes no token at all."""
    one = loaded(name)
    state = one.rows()
    chunks = [9], [3, 4, 5], []
    tokens, mask = padded(chunks, "left", 6)
    state, _ = one.run(state, tokens, **{one.step.mask_name: mask})
    assert state.position.tolist() == [2, 8, 3]
    _, logits = one.run(state, np.array([6, 6, 6]))
    for row, chunk in enumerate(chunks):
        close(logits[row], one.prompt([*PROMPTS[row], *chunk, 6])[1][0])


def test_rows_and_tokens_that_are_not_there(loaded):
    one = loaded("GroupQueryAttention")
    state = one.rows()
    for rows in ([3], [-1]):
        with pytest.raises(BoundsError, match=r"insert: `rows` is \[-?\d\]; the state has rows 0 to 2"):
            one.step.insert(state, rows, one.step.init())
    for counts in (np.array([2, 0, 0]), -1):
        with pytest.raises(BoundsError, match=r"rewind: `counts` is .*; the rows have \[1, 5, 3\] tokens"):
            one.step.rewind(state, counts)


def test_a_sliding_cache_takes_no_padding_later(loaded):
    one = loaded("sliding windows")
    state, _ = one.run(one.step.init(2), np.array([[7, 8], [1, 2]]), attention_mask=np.ones((2, 2), int))
    tokens, mask = padded([[9], [3, 4]], "left", 2)
    _, logits = one.run(state, tokens, attention_mask=mask)
    assert jnp.isnan(logits).all((1, 2)).tolist() == [True, False]
    with pytest.raises(UnsupportedError, match="rewind: the caches have dropped tokens"):
        one.step.rewind(state, 1)


def test_a_model_that_knows_neither_mask_nor_lengths(loaded):
    one = loaded("positions from sizes")
    tokens, mask = padded(PROMPTS, "left")
    with pytest.raises(SignatureError, match=r"neither a mask nor lengths(.|\n)*equal lengths; .*step.insert"):
        one.run(one.step.init(3), tokens, attention_mask=mask)
    one = loaded("GroupQueryAttention")
    with pytest.raises(ShapeError, match=r"'attention_mask' is int\d+\[3,2\].*, but the tokens are int\d+\[3,6\]"):
        one.run(one.step.init(3), tokens, attention_mask=mask[:, :2])


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
    one = loaded("GroupQueryAttention")
    copy = pickle.loads(pickle.dumps(one.step))
    _, logits = one.run(one.step.init(), np.array([1]))
    np.testing.assert_array_equal(copy(one.model.params, copy.init(), np.array([1]))[1], logits)
