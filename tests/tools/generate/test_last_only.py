"""`last_only` prunes the program: one row of the head, and of the last layer behind its attention."""

import chex
import jax
import numpy as np
import onnx
import pytest
from decoder_graphs import no_mask, tokens_before_heads
from decoders import MODELS
from language_models import VOCABULARY, language_model

import jaxops.onnx
from jaxops.compiler.primitives import jaxprs
from jaxops.errors import UnsupportedError

COUNT = 11


def sizes(jaxpr):
    """The shapes of all results in a jaxpr and in its inner programs, with the names of their primitives."""
    for eqn in jaxpr.eqns:
        yield from ((eqn.primitive.name, v.aval.shape) for v in eqn.outvars)
        for inner in jaxprs(eqn):
            yield from sizes(inner)


def traced(step, model, batch, **options):
    def run(params, state, tokens):
        return step(params, state, tokens, **options)

    return jax.make_jaxpr(run)(model.params, step.init(batch), np.zeros((batch, COUNT), np.int32))


@pytest.mark.parametrize(("options", "batch"), [({}, 1), ({"four_bits": True}, 2), ({"half": True}, 2)], ids=str)
def test_one_row_of_logits_is_computed(options, batch):
    model = jaxops.onnx.load(language_model(**options))
    step = jaxops.onnx.decoder(model, length=16)

    def wide(last_only):
        found = sizes(traced(step, model, batch, last_only=last_only).jaxpr)
        return [(name, shape) for name, shape in found if shape[-1:] == (VOCABULARY,) and COUNT in shape]

    assert wide(last_only=False)
    assert not wide(last_only=True)


@pytest.mark.parametrize("name", ["gpt2.script", "llama.dynamo"])
def test_the_compiled_step_is_smaller(name):
    """The head, and the last layer behind keys and values, take one row in place of COUNT."""
    model = jaxops.onnx.load(MODELS / f"{name}.onnx")
    step = jaxops.onnx.decoder(model, length=16)

    def products(last_only):
        found = sizes(traced(step, model, 2, last_only=last_only).jaxpr)
        return [shape for name, shape in found if name == "dot_general" and COUNT in shape]

    every, pruned = products(last_only=False), products(last_only=True)
    assert any(shape[-1] == 40 for shape in every)
    assert not any(shape[-1] == 40 for shape in pruned)
    assert len(pruned) < len(every) - 3


HEADS = {
    "soft caps": "wide = MatMul(sum, wo) capped = Tanh(wide) logits = Mul(capped, scale)",
    "rows without a batch": "lines = Reshape(sum, flat) wide = MatMul(lines, wo) logits = Reshape(wide, batched)",
    "a Gemm": "lines = Reshape(sum, flat) wide = Gemm(lines, wo) logits = Reshape(wide, batched)",
    "tokens first": "b = Transpose<perm = [1, 0, 2]>(sum) c = MatMul(b, wo) logits = Transpose<perm = [1, 0, 2]>(c)",
    "probabilities": "wide = MatMul(sum, wo) logits = Softmax(wide)",
    "a part of the vocabulary": "wide = MatMul(sum, wo) both = Concat<axis = 2>(wide, wide) logits = "
    "Slice(both, from_20, to_60, last_axis)",
    "two heads": "wide = MatMul(sum, wo) z = Relu(wide) logits = Add(wide, z)",
}
OTHER_HEADS = {
    "less the largest of all tokens": "wide = MatMul(sum, wo) m = ReduceMax<axes = [1]>(wide) logits = Sub(wide, m)",
    "less earlier tokens": "wide = MatMul(sum, wo) logits = CumSum<reverse = 1>(wide, one)",
}


def with_head(head):
    """(the model, its decoder) of a decoder that ends with these nodes, `sum` → `logits`."""
    model = no_mask()
    (old,) = (node for node in model.graph.node if "logits" in node.output)
    model.graph.node.remove(old)
    nodes = onnx.parser.parse_graph(f"head (float[N, S, 16] sum) => (float[N, S, 40] logits) {{{head}}}").node
    model.graph.node.extend(nodes)
    constants = {"flat": [-1, 16], "batched": [1, -1, 40], "at_minus": [-1], "at_end": [1 << 40]}
    constants |= {"from_20": [20], "to_60": [60], "last_axis": [2]}
    tensors = (onnx.numpy_helper.from_array(np.array(value), name) for name, value in constants.items())
    model.graph.initializer.extend(t for t in tensors if any(t.name in node.input for node in nodes))
    loaded = jaxops.onnx.load(model)
    return loaded, jaxops.onnx.decoder(loaded, length=16)


@pytest.mark.parametrize("head", HEADS)
def test_heads_that_read_tokens_one_by_one(head):
    model, step = with_head(HEADS[head])
    prompt = np.array([[3, 1, 4, 1, 5]])
    _, every = step(model.params, step.init(), prompt)
    _, last = step(model.params, step.init(), prompt, last_only=True)
    np.testing.assert_allclose(last, every[:, -1], rtol=0, atol=1e-5)
    found = sizes(traced(step, model, 1, last_only=True).jaxpr)
    assert not [name for name, shape in found if COUNT in shape and 40 in shape]


@pytest.mark.parametrize("head", OTHER_HEADS)
def test_heads_that_do_not(head):
    model, step = with_head(OTHER_HEADS[head])
    problem = r"last_only: the model does not compute the logits \(1, \d, 40\) of 3 tokens one by one\n.*leave out"
    with pytest.raises(UnsupportedError, match=problem):
        step(model.params, step.init(), np.array([[3, 1, 4]]), last_only=True)


def test_infinite_tokens_do_not_matter():
    """A token's own logits do not depend on rows of NaN that other tokens give."""
    model, step = with_head(HEADS["soft caps"])
    params = dict(model.params)
    params["embedding"] = params["embedding"].at[7].set(np.nan)
    _, every = step(params, step.init(), np.array([[3, 1, 7]]))
    _, last = step(params, step.init(), np.array([[3, 1, 7]]), last_only=True)
    np.testing.assert_array_equal(np.isnan(last), np.isnan(every[:, -1]))
    assert np.isnan(last).all()


def test_the_gradient():
    """The pruned step has the gradient of the logits that it computes."""
    model, step = with_head(HEADS["probabilities"])
    prompt = np.array([[3, 1, 4, 1, 5]])

    def loss(params, last_only):
        _, logits = step(params, step.init(), prompt, last_only=last_only)
        return (logits if last_only else logits[:, -1])[0, 2]

    pruned, every = (jax.grad(loss)(dict(model.params), last_only) for last_only in (True, False))
    chex.assert_trees_all_close(pruned, every, rtol=0, atol=1e-5)


def test_a_prepared_step():
    model, step = with_head(HEADS["a Gemm"])
    prompt = np.array([[3, 1, 4]])
    _, every = step(model.params, step.init(), prompt)
    _, last = step(step.prepare(model.params), step.init(), prompt, last_only=True)
    np.testing.assert_allclose(last, every[:, -1], rtol=0, atol=3e-5)


def of_last_place(file, flat):
    """A file whose head gets the last place alone: logits (B, 1, V), or (B, V)."""
    proto = file()
    (head,) = [node for node in proto.graph.node if node.output[0] == "logits"]
    ends = {"last": [-1], "end": [2**62], "axis_1": [1]}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(v, np.int64), k) for k, v in ends.items())
    sliced = onnx.helper.make_node("Slice", [head.input[0], "last", "end", "axis_1"], ["tail"])
    nodes = [sliced, onnx.helper.make_node("Squeeze", ["tail", "axis_1"], ["flat"])]
    head.input[0] = "flat" if flat else "tail"
    place = list(proto.graph.node).index(head)
    for node in reversed(nodes):
        proto.graph.node.insert(place, node)
    dims = proto.graph.output[0].type.tensor_type.shape.dim
    if flat:
        del dims[1]
    else:
        dims[1].dim_value = 1
    return jaxops.onnx.load(proto)


@pytest.mark.parametrize(("file", "flat"), [(tokens_before_heads, False), (no_mask, True)])
def test_files_that_compute_logits_of_the_last_place(file, flat):
    """They are accepted; but padding would be at that place, so `generate` runs prompts of equal lengths together."""
    model, plain = of_last_place(file, flat), jaxops.onnx.load(file())
    prompts = np.array([[1, 2, 3], [4, 5, 6]])
    steps = [jaxops.onnx.decoder(m, length=16) for m in (model, plain)]
    (state, logits), (_, expected) = (
        step(m.params, step.init(2), prompts, last_only=True) for step, m in zip(steps, (model, plain), strict=True)
    )
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    _, logits = steps[0](model.params, state, prompts)
    assert logits.shape == ((2, 40) if flat else (2, 1, 40))
    different = [[7], [1, 2, 3], [5, 6, 8]]
    found, expected = (jaxops.onnx.generate(m, different, max_tokens=5) for m in (model, plain))
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.log_probabilities, expected.log_probabilities, rtol=0, atol=1e-4)


def test_padding_at_the_last_place():
    model = of_last_place(tokens_before_heads, False)
    step = jaxops.onnx.decoder(model, length=16)
    given = {"attention_mask": np.array([[1, 1, 0], [1, 1, 1]])}
    for last_only in (False, True):
        with pytest.raises(
            UnsupportedError, match=r"logits \(1, 1, 40\) of the last of 3 places alone, which may be pad"
        ):
            step(model.params, step.init(2), np.array([[1, 2, 0], [4, 5, 6]]), last_only=last_only, **given)
    run = jaxops.onnx.speculative(step, step, ahead=2)
    with pytest.raises(UnsupportedError, match="speculative: the target computes logits of the last place alone"):
        run(model.params, model.params, np.array([[1, 2, 3]]), count=4)
