"""Exports of models that draw random numbers, select boxes, or return dictionaries."""

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from symbolic_graphs import model

import jaxops.onnx

DRAWS = model("(float[b,4] x) => (float[b,4] y)", "r = RandomNormalLike(x)  y = Add(x, r)")
BOXES = (
    "(float[1,n,4] boxes, float[1,1,n] scores) => (int64[k,3] y)",
    """most = Constant<value = int64[1] {MOST}>()  overlap = Constant<value = float[1] {0.5}>()
    y = NonMaxSuppression(boxes, scores, most, overlap)""",
)


def test_a_random_key_is_the_last_input():
    loaded = jaxops.onnx.load(DRAWS)
    program = loaded.export()
    assert [str(aval) for aval in program.in_avals] == ["float32[b,4]", "key<fry>[]"]
    program = jax.export.deserialize(program.serialize())
    for b in (1, 3):
        x, key = np.ones((b, 4), np.float32), jax.random.key(7)
        np.testing.assert_array_equal(program.call({}, x, key), loaded.apply({}, x, rng=key))
        assert (program.call({}, x, key) != program.call({}, x, jax.random.key(8))).any()


@pytest.mark.parametrize("body", ["y = RandomNormalLike<seed=1.0>(x)", "y = Dropout(x)"])
def test_no_key_without_need(body):
    program = jaxops.onnx.load(model("(float[b,4] x) => (float[b,4] y)", body)).export()
    assert [str(aval) for aval in program.in_avals] == ["float32[b,4]"]


@pytest.mark.parametrize("most", ["9223372036854775807", "2147483648", "2"])
def test_boxes_of_a_free_number(most):
    """A limit of INT64_MAX, as exporters write "all boxes", does not fit 32 bits."""
    proto = model(BOXES[0], BOXES[1].replace("MOST", most))
    program = jaxops.onnx.load(proto, bounds={"y": 6}).export()
    session, rng = onnxruntime.InferenceSession(proto.SerializeToString()), np.random.default_rng(0)
    for n in (5, 1):
        corner = rng.uniform(0, 4, (1, n, 2))
        boxes = np.concatenate([corner, corner + 1], 2).astype(np.float32)
        scores = rng.uniform(0.1, 1, (1, 1, n)).astype(np.float32)
        (want,) = session.run(None, {"boxes": boxes, "scores": scores})
        got = np.asarray(program.call({}, boxes, scores))
        np.testing.assert_array_equal(got[: len(want)], want)
        assert (got[len(want) :] == -1).all()


def classifier(labels):
    """As skl2onnx writes it: labels, and a dictionary of scores for each row."""
    kinds = {"classlabels_strings": labels} if isinstance(labels[0], str) else {"classlabels_ints": labels}
    keys = {"classlabels_strings" if name.endswith("strings") else "classlabels_int64s": v for name, v in kinds.items()}
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "p"],
            domain="ai.onnx.ml",
            post_transform="SOFTMAX",
            coefficients=[1.0, -1.0, 0.5, 2.0],
            intercepts=[0.0, 0.1],
            **kinds,
        ),
        helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", **keys),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 2])
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("label", "maps")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], outputs), opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("labels", [[3, 5], ["no", "yes"]], ids=str)
def test_a_program_returns_dictionaries_and_strings(labels):
    loaded = jaxops.onnx.load(classifier(labels))
    program = jax.export.deserialize(loaded.export().serialize())
    x = np.array([[1, 2], [3, -1], [0, 1]], np.float32)
    chosen, maps = loaded(x)
    got, scores = program.call(loaded.params, x)
    assert np.asarray(got).tolist() == list(chosen)
    assert [list(row) for row in scores] == [labels] * 3
    for row, expected in zip(scores, maps, strict=True):
        assert row == pytest.approx(expected, rel=1e-6)


def test_dictionaries_under_jit_are_readable():
    texts = []

    def scores(params, x):
        texts.append(repr(loaded.apply(params, x)[1]))
        return x

    loaded = jaxops.onnx.load(classifier(["no", "yes"]))
    jax.jit(scores)(loaded.params, np.ones((3, 2), np.float32))
    assert texts == ["ZippedMaps(3 dictionaries with the keys 'no', 'yes'; array=float32[3,2])"]
