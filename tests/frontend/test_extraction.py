"""Parts of models: tensors in the middle become inputs and outputs."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, model, node, tensor

from jaxops.errors import SignatureError
from jaxops.onnx import load
from jaxops.onnx.open import carried

BERT = Path(__file__).parents[1] / "models" / "bert.script.onnx"
EMBEDDING = "/model/bert/embeddings/LayerNorm/LayerNormalization_output_0"
LAYER = "/model/bert/encoder/layer.0/output/LayerNorm/LayerNormalization_output_0"
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 0]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
RNG = np.random.default_rng(0)
W, B = (RNG.normal(size=s).astype(np.float32) for s in ((4, 4), (4,)))
TEXT = """main (float[N,4] x, float[N,4] other) => (float[N,4] y, float[N,4] z) {
    h = MatMul(x, w) a = Add(h, b) left, right = Split<axis = 1, num_outputs = 2>(a)
    u = Concat<axis = 1>(right, left) y = Relu(u) z = Mul(other, w2)
}"""
NET = model(TEXT, initializers={"w": W, "b": B, "w2": B})
X = RNG.normal(size=(3, 4)).astype(np.float32)


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_the_middle_of_bert():
    """Soft prompts: from the embeddings, with the mask, to the states of a layer."""
    full = load(BERT)
    part = load(BERT, inputs=[EMBEDDING, "attention_mask"], outputs=[LAYER])
    embedding, states = full(IDS, MASK, outputs=[EMBEDDING, LAYER])
    close(part(embedding, MASK), states)
    close(jax.jit(part.apply)(part.params, embedding, MASK), states)
    assert [str(v) for v in part.inputs] == [
        f"{EMBEDDING}: float32[?, ?, {embedding.shape[2]}]",
        "attention_mask: int64[batch, sequence]",
    ]
    assert [v.name for v in part.outputs] == [LAYER]
    assert part.params.keys() < full.params.keys()
    assert not any("word_embeddings" in path or "layer.1." in path for path in part.nest(part.params))
    prompt = jax.grad(lambda e: jnp.sum(part(e, MASK) ** 2))(embedding)
    assert np.abs(prompt).max() > 0


def test_the_two_halves_are_the_model():
    full = load(BERT, names="module")
    front = load(BERT, outputs=[LAYER], names="module")
    with pytest.raises(SignatureError, match=r"'logits' needs 'input_ids', .*which Shape '/model/bert/embe"):
        load(BERT, inputs=[LAYER, "attention_mask"])
    back = load(BERT, inputs=[LAYER, "attention_mask", "input_ids"], names="module")
    assert [v.name for v in front.inputs] == ["input_ids", "attention_mask"]
    close(back(front(IDS, MASK), MASK, IDS), full(IDS, MASK))


def test_what_people_do_with_a_part(tmp_path):
    part = load(BERT, inputs=[EMBEDDING, "attention_mask"], outputs=[LAYER])
    x = RNG.normal(size=(2, 5, part.inputs[0].shape[2])).astype(np.float32)
    compared = part.compare(x, MASK)
    assert compared.agrees
    assert {row.output for row in compared.rows} >= {LAYER}
    assert EMBEDDING not in {row.output for row in compared.rows}
    close(part.export().call(part.params, x, MASK), part(x, MASK))
    assert "layer.0" in str(part.summary(sizes={"batch": 2, "sequence": 5}))
    assert EMBEDDING.rpartition("/")[2] in str(part)
    pytest.importorskip("igraph")
    assert "layer.0" in part.plot().svg


def test_a_saved_part_is_the_file_with_other_weights(tmp_path):
    part = load(NET, inputs=["h"], outputs=["y"])
    part.save(tmp_path / "tuned.onnx", {"b": 2 * B})
    tuned = load(tmp_path / "tuned.onnx")
    assert [v.name for v in tuned.inputs] == ["x", "other"]
    close(tuned(X, X).y, load(NET, inputs=["h"], outputs=["y"]).apply({"b": 2 * B}, X @ W))
    close(tuned(X, X).z, X * B)


def test_an_output_of_a_node_that_has_others():
    part = load(NET, inputs=["left", "x"], outputs=["u"])
    close(part(2 * np.ones((3, 2), np.float32), X), np.concatenate([(X @ W + B)[:, 2:], np.full((3, 2), 2)], 1))
    assert part.compare(np.ones((3, 2), np.float32), X).agrees


def test_a_parameter_becomes_an_input():
    part = load(NET, inputs=["x", "w"], outputs=["a"])
    assert str(part.inputs[1]) == "w: float32[4, 4]"
    assert list(part.params) == ["b"]
    close(part(X, 2 * W), 2 * X @ W + B)
    assert part.compare(X, 2 * W).agrees


def test_a_parameter_is_an_output_and_an_input_too():
    part = load(NET, outputs=["w2", "other"])
    assert [v.name for v in part.inputs] == ["other"]
    close(part(X).w2, B)
    close(part(X).other, X)


def test_outputs_alone_leave_out_inputs_and_weights():
    part = load(NET, outputs=["z"])
    assert [v.name for v in part.inputs] == ["other"]
    assert list(part.params) == ["w2"]
    assert [v.name for v in load(NET, outputs=["h", "u"]).outputs] == ["h", "u"]


def test_the_remaining_nodes_may_be_of_operators_that_jaxops_does_not_have():
    text = TEXT.replace("z = Mul(other, w2)", "z = my.domain.Unheard(y, other)")
    proto = model(text, imports=', "my.domain" : 1', initializers={"w": W, "b": B})
    close(load(proto, outputs=["y"])(X), load(NET)(X, X).y)


def test_branches_capture_what_a_part_needs():
    proto = model(
        """main (float[N] x, bool c) => (float[N] y) {
            a = Mul(x, two) y = If(c) <then_branch = t () => (float[N] p) { p = Add(a, two) },
                                       else_branch = e () => (float[N] q) { q = Sub(a, three) }>
        }""",
        initializers={"two": np.float32([2, 2]), "three": np.float32([3, 3]), "four": np.float32([4, 4])},
    )
    part = load(proto, inputs=["a", "c"])
    assert set(part.params) == {"two", "three"}
    assert part(np.float32([1, 2]), np.array(True)).tolist() == [3, 4]
    assert part.compare(np.float32([1, 2]), np.array(False)).agrees
    with pytest.raises(SignatureError, match=r"output 'y' needs 'x', an input of the model, which Mul 'a' reads; add"):
        load(proto, inputs=["c"])


def test_other_options_apply_to_the_part():
    part = load(NET, inputs=["h", "other"], sizes={"N": 3}, values={"other": X})
    assert [str(v) for v in part.inputs] == ["h: float32[3, 4]"]
    close(part(X @ W).z, X * B)
    assert part.compare(X @ W).agrees


def test_types_come_from_value_info_before_inference():
    nodes = [node("Exp", ["x"], ["h"]), node("Neg", ["h"], ["y"])]
    assert load(build(*nodes), inputs=["h"]).inputs[0].shape == ("N", 3)  # inferred
    proto = build(*nodes)
    proto.graph.value_info.append(info("h", ["rows", 3]))
    assert load(proto, inputs=["h"]).inputs[0].shape == ("rows", 3)
    unheard = build(node("Unheard", ["x"], ["h"], domain="my"), nodes[1], opsets=(("", 18), ("my", 1)))
    part = load(unheard, inputs=["h"])
    assert str(part.inputs[0]) == "h: ?[…]"
    assert part(np.float32([1, 2])).tolist() == [-1, -2]
    inferred = build(node("NonZero", ["x"], ["h"]), node("Neg", ["h"], ["y"]))
    assert load(inferred, inputs=["h"]).inputs[0].shape == (2, None)


def test_nodes_in_any_order_and_an_input_with_a_default():
    nodes = [node("Neg", ["h"], ["y"]), node("Add", ["x", "w"], ["h"])]
    proto = build(*nodes, inputs=[info("x", ["N", 3]), info("w", [3])], initializers=[tensor(np.float32([1, 2, 3]))])
    x = np.zeros((1, 3), np.float32)
    part = load(proto, inputs=["x"])
    assert list(part.params) == ["w"]
    assert part(x).tolist() == [[-1, -2, -3]]
    assert load(proto, outputs=["h"])(x, w=np.ones(3, np.float32)).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("name", ["light_resnet50", "light_squeezenet"])
def test_features_of_a_network_of_images(name):
    full = load(carried(name))
    node = next(n for n in reversed(full.graph.nodes) if n.operator.name == "Relu")
    features, part = node.outputs[0], load(carried(name), outputs=[node.outputs[0]])
    image = RNG.normal(size=full.inputs[0].shape).astype(np.float32)
    close(part(image), full(image, outputs=[features]))
    assert len(part.graph.nodes) < len(full.graph.nodes)


def structure(**options):
    return jax.tree.structure(load(NET, **options))


def test_a_part_is_another_structure():
    assert structure(inputs=["h", "other"]) == structure(inputs=["h", "other"])
    structures = [structure(), structure(outputs=["y"]), structure(inputs=["h"], outputs=["y"])]
    assert len(set(structures)) == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"outputs": ["yy"]}, r"`outputs`: the model has no tensor 'yy'; similar: 'y'"),
        ({"inputs": ["he"], "outputs": ["y"]}, r"`inputs`: the model has no tensor 'he'; similar: 'h'"),
        ({"inputs": "h"}, r"`inputs` is 'h'; give a list of names"),
        ({"outputs": "y"}, r"`outputs` is 'y'; give a list of names"),
        ({"outputs": []}, r"`outputs` is empty; name at least one tensor"),
        ({"inputs": ["h", "other", "h"]}, r"`inputs` has a name twice: \('h', 'other', 'h'\)"),
        (
            {"inputs": ["h"]},
            r"`inputs`: output 'z' needs 'other', an input of the model, which Mul 'z' reads; add it to `inputs`",
        ),
        ({"inputs": ["h"], "outputs": ["x"]}, r"`inputs`: output 'x' needs 'x', an input of the model; add it"),
    ],
)
def test_errors(options, text):
    with pytest.raises(SignatureError, match=text):
        load(NET, **options)
