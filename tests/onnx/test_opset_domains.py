"""`jaxops.onnx.opset(n, domain=…)`: the operators of domains beside ONNX itself, by version."""

import pickle

import numpy as np
import pytest

from jaxops.errors import ArgumentError, SignatureError
from jaxops.onnx import opset

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_other_domains_by_version():
    labels = opset(3, domain="ai.onnx.ml")
    assert repr(labels) == "jaxops.onnx.opset(3, domain='ai.onnx.ml')"
    assert {"LabelEncoder", "Scaler"} < set(dir(labels))
    assert not hasattr(labels, "Relu")
    np.testing.assert_array_equal(labels.Binarizer(X, threshold=2.0), X > 2)
    assert opset(1, domain="ai.onnx.ml").LabelEncoder(["b", "z"], classes_strings=["a", "b"]).tolist() == [1, -1]
    with pytest.raises(SignatureError, match=r"LabelEncoder.*classes_strings"):
        labels.LabelEncoder(["b"], classes_strings=["a", "b"])
    op = opset(1, domain="com.microsoft")
    np.testing.assert_allclose(op.BiasGelu(X, X[0]), opset(20).Gelu(X + X[0]), rtol=1e-5)
    assert pickle.loads(pickle.dumps(op)).FastGelu(X).shape == X.shape
    assert opset(14, domain="ai.onnx").Add(X, X).shape == X.shape


@pytest.mark.parametrize(
    ("version", "domain", "match"),
    [
        (9, "com.microsoft", "opset 9: com.microsoft has opsets 1 to 1"),
        (99, "ai.onnx.ml", r"opset 99: ai.onnx.ml has opsets 1 to \d"),
        (1, "ai.onnx.mll", "domain 'ai.onnx.mll': jaxops knows ai.onnx, .*similar: 'ai.onnx.ml'"),
        (1, 3, "domain 3: jaxops knows ai.onnx, ai.onnx.ml"),
    ],
)
def test_unknown_domains_and_versions(version, domain, match):
    with pytest.raises(ArgumentError, match=match):
        opset(version, domain=domain)
