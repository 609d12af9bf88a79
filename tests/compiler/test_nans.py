"""NaNs in weights and in inputs of models: no program loses them."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T, helper, numpy_helper

import jaxops.onnx

pytestmark = pytest.mark.optimized


def with_nans(*sizes, dtype):
    """An array of zeros with one NaN in the second half of its first axis."""
    w = np.zeros(sizes, dtype)
    w[-1].flat[w[-1].size // 3] = np.nan
    return w


ROWS = ("Constant", [], ["a"], {"value_ints": [1]})
ADDED = ("Add", ["x", "r"], ["y"], {})
FLAT = ("Flatten", ["g"], ["r"], {})
LOSES_NANS = {
    "ReduceMax": ((2, 4096), [ROWS, ("ReduceMax", ["w", "a"], ["r"], {"keepdims": 0}), ADDED]),
    "ReduceMin": ((2, 4096), [ROWS, ("ReduceMin", ["w", "a"], ["r"], {"keepdims": 0}), ADDED]),
    "ReduceLogSumExp": ((2, 4096), [ROWS, ("ReduceLogSumExp", ["w", "a"], ["r"], {"keepdims": 0}), ADDED]),
    "Softmax": (
        (2, 4096),
        [ROWS, ("Softmax", ["w"], ["s"], {}), ("ReduceSum", ["s", "a"], ["r"], {"keepdims": 0}), ADDED],
    ),
    "LogSoftmax": (
        (2, 4096),
        [ROWS, ("LogSoftmax", ["w"], ["s"], {}), ("ReduceSum", ["s", "a"], ["r"], {"keepdims": 0}), ADDED],
    ),
    "TopK": ((2, 4096), [ROWS, ("TopK", ["w", "a"], ["t", "i"], {}), ("Squeeze", ["t", "a"], ["r"], {}), ADDED]),
    "GlobalMaxPool": ((2, 1, 64, 64), [("GlobalMaxPool", ["w"], ["g"], {}), FLAT, ADDED]),
    "MaxPool, all": (
        (2, 1, 64, 64),
        [("MaxPool", ["w"], ["g"], {"kernel_shape": [64, 64]}), FLAT, ADDED],
    ),
    "MaxPool, parts": (
        (2, 1, 64, 64),
        [("MaxPool", ["w"], ["g"], {"kernel_shape": [32, 32], "strides": [32, 32]}), FLAT, ADDED],
    ),
    "MaxPool, overlaps": (
        (2, 1, 64, 64),
        [("MaxPool", ["w"], ["g"], {"kernel_shape": [3, 3], "strides": [2, 2]}), FLAT, ADDED],
    ),
    "Relu": ((2, 4096), [("Relu", ["w"], ["r"], {}), ADDED]),
    "Clip": ((2, 4096), [("Clip", ["w", "least", "most"], ["r"], {}), ADDED]),
    "Max": ((2, 4096), [("Max", ["w", "least"], ["r"], {}), ADDED]),
    "Min": ((2, 4096), [("Min", ["w", "most"], ["r"], {}), ADDED]),
    "DynamicQuantizeLinear": (
        (1, 4096),
        [
            ("Cast", ["w"], ["f"], {"to": T.FLOAT}),
            ("DynamicQuantizeLinear", ["f"], ["q", "s", "z"], {}),
            ("CastLike", ["s", "x"], ["r"], {}),
            ADDED,
        ],
    ),
}


@pytest.mark.grid
@pytest.mark.parametrize("where", ["weights", "inputs"])
@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        *((op, "float32") for op in LOSES_NANS),
        *((op, dtype) for op in ("ReduceMax", "MaxPool, all") for dtype in ("float16", "bfloat16", "float64")),
    ],
)
def test_nans_stay(op, dtype, where):
    """In weights as in inputs, prepared or not: XLA's maximum of many numbers may lose them, as its options say."""
    (sizes, nodes), dtype = LOSES_NANS[op], jnp.dtype(dtype)
    w, zero = with_nans(*sizes, dtype=dtype), np.zeros((), dtype)
    bounds = {"least": np.array(-1, dtype), "most": np.array(1, dtype)}
    given, kept = (zero, {"w": w}) if where == "weights" else (w, {"x": np.zeros((1, 1), dtype)})
    name, kind = "x" if where == "weights" else "w", helper.np_dtype_to_tensor_dtype(dtype)
    tensors = [numpy_helper.from_array(value, key) for key, value in (kept | bounds).items()]
    value = helper.make_tensor_value_info(name, kind, given.shape)
    body = [helper.make_node(*node, **attributes) for *node, attributes in nodes]
    graph = helper.make_graph(body, "g", [value], [onnx.ValueInfoProto(name="y")], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    model = jaxops.onnx.load(proto)
    with jax.disable_jit():
        expected = np.isnan(model.apply(model.params, given))
    assert expected.any()
    assert op == "DynamicQuantizeLinear" or not expected.all()
    for found in (
        model(given),
        model.apply(model.params, given),
        jax.jit(model.apply)(model.params, given),
        jax.jit(model)(given),
        jax.vmap(model)(np.stack([given, given]))[1],
    ):
        np.testing.assert_array_equal(np.isnan(found), expected)
