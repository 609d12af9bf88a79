"""Products of what DequantizeLinear makes are products of integers in a model's own programs, and give the same."""

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T, helper, numpy_helper
from programs import equations, specialized

import jaxops.onnx

RNG = np.random.default_rng(0)
TYPES = {"uint8": T.UINT8, "int8": T.INT8}


def integers(kind, *shape):
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max + 1, shape).astype(kind)


def weights(shape, axis, kind="int8", zero=0):
    """Numbers, and a scale and a zero point for each place along an axis; for all, where that is None."""
    sizes = () if axis is None else (shape[axis],)
    scale = (RNG.random(sizes) * 0.02 + 0.01).astype(np.float32)
    return {"w": integers(kind, *shape), "w_scale": scale, "w_zero": np.full(sizes, zero, kind)}


def model_of(node, x, tensors, axis=None, kind="uint8", zero=117, after=(), inputs=("x_float", "w_float")):
    """x, quantized, dequantized, with the weights into a node; `after` it others."""
    tensors = {**tensors, "x_scale": np.float32(0.02), "x_zero": np.array(zero, kind)}
    at = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["x_int"]),
        helper.make_node("DequantizeLinear", ["x_int", "x_scale", "x_zero"], ["x_float"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["w_float"], **at),
        helper.make_node(node[0], [*inputs, *node[1]], ["y"], **node[2]),
        *after,
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, x.shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], T.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def products(model, x):
    """The types of the sums of all products in a model's own program."""
    closed = jax.make_jaxpr(specialized(model.apply))(model.params, x)
    found = {"dot_general": set(), "conv_general_dilated": set()}
    for eqn in equations(closed.jaxpr):
        name = {"mixed_product": "dot_general"}.get(eqn.primitive.name, eqn.primitive.name)
        if name in found:
            found[name].add(eqn.outvars[0].aval.dtype.name)
    return found


def check(proto, x, most=1e-5):
    """A model's own program gives what `apply` gives, and what onnxruntime gives unoptimized."""
    model = jaxops.onnx.load(proto)
    found = np.asarray(model(x))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    for expected in (jax.jit(model.apply)(model.params, x), session.run(None, {"x": x})[0]):
        np.testing.assert_allclose(found, expected, rtol=most, atol=most * np.abs(expected).max())
    return model


CONVOLUTIONS = {
    "3×3": ((8, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    "1×1": ((8, 6, 1, 1), {}),
    "1×1, strided": ((8, 6, 1, 1), {"strides": [2, 2]}),
    "uneven": ((8, 6, 3, 2), {"pads": [2, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2]}),
    "depthwise": ((12, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "two groups": ((8, 3, 3, 3), {"group": 2, "auto_pad": "SAME_UPPER"}),
    "groups of many": ((4, 32, 3, 3), {"group": 2}),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution(name, axis, kind):
    shape, attributes = CONVOLUTIONS[name]
    x = RNG.standard_normal((2, shape[1] * attributes.get("group", 1), 9, 8)).astype(np.float32)
    tensors = weights(shape, axis) | {"b": RNG.standard_normal(shape[0]).astype(np.float32)}
    zero = 117 if kind == "uint8" else -11
    model = check(model_of(("Conv", ["b"], attributes), x, tensors, axis, kind, zero), x)
    assert "float32" not in products(model, x)["dot_general"]
    assert products(model, x)["conv_general_dilated"] == set()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("axis", [0, None])
def test_filters_with_a_zero_point(axis, kind):
    x = RNG.standard_normal((1, 6, 9, 8)).astype(np.float32)
    tensors = weights((8, 6, 3, 3), axis, kind, 5)
    model = check(model_of(("Conv", [], {"pads": [1, 1, 1, 1]}), x, tensors, axis), x)
    assert products(model, x)["dot_general"] == {"int32"}


PRODUCTS = {
    "MatMul": (("MatMul", [], {}), (12, 10), 1),
    "MatMul, by tensor": (("MatMul", [], {}), (12, 10), None),
    "MatMul of batches": (("MatMul", [], {}), (3, 12, 10), None),
    "Gemm": (("Gemm", [], {"alpha": 0.5}), (12, 10), 1),
    "Gemm, transposed": (("Gemm", ["b"], {"transB": 1, "beta": 2.0}), (10, 12), 0),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product(name, rows, kind):
    node, shape, axis = PRODUCTS[name]
    x = RNG.standard_normal((rows, 12)).astype(np.float32)
    tensors = weights(shape, axis, kind, 9) | {"b": RNG.standard_normal(10).astype(np.float32)}
    model = check(model_of(node, x, tensors, axis), x)
    assert products(model, x)["dot_general"] == {"int32"}


def test_a_transposed_left_operand():
    x = RNG.standard_normal((12, 7)).astype(np.float32)
    model = check(model_of(("Gemm", [], {"transA": 1}), x, weights((12, 10), 1), 1), x)
    assert products(model, x)["dot_general"] == {"int32"}


@pytest.mark.parametrize(
    ("node", "shape", "axis"),
    [
        (("MatMul", [], {}), (12, 10), 0),  # a scale for each row of the weights is inside of the sums
        (("Conv", [], {}), (8, 12, 1), 1),
        (("Conv", [], {}), (1, 12, 2900), 0),  # the sum of so many need not fit 32 bits
    ],
)
def test_other_products_stay_those_of_floats(node, shape, axis):
    x = RNG.standard_normal((2, 12, 2900) if node[0] == "Conv" else (7, 12)).astype(np.float32)
    model = check(model_of(node, x, weights(shape, axis), axis), x, 1e-3)  # sums of up to 34,800 floats
    assert products(model, x)["dot_general"] | products(model, x)["conv_general_dilated"] == {"float32"}


def test_what_else_reads_it_gets_floats():
    """Other operators, and the two branches of an If."""
    x = RNG.standard_normal((7, 12)).astype(np.float32)
    y = helper.make_tensor_value_info("t", T.FLOAT, None)
    branch = helper.make_graph([helper.make_node("Sub", ["x_float", "y"], ["t"])], "then", [], [y])
    same = helper.make_graph([helper.make_node("Identity", ["x_float"], ["t"])], "else", [], [y])
    after = [
        helper.make_node("ReduceSum", ["x_float"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "nothing"], ["positive"]),
        helper.make_node("If", ["positive"], ["chosen"], then_branch=branch, else_branch=same),
        helper.make_node("Concat", ["chosen", "x_float", "w_float"], ["all"], axis=0),
    ]
    tensors = weights((12, 12), None) | {"nothing": np.float32(0)}
    check(model_of(("MatMul", [], {}), x, tensors, after=after), x)
    check(model_of(("MatMul", [], {}), -x, tensors, after=after), -x)


def test_a_function_of_the_model():
    x = RNG.standard_normal((7, 12)).astype(np.float32)
    proto = model_of(("MatMul", [], {}), x, weights((12, 10), None))
    inner, outer = list(proto.graph.node[1:]), proto.graph.node[0]
    names = ["x_int", "x_scale", "x_zero", "w", "w_scale", "w_zero"]
    opset = helper.make_opsetid("", 17)
    proto.functions.append(helper.make_function("own", "Product", names, ["y"], inner, [opset]))
    del proto.graph.node[:]
    proto.graph.node.extend([outer, helper.make_node("Product", names, ["y"], domain="own")])
    proto.opset_import.append(helper.make_opsetid("own", 1))
    model = check(proto, x)
    assert products(model, x)["dot_general"] == {"int32"}


def test_gradients_follow_the_floats():
    x = RNG.standard_normal((3, 12)).astype(np.float32)
    tensors = weights((12, 10), 1) | {"b": RNG.standard_normal(10).astype(np.float32)}
    model = jaxops.onnx.load(model_of(("Gemm", ["b"], {}), x, tensors, 1))
    model(x)  # by integers
    found = jax.grad(lambda p: model.apply(p, x).sum())(model.params)
    np.testing.assert_allclose(found["b"], np.full(10, 3.0), rtol=1e-6)
    rounded = (np.clip(np.round(x / np.float32(0.02)) + 117, 0, 255) - 117) * np.float32(0.02)
    np.testing.assert_allclose(found["w_scale"], (rounded @ tensors["w"]).sum(0), rtol=1e-4, atol=1e-3)


LARGE = {
    "3×3": (("Conv", ["b"], {"pads": [1, 1, 1, 1]}), (1, 64, 28, 28), (64, 64, 3, 3), 0),
    "1×1": (("Conv", ["b"], {}), (1, 128, 28, 28), (64, 128, 1, 1), 0),
    "depthwise": (("Conv", ["b"], {"group": 64, "pads": [1, 1, 1, 1]}), (1, 64, 28, 28), (64, 1, 3, 3), 0),
    "one place": (("Conv", ["b"], {}), (1, 256, 1, 1), (64, 256, 1, 1), 0),
    "rows": (("Gemm", ["b"], {"transB": 1}), (96, 256), (64, 256), 0),
    "one row": (("Gemm", ["b"], {"transB": 1}), (1, 512), (64, 512), 0),
}


@pytest.mark.optimized
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", LARGE)
def test_thousands_of_elements(name, kind):
    node, sizes, shape, axis = LARGE[name]
    x = RNG.standard_normal(sizes).astype(np.float32)
    tensors = weights(shape, axis, kind, 3) | {"b": RNG.standard_normal(64).astype(np.float32)}
    check(model_of(node, x, tensors, axis), x, 1e-4)
