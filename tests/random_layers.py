"""Random nodes of layers, images, quantization, losses and ai.onnx.ml; see `random_nodes`."""

from typing import Any

import numpy as np
from random_nodes import Made, axis, data, maker, one, shape, some

TWO = (np.float32, np.float64)
F32 = (np.float32,)
BYTES = (np.uint8, np.int8)


def window(rng: Any, rank: int, dilated: bool = True) -> dict[str, Any]:
    """kernel_shape, strides and padding of a window that fits into sizes of 6 or more."""
    kernel = rng.integers(1, 4, rank).tolist()
    found = {"kernel_shape": kernel} | some(rng, strides=rng.integers(1, 3, rank).tolist())
    if rng.uniform() < 0.3:
        # Strides of at most the kernel: beyond it engines differ (see `shapes.nn.windows`).
        found["strides"] = np.minimum(kernel, found.get("strides", [1] * rank)).tolist()
        return found | {"auto_pad": one(rng, "SAME_UPPER", "SAME_LOWER", "VALID")}
    pads = [int(rng.integers(0, k)) for k in kernel * 2]
    return found | some(rng, pads=pads) | (some(rng, dilations=rng.integers(1, 3, rank).tolist()) if dilated else {})


@maker("Conv")
def conv(rng: Any, dtype: Any) -> Made:
    rank, group = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    how = window(rng, rank) | {"group": group}
    c, m = (group * int(v) for v in rng.integers(1, 3, 2))
    x = data(rng, dtype, (2, c, *rng.integers(6, 8, rank)))
    w = data(rng, dtype, (m, c // group, *how["kernel_shape"]))
    return [x, w, *([data(rng, dtype, (m,))] if rng.uniform() < 0.5 else [])], how


@maker("ConvTranspose")
def conv_transpose(rng: Any, dtype: Any) -> Made:
    inputs, how = conv(rng, dtype)[:2]
    how.pop("auto_pad", None)
    group, w = how["group"], inputs[1]
    w = data(rng, dtype, (inputs[0].shape[1], w.shape[0] // group, *w.shape[2:]))
    return [inputs[0], w, *inputs[2:]], how


@maker("MaxPool AveragePool LpPool")
def pooling(rng: Any, dtype: Any) -> Made:
    rank = int(rng.integers(1, 4))
    how = window(rng, rank) | some(rng, ceil_mode=one(rng, 0, 1), count_include_pad=one(rng, 0, 1))
    return [data(rng, dtype, (1, 2, *rng.integers(6, 9, rank)))], how


@maker("GlobalMaxPool", (np.float32, np.float16))
@maker("GlobalAveragePool GlobalLpPool")
def global_pooling(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, (2, 3, *rng.integers(1, 6, rng.integers(1, 4))))], {}


@maker("BatchNormalization InstanceNormalization", TWO)
def normalization(rng: Any, dtype: Any) -> Made:
    x = data(rng, dtype, (2, 3, *rng.integers(1, 6, rng.integers(1, 3))))
    scale, b, mean, var = (data(rng, dtype, (3,)) for _ in range(4))
    return [x, scale, b, mean, abs(var)], some(rng, epsilon=0.01)


@maker("LayerNormalization RMSNormalization")
def layer_normalization(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 1, empty=False)
    at = axis(rng, len(sizes))
    return [data(rng, dtype, sizes), data(rng, dtype, sizes[at:])], {"axis": at} | some(rng, epsilon=0.01)


@maker("Resize", (np.float32, np.float32, np.float64))
def resize(rng: Any, dtype: Any) -> Made:
    mode = one(rng, "nearest", "linear", "cubic")
    sizes = (1, 1, *(int(v) for v in rng.integers(2, 7, 2)))
    out = np.array([1, 1, *rng.integers(1, 12, 2)])
    how = {"mode": mode} | some(
        rng,
        coordinate_transformation_mode=one(
            rng, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"
        ),
        nearest_mode=one(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        **({"cubic_coeff_a": -0.5, "exclude_outside": one(rng, 0, 1)} if mode == "cubic" else {}),
        **({"antialias": one(rng, 0, 1)} if mode != "nearest" else {}),
    )
    if rng.uniform() < 0.5:
        scales = (out / sizes).astype(np.float32)
        return [data(rng, dtype, sizes), None, scales], how
    return [data(rng, dtype, sizes), None, None, out], how


@maker("GridSample", TWO)
def grid_sample(rng: Any, dtype: Any) -> Made:
    rank = 2 if rng.uniform() < 0.7 else 3
    x = data(rng, dtype, (2, 2, *rng.integers(2, 6, rank)))
    grid = rng.uniform(-1.4, 1.4, (2, *rng.integers(1, 5, rank), rank)).astype(dtype)
    how = some(rng, align_corners=one(rng, 0, 1), padding_mode=one(rng, "zeros", "border", "reflection"))
    return [x, grid], how | some(rng, mode=one(rng, "linear", "nearest"))


@maker("AffineGrid", TWO)
def affine_grid(rng: Any, dtype: Any) -> Made:
    # onnxruntime takes another place than PyTorch for an axis of one element.
    rank, n = one(rng, 2, 3), int(rng.integers(1, 3))
    size = np.array([n, 1, *rng.integers(2, 5, rank)])
    return [data(rng, dtype, (n, rank, rank + 1)), size], some(rng, align_corners=one(rng, 0, 1))


@maker("RoiAlign", F32)
def roi_align(rng: Any, dtype: Any) -> Made:
    rois = np.sort(rng.uniform(-1, 9, (3, 2, 2)), 1).reshape(3, 4).astype(dtype)
    how = some(rng, output_height=2, output_width=3, sampling_ratio=one(rng, 0, 2), mode=one(rng, "avg", "max"))
    how |= some(rng, coordinate_transformation_mode=one(rng, "half_pixel", "output_half_pixel"), spatial_scale=0.7)
    return [data(rng, dtype, (2, 2, 8, 7)), rois, rng.integers(0, 2, 3)], how


@maker("MaxRoiPool", F32)
def max_roi_pool(rng: Any, dtype: Any) -> Made:
    rois = np.sort(rng.uniform(-3, 12, (3, 2, 2)), 1).reshape(3, 4)
    rois = np.concatenate([rng.integers(0, 2, (3, 1)), rois], 1).astype(dtype)
    return [data(rng, dtype, (2, 2, 8, 7)), rois], {"pooled_shape": rng.integers(1, 4, 2).tolist()} | some(
        rng, spatial_scale=0.5
    )


@maker("NonMaxSuppression", F32)
def non_max_suppression(rng: Any, dtype: Any) -> Made:
    batch, classes, boxes = (int(v) for v in rng.integers(1, 5, 3))
    corners = rng.uniform(0, 1, (batch, boxes, 4)).astype(dtype)
    scores = rng.uniform(0, 1, (batch, classes, boxes)).astype(dtype)
    limits = [np.array(3), np.float32(rng.uniform(0, 0.7)), np.float32(rng.uniform(0, 0.5))]
    return [corners, scores, *map(np.asarray, limits)], some(rng, center_point_box=one(rng, 0, 1))


@maker("Col2Im", TWO)
def col2im(rng: Any, dtype: Any) -> Made:
    block, image = rng.integers(1, 4, 2), rng.integers(5, 8, 2)
    strides, pads = rng.integers(1, 3, 2), rng.integers(0, 2, 4)
    count = (image + pads[:2] + pads[2:] - block) // strides + 1
    x = data(rng, dtype, (2, 2 * int(block.prod()), int(count.prod())))
    return [x, image, block], {"strides": strides.tolist(), "pads": pads.tolist()}


@maker("DeformConv", TWO)
def deform_conv(rng: Any, dtype: Any) -> Made:
    groups, kernel = int(rng.integers(1, 3)), rng.integers(1, 3, 2)
    out, taps = 6 - kernel, groups * int(kernel.prod())
    offset, mask = (data(rng, dtype, (2, taps * n, *out)) for n in (2, 1))
    inputs = [data(rng, dtype, (2, 4, 5, 5)), data(rng, dtype, (2, 4, *kernel)), offset, data(rng, dtype, (2,)), mask]
    return inputs[: rng.integers(3, 6)], {"offset_group": groups}


@maker("RNN GRU LSTM", F32)
def recurrent(rng: Any, dtype: Any, op: str = "") -> Made:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    way = one(rng, "forward", "reverse", "bidirectional")
    n, (steps, batch, size, hidden) = 2 if way == "bidirectional" else 1, (int(v) for v in rng.integers(1, 5, 4))
    x, w = data(rng, dtype, (steps, batch, size)), data(rng, dtype, (n, gates * hidden, size)) / 3
    r, b = data(rng, dtype, (n, gates * hidden, hidden)) / 3, data(rng, dtype, (n, 2 * gates * hidden))
    lengths = rng.integers(1, steps + 1, batch).astype(np.int32) if rng.uniform() < 0.5 else None
    start = [data(rng, dtype, (n, batch, hidden)) if rng.uniform() < 0.5 else None for _ in range(1 + (op == "LSTM"))]
    if op == "LSTM":
        start.append(data(rng, dtype, (n, 3 * hidden)) if rng.uniform() < 0.5 else None)
    how = {"hidden_size": hidden, "direction": way} | some(rng, linear_before_reset=one(rng, 0, 1))
    if op != "LSTM":  # onnxruntime does not clip the input of h there, as the text says
        how |= some(rng, clip=1.0)
    return [x, w, r, b if rng.uniform() < 0.7 else None, lengths, *start], how, 2 + (op == "LSTM")


@maker("DFT", TWO)
def dft(rng: Any, dtype: Any) -> Made:
    sizes = (*shape(rng, 2, 3, empty=False), one(rng, 1, 2))
    at = int(rng.integers(1, len(sizes) - 1))
    how = some(rng, inverse=one(rng, 0, 1)) | ({"onesided": 1} if sizes[-1] == 1 and rng.uniform() < 0.4 else {})
    how.pop("inverse", None) if "onesided" in how else None
    return [data(rng, dtype, sizes), None, np.array(at)], how


@maker("DynamicQuantizeLinear", F32)
def dynamic(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, shape(rng, empty=False))], {}, 3


@maker("QLinearMatMul", BYTES)
def quantized_matmul(rng: Any, dtype: Any) -> Made:
    m, k, n = rng.integers(1, 6, 3)
    scales = [np.asarray(rng.uniform(0.1, 1), np.float32) for _ in range(3)]
    a, b = data(rng, dtype, (m, k)), data(rng, dtype, (k, n))
    points = [data(rng, dtype, ()) for _ in range(3)]
    return [a, scales[0], points[0], b, scales[1], points[1], scales[2], points[2]], {}


@maker("MatMulInteger", BYTES)
def integer_matmul(rng: Any, dtype: Any) -> Made:
    m, k, n = rng.integers(1, 6, 3)
    return [data(rng, dtype, (m, k)), data(rng, dtype, (k, n)), data(rng, dtype, ()), data(rng, dtype, ())], {}


@maker("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", TWO)
def loss(rng: Any, dtype: Any) -> Made:
    n, *rest = shape(rng, 1, 3, empty=False)
    labels = rng.integers(0, 4, (n, *rest))
    weights = [rng.uniform(0.5, 2, 4).astype(dtype)] if rng.uniform() < 0.5 else []
    how = some(rng, reduction=one(rng, "mean", "sum", "none"), ignore_index=1)
    return [data(rng, dtype, (n, 4, *rest)), labels, *weights], how


@maker("ReverseSequence", (np.float32, np.int64))
def reverse(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 2, empty=False)
    batch = one(rng, 0, 1)
    return [data(rng, dtype, sizes), rng.integers(1, sizes[1 - batch] + 1, sizes[batch])], {
        "batch_axis": batch,
        "time_axis": 1 - batch,
    }


@maker("DepthToSpace SpaceToDepth", (np.float32, np.float64))
def blocks(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, (2, 8, 4, 6))], {"blocksize": 2} | some(rng, mode=one(rng, "DCR", "CRD"))


@maker("TfIdfVectorizer", (np.int32, np.int64))
def ngrams(rng: Any, dtype: Any) -> Made:
    lengths = sorted(int(v) for v in rng.integers(1, 3, 2))
    how = {"mode": one(rng, "TF", "IDF", "TFIDF"), "min_gram_length": lengths[0], "max_gram_length": lengths[1]}
    pool = {"pool_int64s": [0, 1, 2, 0, 1, 1, 2, 2, 2], "ngram_counts": [0, 3]}
    how |= {"max_skip_count": int(rng.integers(0, 3)), "ngram_indexes": rng.permutation(6).tolist()}
    return [rng.integers(0, 4, shape(rng, 1, 2, empty=False)).astype(dtype)], how | pool | some(
        rng, weights=[0.5, 1.0, 2.0, 3.0, 4.0, 5.0]
    )


@maker("ai.onnx.ml.Scaler ai.onnx.ml.Normalizer ai.onnx.ml.Binarizer ai.onnx.ml.Imputer", (np.float32, np.int64))
def ml(rng: Any, dtype: Any) -> Made:
    numbers = {
        "offset": [1.0, 2.0, 0.5],
        "scale": [0.5, 2.0, 3.0],
        "norm": one(rng, "MAX", "L1", "L2"),
        "threshold": 0.5,
    }
    numbers |= (
        {"imputed_value_floats": [7.0], "replaced_value_float": 1.0}
        if dtype == np.float32
        else {
            "imputed_value_int64s": [7],
            "replaced_value_int64": 1,
        }
    )
    return [data(rng, dtype, (int(rng.integers(1, 4)), 3))], numbers


@maker("LRN", (np.float32,))
def lrn(rng: Any, dtype: Any) -> Made:
    return [data(rng, dtype, (2, 5, *shape(rng, 1, 2, empty=False)))], {"size": one(rng, 1, 3, 5)} | some(
        rng, alpha=0.1, beta=0.5, bias=2.0
    )
