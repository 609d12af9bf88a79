"""Files that fix the number of new tokens to one, or were traced with one, take a prompt token by token."""

import jax
import numpy as np
import onnx
import pytest
from decoder_graphs import attention_23, in_place, merged, no_mask, renamed, tokens_before_heads

import jaxops.onnx

FILES = {"sizes": no_mask, "a mask": tokens_before_heads, "in place": lambda: in_place(room="16")}
PROMPTS = [[1, 2, 3, 4, 9], [7], [30, 2, 11]]


def for_one(model):
    """The model with 1 in place of S, the number of new tokens."""
    for value in (*model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == "S":
                size.dim_value = 1
    return model


@pytest.mark.parametrize("name", FILES)
def test_the_results_are_those_of_several_tokens(name):
    several, one = (jaxops.onnx.load(file) for file in (FILES[name](), for_one(FILES[name]())))
    assert one.inputs[0].shape == ("N", 1)
    expected, found = (jaxops.onnx.generate(model, PROMPTS, max_tokens=6) for model in (several, one))
    assert found.tokens.tolist() == expected.tokens.tolist()
    rows, results = np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), []
    for model in (several, one):
        step = jaxops.onnx.decoder(model, length=16)
        state, logits = step(model.params, step.init(2), rows)
        results.append((state, logits, step.prefill(model.params, state, rows, chunk=3)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=3e-5), *results)


def test_a_long_prompt():
    models = [jaxops.onnx.load(file) for file in (attention_23(), for_one(attention_23()))]
    several, one = (jaxops.onnx.generate(model, [[1, 2, 3, 9] * 70], max_tokens=6).tokens for model in models)
    assert one.tolist() == several.tolist()


@pytest.mark.parametrize(
    ("declared", "name"),
    [("float[N, 2, E, 8]", "past_key_values.0.encoder.key"), ("bool[1]", "use_cache_branch")],
)
def test_a_decoder_of_later_tokens_may_lack_the_mask_among_new_ones(declared, name):
    """Exporters trace it with one new token, which sees all tokens."""
    masks = ("mask = LessOrEqual(columns, rows)", "mask = Equal(columns, columns)")
    files = [renamed(no_mask(mask=mask, inputs=f"{declared} further"), further=name) for mask in masks]
    given = {} if declared == "bool[1]" else {name: np.zeros((2, 2, 3, 8), np.float32)}
    rows, results = np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), []
    for model in map(jaxops.onnx.load, files):
        step = jaxops.onnx.decoder(model, length=16)
        found = jaxops.onnx.generate(model, [[1, 2, 3], [7]], max_tokens=6, **given)
        first = step.prefill(model.params, step.init(2), rows, chunk=3, **given)
        results.append((*found, first, step(model.params, step.init(2), rows, **given)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=3e-5), *results)


def test_a_file_with_two_decoders_begins_with_the_first():
    """The decoder of later tokens lacks the mask among new ones; that of the first ones takes a prompt at once."""
    first, later = no_mask(), no_mask(mask="mask = Equal(columns, columns)")
    past = [value for value in first.graph.input if value.name.startswith("past")]
    for value in past:
        first.graph.input.remove(value)
        first.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((1, 2, 0, 8), np.float32), value.name))
    models = [jaxops.onnx.load(no_mask()), jaxops.onnx.load(merged(first, later))]
    rows, results = np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), []
    for model in models:
        found = jaxops.onnx.generate(model, PROMPTS, max_tokens=6)
        step = jaxops.onnx.decoder(model, length=16)
        state, logits = step(model.params, step.init(2), rows)
        results.append((*found, logits, step(model.params, state, rows[:, :3])))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=3e-5), *results)
    renamed(first, logits="positive").graph.node.append(onnx.helper.make_node("Neg", ["positive"], ["logits"]))
    first.graph.output[0].name = "logits"
    model = jaxops.onnx.load(merged(first, later))
    step = jaxops.onnx.decoder(model, length=16)
    np.testing.assert_allclose(step(model.params, step.init(2), rows)[1], -logits, rtol=0, atol=3e-5)
