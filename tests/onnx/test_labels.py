"""The element types of labels and of what they are encoded as, which say whether a model needs 64 bits."""

import numpy as np
import onnxruntime
import pytest
from graphs import build, info, node, tensor
from onnx import TensorProto, helper

from jaxops.onnx import load


def answer(proto, x):
    """onnxruntime's."""
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize("labels", [[1, 5, 9], [1, 5, 2**40], [-(2**31), 5, 2**31 - 1]])
@pytest.mark.parametrize("op", ["classifier", "encoder"])
def test_labels_have_the_bits_that_they_need(op, labels):
    """scikit-learn's exporter casts int64 labels to int64."""
    if op == "classifier":
        given = {"coefficients": [1.0, 2.0, -1.0, 1.0, 0.5, -2.0], "intercepts": [0.0] * 3, "multi_class": 1}
        first = node("LinearClassifier", ["x"], ["l", "s"], domain="ai.onnx.ml", classlabels_ints=labels, **given)
        formal, x = info("x", ["N", 2]), np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    else:
        given = {"keys_floats": [0.5, 1.0, 2.0], "values_int64s": labels, "default_int64": 7}
        first = node("LabelEncoder", ["x"], ["l"], domain="ai.onnx.ml", **given)
        formal, x = info("x", ["N"]), np.float32([2.0, 0.5, 3.0, 1.0])
    proto = build(
        first,
        node("Cast", ["l"], ["y"], to=TensorProto.INT64),
        inputs=[formal],
        outputs=[info("y", None, TensorProto.INT64)],
        opsets=(("", 18), ("ai.onnx.ml", 3)),
    )
    loaded = load(proto)
    assert loaded.x64 == (max(labels) >= 2**31)
    np.testing.assert_array_equal(loaded(x), answer(proto, x))


@pytest.mark.parametrize(
    "given",
    [
        {"keys_floats": [0.5, 1.0], "values_int64s": [1, 2], "default_int64": -(2**33)},
        {
            "keys_tensor": np.int64([1, 2]),
            "values_tensor": np.float64([1 / 3, 2 / 3]),
            "default_tensor": np.float64([0]),
        },
        {"keys_tensor": np.int64([1, 2]), "values_tensor": np.int64([5, 2**40]), "default_tensor": np.int64([0])},
    ],
)
def test_values_and_defaults_have_the_bits_that_they_need(given):
    floats = "keys_floats" in given
    attributes = {k: tensor(v, k) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    proto = build(
        node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attributes),
        inputs=[info("x", ["N"], TensorProto.FLOAT if floats else TensorProto.INT64)],
        outputs=[helper.make_empty_tensor_value_info("y")],
        opsets=(("", 20), ("ai.onnx.ml", 4)),
    )
    loaded, x = load(proto), np.array([0.5, 1, 3], np.float32) if floats else np.array([1, 2, 3])
    assert loaded.x64
    found, expected = loaded(x), answer(proto, x)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), expected)
