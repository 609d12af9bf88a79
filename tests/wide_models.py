"""Models of 64 bits, and what onnxruntime makes of them."""

import numpy as np
import onnxruntime
from graphs import model


def text(body, x="int64[3]", y="int64[K]", opset=18, **options):
    return model(f"main ({x} x) => ({y} y) {{ {body} }}", opset=opset, **options)


def answer(proto, x):
    """onnxruntime's."""
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(None, {"x": x})[0]


def bits(got, expected):
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(got), expected)
