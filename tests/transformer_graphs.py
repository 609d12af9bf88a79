"""Small transformers as exporters write them, in plain operators of the standard, for optimizers to fuse."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS = 32, 4


class Graph:
    """Nodes and weights, written down one after the other; every method returns the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(15)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_y"], name, **attributes))
        return f"{name}_y"

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.const(self.rng.normal(size=shape) / np.sqrt(shape[0]))

    def linear(self, x: str, columns: int, rows: int = WIDTH) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def norm(self, x: str) -> str:
        return self.op("LayerNormalization", x, self.weight(WIDTH), self.weight(WIDTH), axis=-1, epsilon=1e-5)

    def rms_norm(self, x: str) -> str:
        square = self.op("ReduceMean", self.op("Pow", x, self.const(2.0)), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", square, self.const(1e-5)))
        return self.op("Mul", self.weight(WIDTH), self.op("Mul", x, self.op("Div", self.const(1.0), root)))

    def gelu(self, x: str) -> str:
        part = self.op("Add", self.op("Erf", self.op("Div", x, self.const(2**0.5))), self.const(1.0))
        return self.op("Mul", self.op("Mul", x, part), self.const(0.5))

    def tanh_gelu(self, x: str) -> str:
        cube = self.op("Mul", self.op("Pow", x, self.const(3.0)), self.const(0.044715))
        inner = self.op("Mul", self.op("Add", x, cube), self.const((2 / np.pi) ** 0.5))
        part = self.op("Add", self.op("Tanh", inner), self.const(1.0))
        return self.op("Mul", self.op("Mul", x, self.const(0.5)), part)

    def silu(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def heads(self, x: str) -> str:
        split = self.op("Reshape", x, self.const([0, 0, HEADS, WIDTH // HEADS], np.int64))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, x: str, mask: str | None = None) -> str:
        query, key, value = (self.heads(self.linear(x, WIDTH)) for _ in range(3))
        scores = self.op("MatMul", query, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.const((WIDTH // HEADS) ** 0.5))
        if mask:
            scores = self.op("Add", scores, mask)
        found = self.op("MatMul", self.op("Softmax", scores, axis=-1), value)
        joined = self.op("Transpose", found, perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", joined, self.const([0, 0, WIDTH], np.int64)), WIDTH)

    def model(self, inputs: dict[str, np.ndarray], free: tuple[str, ...], output: str) -> onnx.ModelProto:
        """free: names for the first sizes of each input."""
        kinds = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in inputs.items()}
        given = [
            helper.make_tensor_value_info(n, kinds[n], [*free[: x.ndim], *x.shape[len(free) :]])
            for n, x in inputs.items()
        ]
        self.nodes[-1].output[0] = "y"
        assert output.startswith(self.nodes[-1].op_type)
        made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", given, [made], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def bert() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Embeddings of words, positions and segments, a mask of keys, and normalization behind each residual."""
    g, n, s = Graph(), 2, 8
    mask = np.array([[1] * s, [1] * 5 + [0] * 3])
    inputs = {"ids": g.rng.integers(0, 50, (n, s)), "segments": g.rng.integers(0, 2, (n, s)), "mask": mask}
    words = g.op("Gather", g.weight(50, WIDTH), "ids")
    kinds = g.op("Gather", g.weight(2, WIDTH), "segments")
    places = g.op("Gather", g.weight(s, WIDTH), g.const(np.arange(s)[None], np.int64))
    x = g.norm(g.op("Add", g.op("Add", words, kinds), places))
    wide = g.op("Unsqueeze", g.op("Unsqueeze", "mask", g.const([1], np.int64)), g.const([2], np.int64))
    closed = g.op("Sub", g.const(1.0), g.op("Cast", wide, to=TensorProto.FLOAT))
    barred = g.op("Mul", closed, g.const(-10000.0))
    for _ in range(2):
        x = g.norm(g.op("Add", g.attention(x, barred), x))
        x = g.norm(g.op("Add", g.linear(g.gelu(g.linear(x, 64)), WIDTH, 64), x))
    return g.model(inputs, ("n",), x), inputs


def gpt2() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Normalization before each step, a causal mask, and the tanh form of Gelu."""
    g, s = Graph(), 8
    inputs = {"x": g.rng.normal(size=(2, s, WIDTH)).astype(np.float32)}
    causal, x = g.const(np.triu(np.full((1, 1, s, s), -1e4), 1)), "x"
    for _ in range(2):
        x = g.op("Add", x, g.attention(g.norm(x), causal))
        x = g.op("Add", x, g.linear(g.tanh_gelu(g.linear(g.norm(x), 64)), WIDTH, 64))
    return g.model(inputs, ("n",), g.norm(x)), inputs


def llama() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Normalization by the root of the mean square, and a gated product behind it."""
    g = Graph()
    inputs = {name: g.rng.normal(size=(2, 8, WIDTH)).astype(np.float32) for name in ("x", "r")}
    x = g.op("Add", "x", "r")
    for _ in range(2):
        x = g.op("Add", x, g.attention(g.rms_norm(x)))
        n = g.rms_norm(x)
        gated = g.op("Mul", g.silu(g.op("MatMul", n, g.weight(WIDTH, 64))), g.op("MatMul", n, g.weight(WIDTH, 64)))
        x = g.op("Add", x, g.op("MatMul", gated, g.weight(64, WIDTH)))
    return g.model(inputs, ("n", "s"), g.rms_norm(x)), inputs


def vit() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Patches of an image from a convolution."""
    g = Graph()
    inputs = {"x": g.rng.normal(size=(2, 3, 16, 16)).astype(np.float32)}
    patches = g.op("Conv", "x", g.weight(WIDTH, 3, 4, 4), g.weight(WIDTH), strides=[4, 4])
    rows = g.op("Reshape", patches, g.const([0, WIDTH, 16], np.int64))
    x = g.op("Add", g.op("Transpose", rows, perm=[0, 2, 1]), g.weight(1, 16, WIDTH))
    for _ in range(2):
        x = g.op("Add", g.attention(g.norm(x)), x)
        x = g.op("Add", g.linear(g.gelu(g.linear(g.norm(x), 64)), WIDTH, 64), x)
    return g.model(inputs, ("n",), g.norm(x)), inputs


def whisper() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Two convolutions over time, each with a Gelu, before the layers."""
    g = Graph()
    inputs = {"x": g.rng.normal(size=(2, 8, 32)).astype(np.float32)}
    first = g.gelu(g.op("Conv", "x", g.weight(WIDTH, 8, 3), g.weight(WIDTH), pads=[1, 1]))
    more = g.op("Conv", first, g.weight(WIDTH, WIDTH, 3), g.weight(WIDTH), pads=[1, 1], strides=[2])
    x = g.op("Add", g.op("Transpose", g.gelu(more), perm=[0, 2, 1]), g.weight(16, WIDTH))
    for _ in range(2):
        x = g.op("Add", x, g.attention(g.norm(x)))
        x = g.op("Add", x, g.linear(g.gelu(g.linear(g.norm(x), 64)), WIDTH, 64))
    return g.model(inputs, ("n",), g.norm(x)), inputs


def unet() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Convolutions, norms of groups, and a transformer over pixels with a gated Gelu."""
    g = Graph()
    inputs = {"x": g.rng.normal(size=(2, 4, 8, 8)).astype(np.float32)}

    def conv(x: str, rows: int, size: int = 3) -> str:
        filters, pad = g.weight(WIDTH, rows, size, size), size // 2
        return g.op("Conv", x, filters, g.weight(WIDTH), pads=[pad] * 4, kernel_shape=[size, size])

    def group_norm(x: str) -> str:
        flat = g.op("Reshape", x, g.const([0, 32, -1], np.int64))
        one, zero = g.const(np.ones(32)), g.const(np.zeros(32))
        normal = g.op("InstanceNormalization", flat, one, zero, epsilon=1e-5)
        wide = g.op("Reshape", normal, g.op("Shape", x))
        return g.op("Add", g.op("Mul", wide, g.weight(WIDTH, 1, 1)), g.weight(WIDTH, 1, 1))

    x = conv("x", 4)
    x = g.op("Add", x, conv(g.silu(group_norm(conv(g.silu(group_norm(x)), WIDTH))), WIDTH))
    y = g.op("Transpose", conv(group_norm(x), WIDTH, 1), perm=[0, 2, 3, 1])
    y = g.op("Reshape", y, g.const([0, 64, WIDTH], np.int64))
    y = g.op("Add", g.attention(g.norm(y)), y)
    both = g.linear(g.norm(y), 256)
    last = g.const([-1], np.int64)  # halves as torch's `chunk` writes them
    length = g.op("Gather", g.op("Shape", both), last, axis=0)
    half = g.op("Div", g.op("Add", length, g.const([1], np.int64)), g.const([2], np.int64))
    middle = g.op("Mul", half, g.const([1], np.int64))
    left = g.op("Slice", both, g.const([0], np.int64), middle, last)
    right = g.op("Slice", both, middle, g.op("Mul", half, g.const([2], np.int64)), last)
    y = g.op("Add", g.linear(g.op("Mul", left, g.gelu(right)), WIDTH, 128), y)
    back = g.op("Reshape", y, g.const([0, 8, 8, WIDTH], np.int64))
    back = g.op("Add", conv(g.op("Transpose", back, perm=[0, 3, 1, 2]), WIDTH, 1), x)
    return g.model(inputs, ("n",), g.op("Resize", back, "", g.const([1, 1, 2, 2]), mode="nearest")), inputs
