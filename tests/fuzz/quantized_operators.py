"""Makers of the quantized operators, of the standard and of com.microsoft; see `operators`."""

from typing import Any

import numpy as np
from makers import own
from random_nodes import Made, broadcastable, data, one, shape, some

BYTES = (np.uint8, np.int8)
F32 = (np.float32,)
Pair = tuple[np.float32, np.ndarray]


def scale(rng: Any) -> np.float32:
    return np.float32(rng.uniform(0.1, 1))


def quantization(rng: Any, dtype: Any) -> Pair:
    """A scale and a zero point."""
    return scale(rng), data(rng, dtype, ())


def weights(rng: Any, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.float32, np.ndarray]:
    """A quantized tensor, its scale and its zero point."""
    dtype = one(rng, *BYTES)
    return data(rng, dtype, sizes), np.float32(rng.uniform(0.01, 0.1)), data(rng, dtype, ())


def symmetric(x: np.ndarray) -> np.ndarray:
    """The zero point that a signed type must have, and onnxruntime's kernels of weights."""
    return np.zeros((), x.dtype)


@own("ConvInteger", BYTES)
def conv_integer(rng: Any, dtype: Any) -> Made:
    x, w = data(rng, dtype, (1, 2, 5, 4)), data(rng, dtype, (3, 2, 2, 3))
    return [x, w, data(rng, dtype, ()), one(rng, None, data(rng, dtype, ()))], some(rng, pads=[1, 0, 0, 1])


@own("QLinearConv", BYTES)
def conv(rng: Any, dtype: Any) -> Made:
    x, w = data(rng, dtype, (1, 2, 5, 4)), data(rng, dtype, (3, 2, 2, 3))
    given = [x, *quantization(rng, dtype), w, scale(rng), symmetric(w), *quantization(rng, dtype)]
    return given, some(rng, pads=[1, 0, 0, 1])


@own("com.microsoft.QLinearConv", BYTES)
def conv_of_layouts(rng: Any, dtype: Any) -> Made:
    last = int(rng.integers(2))
    x = data(rng, dtype, (1, 5, 4, 2) if last else (1, 2, 5, 4))
    w = data(rng, dtype, (3, 2, 2, 3))
    given = [x, *quantization(rng, dtype), w, scale(rng), symmetric(w), *quantization(rng, dtype)]
    given.append(one(rng, None, data(rng, np.int32, 3)))
    return given, {"channels_last": last} | some(rng, pads=[1, 0, 0, 1])


@own("com.microsoft.QLinearAdd com.microsoft.QLinearMul", BYTES)
def pair(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    found: list[Any] = []
    for each in (sizes, broadcastable(rng, sizes)):
        found += [data(rng, dtype, each), *quantization(rng, dtype)]
    return [*found, np.float32(rng.uniform(0.5, 2)), data(rng, dtype, ())], {}


@own("com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid", BYTES)
def alone(rng: Any, dtype: Any) -> Made:
    x = data(rng, dtype, shape(rng, 1, empty=False))
    return [x, *quantization(rng, dtype), *quantization(rng, dtype)], some(rng, alpha=0.25)


@own("com.microsoft.QLinearSoftmax", BYTES)
def softmax(rng: Any, dtype: Any) -> Made:
    x = data(rng, dtype, shape(rng, 1, empty=False))
    axis = int(rng.integers(-x.ndim, x.ndim))
    return [x, *quantization(rng, dtype), np.float32(1 / 256), data(rng, dtype, ())], {
        "axis": axis,
        "opset": one(rng, 11, 13),
    }


@own("com.microsoft.QLinearGlobalAveragePool", BYTES)
def global_pool(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, (2, 3, 4, 2)), *quantization(rng, dtype), *quantization(rng, dtype)], {}


@own("com.microsoft.QLinearAveragePool", BYTES)
def average_pool(rng: Any, dtype: Any) -> Made:
    last = int(rng.integers(2))
    x = data(rng, dtype, (1, 6, 5, 3) if last else (1, 3, 6, 5))
    how = {"kernel_shape": [2, 3], "channels_last": last}
    how |= some(rng, strides=[2, 1], pads=[1, 0, 0, 1], count_include_pad=1)
    return [x, *quantization(rng, dtype), *quantization(rng, dtype)], how


@own("com.microsoft.NhwcMaxPool", BYTES)
def max_pool(rng: Any, dtype: Any) -> Made:
    how = some(rng, strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 2])
    return [data(rng, dtype, (2, 6, 5, 3))], {"kernel_shape": [2, 2]} | how


@own("com.microsoft.QLinearConcat", F32)
def concat(rng: Any, dtype: Any) -> Made:
    kind = one(rng, *BYTES)
    given: list[Any] = [*quantization(rng, kind)]
    for _ in range(int(rng.integers(1, 4))):
        given += [data(rng, kind, (2, int(rng.integers(1, 4)), 3)), *quantization(rng, kind)]
    return given, {"axis": 1}


@own("com.microsoft.QLinearWhere", (np.bool_,))
def where(rng: Any, dtype: Any) -> Made:
    kind, sizes = one(rng, *BYTES), shape(rng, 1, empty=False)
    given: list[Any] = [data(rng, dtype, broadcastable(rng, sizes))]
    for each in (sizes, broadcastable(rng, sizes)):
        given += [data(rng, kind, each), *quantization(rng, kind)]
    return [*given, *quantization(rng, kind)], {}


@own("com.microsoft.MatMulInteger16", (np.int16,))
def matmul_16(rng: Any, dtype: Any) -> Made:
    rows, inner, columns = rng.integers(1, 5, 3)
    return [data(rng, dtype, (rows, inner)), data(rng, dtype, (inner, columns))], {}


@own("com.microsoft.QGemm", (np.uint8,))
def gemm(rng: Any, dtype: Any) -> Made:
    rows, inner, columns = (int(v) for v in rng.integers(1, 5, 3))
    turned = int(rng.integers(2))
    b, b_scale, zero = weights(rng, (columns, inner) if turned else (inner, columns))
    bias = one(rng, None, data(rng, np.int32, columns))
    last = one(rng, (None, None), quantization(rng, dtype))
    a = data(rng, dtype, (rows, inner))
    return [a, *quantization(rng, dtype), b, b_scale, zero, bias, *last], {"transB": turned} | some(rng, alpha=0.5)


@own("com.microsoft.DynamicQuantizeMatMul", F32)
def dynamic_matmul(rng: Any, dtype: Any) -> Made:
    rows, inner, columns = (int(v) for v in rng.integers(1, 5, 3))
    b, b_scale, zero = weights(rng, (inner, columns))
    bias = one(rng, None, data(rng, dtype, columns))
    return [data(rng, dtype, (2, rows, inner)), b, b_scale, one(rng, None, zero), bias], {}


@own("com.microsoft.DynamicQuantizeLSTM", F32)
def lstm(rng: Any, dtype: Any) -> Made:
    hidden, size, batch, steps = 3, 2, int(rng.integers(1, 3)), int(rng.integers(1, 4))
    kind = one(rng, *BYTES)
    w, r = (data(rng, kind, (1, n, 4 * hidden)) for n in (size, hidden))
    ends = [np.full(1, 0.05, np.float32), np.zeros(1, kind)]
    given = [data(rng, dtype, (steps, batch, size)), w, r, one(rng, None, data(rng, dtype, (1, 8 * hidden)))]
    return [*given, None, None, None, None, *ends, *ends], {"hidden_size": hidden}, 3


@own("com.microsoft.QAttention", (np.uint8,))
def attention(rng: Any, dtype: Any) -> Made:
    heads, width, size, length = 2, 4, 3, int(rng.integers(1, 4))
    w, w_scale, _ = weights(rng, (size, 3 * width))
    x = data(rng, dtype, (2, length, size))
    x_scale, x_zero = quantization(rng, dtype)
    mask = one(rng, None, rng.integers(1, length + 1, 2).astype(np.int32))
    given = [x, w, data(rng, np.float32, 3 * width), x_scale, w_scale, mask, x_zero, symmetric(w)]
    return given, {"num_heads": heads} | some(rng, unidirectional=1)


@own("com.microsoft.QEmbedLayerNormalization", (np.int32,))
def embedding(rng: Any, dtype: Any) -> Made:
    width, length = 4, int(rng.integers(1, 4))
    tables = [data(rng, np.uint8, sizes) for sizes in ((6, width), (5, width), (3, width), (width,), (width,))]
    scales = [scale(rng) for _ in tables]
    zeros = [data(rng, np.uint8, ()) for _ in tables]
    ids = [rng.integers(0, n, (2, length)).astype(dtype) for n in (6, 3)]
    mask = one(rng, None, np.ones((2, length), dtype))
    return [*ids, *tables, mask, *scales, *zeros], some(rng, epsilon=1e-3), 2


@own("com.microsoft.QMoE", F32)
def experts(rng: Any, dtype: Any) -> Made:
    count, size, inner, rows, bits = 3, 16, 32, int(rng.integers(1, 4)), one(rng, 4, 8)
    packed = 8 // bits
    first = rng.integers(0, 256, (count, inner, size // packed)).astype(np.uint8)
    second = rng.integers(0, 256, (count, size, inner // packed)).astype(np.uint8)
    scales = [np.asarray(rng.uniform(0.005, 0.02, sizes), np.float32) for sizes in ((count, inner), (count, size))]
    given = [data(rng, dtype, (rows, size)), data(rng, dtype, (rows, count)), first, scales[0], None]
    how = {"k": int(rng.integers(1, 3)), "expert_weight_bits": bits, "activation_type": one(rng, "relu", "gelu")}
    return [*given, second, scales[1]], how | some(rng, normalize_routing_weights=1)


@own("com.microsoft.QuantizeLinear", F32)
def quantize(rng: Any, dtype: Any) -> Made:
    kind = one(rng, np.uint8, np.int8, np.uint16, np.int16)
    x, channels = data(rng, dtype, (2, 3, 4)), bool(rng.integers(2))
    if not channels:
        return [x, *quantization(rng, kind)], {}
    return [x, np.asarray(rng.uniform(0.1, 1, 3), dtype), data(rng, kind, 3)], {"axis": 1}


@own("com.microsoft.DequantizeLinear", (*BYTES, np.int32, np.uint16, np.int16))
def dequantize(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng, 1)), scale(rng), None if dtype == np.int32 else data(rng, dtype, ())], {}
