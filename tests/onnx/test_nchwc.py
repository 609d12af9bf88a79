"""Files that onnxruntime optimized for one processor mean what the original means."""

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import build, info, node, tensor
from onnx import helper

from jaxops.errors import ModelError
from jaxops.onnx import check, load

DOMAIN = "com.microsoft.nchwc"
RNG = np.random.default_rng(3)
TWICE = np.float32([1, 1, 2, 2])


class Network:
    """A graph that grows node by node; each method takes and gives the names of tensors."""

    def __init__(self, sizes=(2, 3, 16, 16), opset=17):
        self.sizes, self.opset = sizes, opset
        self.nodes, self.weights = [], []

    def weight(self, values):
        self.weights.append(tensor(np.asarray(values), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, op, *inputs, **attributes):
        self.nodes.append(node(op, inputs, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def conv(self, x, inner, outer, width=3, group=1, **attributes):
        filters = RNG.standard_normal((outer, inner // group, width, width)) / np.sqrt(inner // group) / width
        w, b = self.weight(filters.astype(np.float32)), self.weight(RNG.standard_normal(outer).astype(np.float32))
        return self.add("Conv", x, w, b, group=group, pads=[width // 2] * 4, **attributes)

    def proto(self):
        self.nodes[-1].output[0] = "y"
        outputs = [helper.make_tensor_value_info("y", 1, None)]
        proto = build(*self.nodes, inputs=[info("x", self.sizes)], outputs=outputs, initializers=self.weights)
        proto.opset_import[0].version = self.opset
        return proto


def residual(net):
    x = net.add("Relu", net.conv("x", 3, 16))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    y = net.add("Relu", net.conv(x, 16, 32))
    return net.add("GlobalAveragePool", net.add("Relu", net.add("Add", net.conv(y, 32, 32), y)))


def channels_that_fill_no_block(net):
    x = net.add("LeakyRelu", net.conv("x", 3, 28), alpha=0.1)
    x = net.add("Clip", net.conv(x, 28, 44, 1), net.weight(np.float32(-1)), net.weight(np.float32(1)))
    x = net.add("HardSigmoid", net.conv(x, 44, 20), alpha=0.3, beta=0.4)
    return net.add("Softmax", net.conv(x, 20, 10, 1), axis=1)


def groups(net):
    x = net.add("Relu", net.conv("x", 3, 32))
    x = net.add("Relu", net.conv(x, 32, 32, 3, 32, strides=[2, 2]))
    x = net.add("Sigmoid", net.conv(net.conv(x, 32, 64, 1), 64, 64, 3, 2, dilations=[2, 2]))
    return net.add("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)


def joined(net):
    x = net.add("Relu", net.conv("x", 3, 16))
    x = net.add("Concat", x, net.add("Tanh", net.conv(x, 16, 16)), axis=1)
    return net.add("GlobalMaxPool", net.conv(x, 32, 32))


def normalized(net):
    x = net.add("Relu", net.conv("x", 3, 32))
    statistics = [net.weight(s) for s in RNG.random((4, 32), np.float32) + 0.5]
    x = net.add("MaxPool", x, kernel_shape=[2, 2])
    return net.conv(net.add("Relu", net.add("BatchNormalization", x, *statistics)), 32, 16)


def gated(net):
    x = net.add("Relu", net.conv("x", 3, 32))
    p = net.add("Relu", net.conv(net.add("GlobalAveragePool", x), 32, 8, 1))
    x = net.conv(net.add("Mul", x, net.add("Sigmoid", net.conv(p, 8, 32, 1))), 32, 16)
    x = net.conv(net.add("Mul", x, net.add("Sigmoid", x)), 16, 16)
    return net.conv(net.add("Mul", x, net.add("HardSigmoid", x, alpha=1 / 6, beta=0.5)), 16, 16)


def channels_last(net):
    x = net.add("Transpose", "x", perm=[0, 3, 1, 2])
    return net.add("Transpose", net.add("Relu", net.conv(x, 16, 24)), perm=[0, 2, 3, 1])


def from_twenty(net):
    return net.add("AveragePool", net.conv("x", 20, 16), kernel_shape=[2, 2], auto_pad="SAME_UPPER")


def from_twelve(net):
    return net.conv(net.conv("x", 12, 16), 16, 12)


def pool_first(net):
    return net.conv(net.add("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2]), 32, 16)


def nearest(net):
    x = net.conv("x", 3, 16)
    way = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return net.conv(net.add("Resize", x, "", net.weight(TWICE), mode="nearest", **way), 16, 8)


def linear(net):
    x = net.conv("x", 3, 16)
    return net.conv(net.add("Resize", x, "", net.weight(TWICE), mode="linear"), 16, 8)


def aligned(net):
    way, scales = {"coordinate_transformation_mode": "align_corners"}, net.weight(np.float32([1, 1, 2, 3]))
    return net.conv(net.add("Resize", net.conv("x", 3, 16), "", scales, mode="linear", **way), 16, 8)


def resized_10(net):
    return net.conv(net.add("Resize", net.conv("x", 3, 16), net.weight(TWICE), mode="nearest"), 16, 8)


def resized_9(net):
    return net.conv(net.add("Upsample", net.conv("x", 3, 16), net.weight(TWICE), mode="nearest"), 16, 8)


def resized_7(net):
    return net.conv(net.add("Upsample", net.conv("x", 3, 16), scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"), 16, 8)


NETWORKS = {
    residual: {}, channels_that_fill_no_block: {}, groups: {}, joined: {}, normalized: {}, gated: {}, nearest: {},
    linear: {}, aligned: {}, channels_last: {"sizes": (1, 8, 8, 16)}, from_twenty: {"sizes": (1, 20, 9, 9)},
    from_twelve: {"sizes": (2, 12, 9, 9)}, pool_first: {"sizes": (1, 32, 8, 8)}, resized_10: {"opset": 10},
    resized_9: {"opset": 9}, resized_7: {"opset": 8},
}  # fmt: skip


def optimized(proto, path):
    """The file that onnxruntime writes for this processor."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath, options.log_severity_level = str(path), 4
    onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    assert DOMAIN in {n.domain for n in onnx.load(path).graph.node}
    return path


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_an_optimized_file_gives_what_the_original_gives(network, tmp_path):
    net = Network(**NETWORKS[network])
    network(net)
    proto, x = net.proto(), RNG.standard_normal(net.sizes).astype(np.float32)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    path = optimized(proto, tmp_path / "net.onnx")
    model = load(path)
    for found in (model(x), jax.jit(model.apply)(model.params, x)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not check(path).missing


def test_the_tools_take_an_optimized_file(tmp_path):
    net = Network()
    residual(net)
    proto, x = net.proto(), RNG.standard_normal(net.sizes).astype(np.float32)
    original, model = load(proto), load(optimized(proto, tmp_path / "net.onnx"))
    assert model.compare(x).agrees
    slope = jax.grad(lambda params: (model.apply(params, x) ** 2).sum())(model.params)
    wanted = jax.grad(lambda params: (original.apply(params, x) ** 2).sum())(original.params)
    sizes = [float((g**2).sum()) for g in slope.values()], [float((g**2).sum()) for g in wanted.values()]
    np.testing.assert_allclose(sorted(sizes[0]), sorted(sizes[1]), rtol=1e-3)  # the elements have another order
    model.save(tmp_path / "again.onnx", {name: 2 * w for name, w in model.params.items()})
    session = onnxruntime.InferenceSession(tmp_path / "again.onnx")
    np.testing.assert_allclose(load(tmp_path / "again.onnx")(x), session.run(None, {"x": x})[0], rtol=1e-4)
    np.testing.assert_array_equal(model.export().call(model.params, x).shape, (2, 32, 1, 1))


def in_blocks(filters, size, of_blocks):
    """Filters as onnxruntime orders them: (O/B, I/B, …, B of I, B of O), or without blocks of I."""
    outer, inner, *places = filters.shape
    if of_blocks:
        split = filters.reshape(outer // size, size, inner // size, size, *places)
        return split.transpose(0, 2, 4, 5, 3, 1).reshape(filters.shape)
    return filters.reshape(outer // size, size, inner, *places).transpose(0, 2, 3, 4, 1).reshape(filters.shape)


@pytest.mark.parametrize(("size", "middle", "last"), [(8, 24, 8), (16, 32, 32), (8, 32, 24), (16, 48, 20)])
def test_a_block_has_as_many_channels_as_the_sizes_say(size, middle, last, tmp_path):
    """Here nothing but the file says it: the processor of this machine has one size only."""
    whole = -(-last // size) * size
    first = RNG.standard_normal((middle, 12 if size == 16 else 3, 3, 3)).astype(np.float32)
    second = RNG.standard_normal((whole, middle, 3, 3)).astype(np.float32)
    second[last:] = 0
    x = RNG.standard_normal((1, first.shape[1], 7, 7)).astype(np.float32)
    pads = {"pads": [1, 1, 1, 1]}
    files = [
        build(
            node("Conv", ["x", "w"], ["a"], domain=DOMAIN, activation="Relu", **pads),
            node("Conv", ["a", "v"], ["b"], domain=DOMAIN, **pads),
            node("ReorderOutput", ["b"], ["y"], domain=DOMAIN, channels=last),
            inputs=[info("x", x.shape)],
            outputs=[helper.make_tensor_value_info("y", 1, None)],
            initializers=[tensor(in_blocks(first, size, False), "w"), tensor(in_blocks(second, size, True), "v")],
            opsets=(("", 17), (DOMAIN, 1)),
        ),
        build(
            node("Conv", ["x", "w"], ["a"], **pads),
            node("Relu", ["a"], ["r"]),
            node("Conv", ["r", "v"], ["y"], **pads),
            inputs=[info("x", x.shape)],
            outputs=[helper.make_tensor_value_info("y", 1, None)],
            initializers=[tensor(first, "w"), tensor(second[:last], "v")],
        ),
    ]
    found, expected = (load(proto)(x) for proto in files)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (node("Conv", ["x"], ["y"], domain=DOMAIN), "its filters must be an initializer of 4 axes"),
        (node("Conv", ["x", "x"], ["y"], domain=DOMAIN), "its filters must be an initializer of 4 axes"),
        (node("Conv", ["x", "w"], ["y"], domain=DOMAIN), "its filters must be an initializer of 4 axes"),
        (node("ReorderInput", [], ["y"], domain=DOMAIN), "an input or its output is missing"),
        (node("ReorderOutput", ["x"], ["y"], domain=DOMAIN), "`channels` must be the number of channels"),
        (node("ReorderOutput", ["x"], ["y"], domain=DOMAIN, channels=0), "`channels` must be the number of channels"),
        (node("Upsample", ["x"], ["y"], domain=DOMAIN, scales=[1, 1, 2]), "`scales` must be four positive integers"),
    ],
)
def test_a_damaged_node(bad, text):
    proto = build(bad, initializers=[tensor(np.ones((3, 1, 1, 1), np.float32), "w")], opsets=(("", 17), (DOMAIN, 1)))
    for use in (load, check):
        with pytest.raises(ModelError, match=f"node 'y' .{bad.op_type} of com.microsoft.nchwc.: {text}"):
            use(proto)
