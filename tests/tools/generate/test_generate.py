"""Prompts of different lengths in one call give what each gives alone, and what a loop of single steps gives."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_graphs import in_place, no_mask, tokens_before_heads
from decoders import MODELS
from language_models import language_model

import jaxops.onnx
from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, SignatureError, UnsupportedError
from jaxops.tools.generate.prompts import check_vocabulary

PROMPTS = [[7], [1, 2, 3, 4, 9], [5, 6, 8], [30, 2, 11, 4, 5]]
FILES = {
    "neither mask nor lengths": no_mask,
    "a language model": lambda: language_model((0,)),
    "packed weights": lambda: language_model((0,), four_bits=True),
    "in 16 bits": lambda: language_model((0,), half=True),
    "sliding windows": lambda: language_model((4, 0)),
    "gpt2 (TorchScript)": lambda: MODELS / "gpt2.script.onnx",
    "llama, dynamo": lambda: MODELS / "llama.dynamo.onnx",
    "caches written in place": lambda: in_place("M"),
}


def alone(model, prompts, count, length=16):
    """The likeliest tokens of each prompt, by single steps, and the logarithms of their probabilities."""
    step = jaxops.onnx.decoder(model, length=length)
    for prompt in prompts:
        state, logits, tokens, logs = step.init(), None, [], []
        for token in prompt:
            state, logits = step(model.params, state, np.array([token]))
        for _ in range(count):
            logs.append(jax.nn.log_softmax(np.float32(logits[0])).max())
            tokens.append(int(logits[0].argmax()))
            state, logits = step(model.params, state, np.array(tokens[-1:]))
        yield tokens, np.array(logs)


@pytest.mark.grid
@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_of_each_prompt_alone(name):
    model = jaxops.onnx.load(FILES[name]())
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=7)
    assert found.tokens.shape == found.log_probabilities.shape == (4, 1, 7)
    assert found.lengths.tolist() == [[7]] * 4
    for row, (tokens, logs) in enumerate(alone(model, PROMPTS, 7)):
        tolerance = 3e-3 if name == "in 16 bits" else 1e-4
        np.testing.assert_allclose(found.log_probabilities[row, 0], logs, rtol=0, atol=tolerance)
        assert found.tokens[row, 0].tolist() == tokens


@pytest.fixture(scope="module")
def model():
    return jaxops.onnx.load(language_model((0,)))


DRAWN = {"top_k": 20, "temperature": 2.0, "key": jax.random.key(3)}


def test_the_key_alone_decides(model):
    """Equal arguments give equal samples; neither other samples, nor the size of the batch changes them."""
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=7, samples=2, **DRAWN)
    again = jaxops.onnx.generate(model, PROMPTS, max_tokens=7, samples=2, **DRAWN)
    jax.tree.map(np.testing.assert_array_equal, found, again)
    fewer = jaxops.onnx.generate(model, PROMPTS[:2], max_tokens=5, **DRAWN)
    np.testing.assert_array_equal(fewer.tokens, found.tokens[:2, :1, :5])
    assert len({tuple(row) for row in found.tokens.reshape(-1, 7).tolist()}) == 8
    other = jaxops.onnx.generate(model, PROMPTS, max_tokens=7, samples=2, **DRAWN | {"key": jax.random.key(4)})
    assert (other.tokens != found.tokens).mean() > 0.5


def test_a_prompt_with_its_own_key(model):
    keys = jax.random.split(jax.random.key(5), 4)
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=6, **DRAWN | {"key": keys})
    for row in (0, 2):
        one = jaxops.onnx.generate(model, PROMPTS[row : row + 1], max_tokens=6, **DRAWN | {"key": keys[row : row + 1]})
        np.testing.assert_array_equal(one.tokens[0], found.tokens[row])
    raw = jaxops.onnx.generate(model, PROMPTS, max_tokens=6, **DRAWN | {"key": jax.random.key_data(keys)})
    np.testing.assert_array_equal(raw.tokens, found.tokens)
    with pytest.raises(ShapeError, match=r"generate: `key` has shape \(4,\); give one key, or one for each of 2"):
        jaxops.onnx.generate(model, PROMPTS[:2], max_tokens=6, **DRAWN | {"key": keys})


def test_rows_end(model):
    """A row ends with a token of `stop`, which is its last; then comes padding with a logarithm of 0."""
    free = jaxops.onnx.generate(model, PROMPTS, max_tokens=7, repetition_penalty=5.0)
    stop = [int(free.tokens[0, 0, 3]), int(free.tokens[1, 0, 5])]
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=7, repetition_penalty=5.0, stop=stop)
    for row in range(4):
        tokens, expected = found.tokens[row, 0].tolist(), free.tokens[row, 0].tolist()
        length = next((k + 1 for k, token in enumerate(expected) if token in stop), 7)
        assert found.lengths[row, 0] == length
        assert tokens == expected[:length] + [0] * (7 - length)
        assert not found.log_probabilities[row, 0, length:].any()
    assert min(found.lengths.ravel()) < 7


def test_repetitions(model):
    """A large penalty excludes what a row and its prompt have, by single steps of the same definition."""
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=6, repetition_penalty=5.0)
    step = jaxops.onnx.decoder(model, length=16)
    prompt = PROMPTS[3]
    state, logits = step(model.params, step.init(), np.array([prompt]), last_only=True)
    row = list(prompt)
    for k in range(6):
        scores = np.array(logits[0])
        for token in set(row):
            scores[token] = scores[token] / 5.0 if scores[token] > 0 else scores[token] * 5.0
        row.append(int(scores.argmax()))
        assert found.tokens[3, 0, k] == row[-1]
        state, logits = step(model.params, state, np.array(row[-1:]))


def test_suppressed_tokens(model):
    """Each is replaced by the likeliest token left; the log-probability is that of the whole distribution."""
    free = jaxops.onnx.generate(model, PROMPTS, max_tokens=1)
    first = free.tokens[:, 0, 0].tolist()
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=9, begin_suppress_tokens=first)
    step = jaxops.onnx.decoder(model, length=16)
    for row, prompt in enumerate(PROMPTS):
        _, logits = step(model.params, step.init(1), np.array([prompt]))
        scores = np.array(logits[0, -1], np.float64)
        token = np.where(np.isin(np.arange(scores.size), first), -np.inf, scores).argmax()
        assert found.tokens[row, 0, 0] == token
        expected = scores[token] - np.log(np.exp(scores).sum())
        np.testing.assert_allclose(found.log_probabilities[row, 0, 0], expected, rtol=1e-5)
        # What follows is free again: it is what follows the prompt and this token.
        again = jaxops.onnx.generate(model, [[*prompt, int(token)]], max_tokens=8)
        assert found.tokens[row, 0, 1:].tolist() == again.tokens[0, 0].tolist()
    later = jaxops.onnx.generate(model, PROMPTS, max_tokens=9, suppress_tokens=first, stream=True)
    assert not any(np.isin(part.tokens, first).any() for part in later)


@pytest.mark.parametrize("count", [1, 8, 11])
def test_a_stream(model, count):
    whole = jaxops.onnx.generate(model, PROMPTS, max_tokens=count, samples=2, **DRAWN)
    parts = list(jaxops.onnx.generate(model, PROMPTS, max_tokens=count, samples=2, stream=True, **DRAWN))
    assert [part.tokens.shape[-1] for part in parts] == [min(8, count - k) for k in range(0, count, 8)]
    np.testing.assert_array_equal(np.concatenate([part.tokens for part in parts], -1), whole.tokens)
    np.testing.assert_array_equal(sum(part.lengths for part in parts), whole.lengths)
    logs = np.concatenate([part.log_probabilities for part in parts], -1)
    np.testing.assert_allclose(logs, whole.log_probabilities, rtol=1e-5, atol=1e-6)


def test_a_stream_ends_with_its_rows(model):
    first = jaxops.onnx.generate(model, PROMPTS[:1], max_tokens=3)
    parts = list(jaxops.onnx.generate(model, PROMPTS[:1], max_tokens=11, stop=first.tokens[0, 0, 2:3], stream=True))
    assert len(parts) == 1
    assert parts[0].lengths.max() <= 3


def test_programs_are_kept(model):
    """Other prompts, lengths and numbers take the programs that there are; a pickled model has none."""
    loaded = jaxops.onnx.load(language_model((0,)))

    def call(prompts, count, **options):
        return jaxops.onnx.generate(loaded, prompts, max_tokens=count, **options)

    call([[1, 2, 3], [4]], 5, temperature=0.7, key=jax.random.key(0))
    (loop,) = loaded.programs["generate"]._loops.values()
    sizes = [f._cache_size() for f in (loop.step._compiled, loop.first_program, loop.more_program)]
    for prompts, count, temperature in (([[1], [2, 3, 4, 5, 6]], 9, 1.1), ([[9] * 12, [8] * 3], 4, 0.2)):
        call(prompts, count, temperature=temperature, key=jax.random.key(1))
    assert list(loaded.programs["generate"]._loops.values()) == [loop]
    assert [f._cache_size() for f in (loop.step._compiled, loop.first_program, loop.more_program)] == sizes
    copy = pickle.loads(pickle.dumps(loaded))
    assert not copy.programs
    assert not loaded.with_params(loaded.params).programs


def test_other_parameters(model):
    """They count at each call, also those of a dictionary that was changed."""
    params = {name: 1.1 * x if x.ndim > 1 else x for name, x in model.params.items()}
    other = jaxops.onnx.generate(model.with_params(params), PROMPTS, max_tokens=6)
    np.testing.assert_array_equal(
        jaxops.onnx.generate(model, PROMPTS, max_tokens=6, params=params).tokens, other.tokens
    )
    own = jaxops.onnx.generate(model, PROMPTS, max_tokens=6)
    assert (own.tokens != other.tokens).any()
    params |= model.params
    np.testing.assert_array_equal(jaxops.onnx.generate(model, PROMPTS, max_tokens=6, params=params).tokens, own.tokens)


def test_the_last_position_of_the_file():
    """A table of 64 positions serves 64 tokens, but no more, whatever sizes programs are rounded to."""
    model = jaxops.onnx.load(tokens_before_heads())
    prompt = np.arange(40) % 30
    found = jaxops.onnx.generate(model, [prompt], max_tokens=24)
    ((expected, _),) = alone(model, [prompt], 24, length=64)
    assert found.tokens[0, 0].tolist() == expected
    with pytest.raises(ShapeError, match="the last of 65 tokens reads row 64 of a table of 64"):
        jaxops.onnx.generate(model, [prompt], max_tokens=25)


def fixed_batch(graph):
    proto = graph()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    return jaxops.onnx.load(proto)


def test_a_batch_that_the_file_fixes():
    model = fixed_batch(tokens_before_heads)
    free = jaxops.onnx.load(tokens_before_heads())
    prompts = [[1, 2, 3], [4, 5, 6]]
    found = jaxops.onnx.generate(model, prompts, max_tokens=4)
    np.testing.assert_array_equal(found.tokens, jaxops.onnx.generate(free, prompts, max_tokens=4).tokens)
    with pytest.raises(
        UnsupportedError, match=r"fixes its batch \(input_ids.*\), so prompts have equal lengths.* 1, 3"
    ):
        jaxops.onnx.generate(model, [[1, 2, 3], [4]], max_tokens=4)
    with pytest.raises(UnsupportedError, match="samples: the model fixes its batch"):
        jaxops.onnx.generate(model, prompts, max_tokens=4, samples=2, key=jax.random.key(0))


WRONG = {
    "no prompts": (ShapeError, "`prompts` is .*must be a list of prompts", {"prompts": []}),
    "a text": (ShapeError, "`prompts` is 'hello'", {"prompts": "hello"}),
    "texts": (DTypeError, "prompt 0 is 'hello'; it must be a list of integers", {"prompts": ["hello"]}),
    "one prompt": (ShapeError, r"prompt 0 is 1, no list; a batch of one prompt is", {"prompts": [1, 2, 3]}),
    "an empty prompt": (ShapeError, "prompt 1 is empty", {"prompts": [[1], []]}),
    "floats": (DTypeError, r"prompt 0 is \[1.5\]", {"prompts": [[1.5]]}),
    "unknown token": (BoundsError, "prompt 1 has the token 48, .* has the tokens 0 to 47", {"prompts": [[1], [48]]}),
    "negative token": (BoundsError, "prompt 0 has the token -1", {"prompts": [[-1]]}),
    "stop": (BoundsError, "`stop` has the token 50", {"stop": [50]}),
    "suppressed": (BoundsError, "`suppress_tokens` has the token 48", {"suppress_tokens": [3, 48]}),
    "suppressed at first": (BoundsError, "`begin_suppress_tokens` has the token -2", {"begin_suppress_tokens": [-2]}),
    "all suppressed": (ArgumentError, "`suppress_tokens` and `begin_suppress_tokens` leave none of the 48 tokens",
                       {"suppress_tokens": range(40), "begin_suppress_tokens": list(range(40, 48))}),
    "suppressed floats": (DTypeError, "`suppress_tokens` must be integers, got float64", {"suppress_tokens": [1.5]}),
    "no key": (SignatureError, "`top_k` asks for drawn tokens, which need a key", {"top_k": 3}),
    "no key for samples": (SignatureError, "`samples` asks for drawn tokens", {"samples": 2}),
    "temperature": (ArgumentError, "`temperature` is -1; it must be a number, at least 0", {"temperature": -1}),
    "nan": (ArgumentError, "`temperature` is nan", {"temperature": float("nan")}),
    "top_p": (ArgumentError, "`top_p` is 1.5; it must be a number, from 0 to 1", {"top_p": 1.5}),
    "penalty": (ArgumentError, "`repetition_penalty` is 0; 1 changes nothing", {"repetition_penalty": 0}),
    "max_tokens": (ArgumentError, "`max_tokens` is 0", {"max_tokens": 0}),
    "no max_tokens": (SignatureError, "`max_tokens` is missing", {"max_tokens": None}),
    "mask": (SignatureError, "'attention_mask' is made from the prompts", {"attention_mask": np.ones((1, 1))}),
    "stop of floats": (DTypeError, "`stop` must be integers, got float64", {"stop": [1.5]}),
    "a text to stop at": (ShapeError, "`stop` must be 1-D", {"stop": "a", "key": jax.random.key(0)}),
    "a huge token to stop at": (BoundsError, "`stop` has the token 1099511627776", {"stop": 2**40}),
    "key of an integer": (ArgumentError, r"`key` is 3; it must be a random key, such as jax", {"key": 3}),
    "key of a number": (ArgumentError, r"`key` is uint32\[\] 3; it must be a random key", {"key": np.uint32(3)}),
    "key of a text": (ArgumentError, "`key` is 'a'; it must be a random key", {"key": "a"}),
    "key of floats": (ArgumentError, r"`key` is float32\[2\]; it must be a random key", {"key": jnp.ones(2)}),
    "key of three numbers": (ArgumentError, r"`key` is uint32\[3\]", {"key": jnp.zeros(3, np.uint32)}),
    "key in a list": (ArgumentError, "`key` is a sequence of 1 array", {"key": [jax.random.key(0)]}),
    "key that no draw needs": (ArgumentError, "`key` is 3", {"key": 3, "temperature": 0}),
    "keys": (ShapeError, r"`key` has shape \(3,\); give one key, or one for each of 1 prompt",
             {"key": jax.random.split(jax.random.key(0), 3)}),
    "another argument beside a key": (ArgumentError, "`temperature` is <object",
                                      {"temperature": object(), "key": jax.random.key(0)}),
    "unknown input": (SignatureError, "unknown input 'pixels'; the inputs are input_ids", {"pixels": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors(model, name):
    kind, text, options = WRONG[name]
    given = {"prompts": [[1, 2]], "max_tokens": 3} | options
    with pytest.raises(kind, match=f"generate: {text}"):
        jaxops.onnx.generate(model, **given)


@pytest.mark.parametrize("token", [-1, 2**31])
def test_tokens_of_an_unknown_vocabulary(token):
    check_vocabulary("prompt 0", [2**31 - 1], None)
    with pytest.raises(BoundsError, match=f"prompt 0 has the token {token}, but tokens are 0 to 2147483647"):
        check_vocabulary("prompt 0", [0, token], None)
