"""Calls of each differentiable operator of the standard and of ai.onnx.ml, for `tests/ops/test_gradients.py`.

A case is what the newest version takes; an older version takes it too where its schema can say the same.
"""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CASES: dict[str, list["Case"]] = {}


class Case(NamedTuple):
    """A call. `inputs` holds None for those left out, and lists for sequences."""

    inputs: list[Any]
    attributes: dict[str, Any]
    outputs: int = 1
    opset: int | None = None  # one version alone
    narrow: bool = False  # it computes in float32, whatever it is given


class Made(NamedTuple):
    """Floats of a shape, made when the case is added: the name of the operator is their seed."""

    make: Callable[[Any], np.ndarray]


def f(*shape: int) -> Made:
    """Normal numbers, no two within 0.01 of each other or of a half integer, where operators have kinks."""
    return Made(lambda rng: _apart(rng, shape))


def _apart(rng: Any, shape: tuple[int, ...]) -> np.ndarray:
    x = np.sort(rng.normal(size=shape), None)
    x = np.round(x * 2 + np.arange(x.size) * 0.02, 2) / 2 + 0.0037
    return rng.permutation(x).reshape(shape)


def p(*shape: int) -> Made:
    """Numbers from 0.5 to 1.5."""
    return Made(lambda rng: rng.uniform(0.5, 1.5, shape))


def u(*shape: int) -> Made:
    """Numbers from -0.9 to 0.9."""
    return Made(lambda rng: rng.uniform(-0.9, 0.9, shape))


def i(*values: Any) -> np.ndarray:
    """Integers: one row, or rows."""
    return np.array(values, np.int64)


def n(value: int) -> np.ndarray:
    """An integer, of no axes."""
    return np.array(value, np.int64)


def b(*values: Any) -> np.ndarray:
    return np.array(values, bool)


def case(
    names: str, *inputs: Any, outputs: int = 1, opset: int | None = None, narrow: bool = False, **attributes: Any
) -> None:
    """Adds a case for each of these operators."""
    for name in names.split():
        rng = np.random.default_rng([zlib.crc32(name.encode()), len(CASES.get(name, ()))])
        CASES.setdefault(name, []).append(Case(_made(inputs, rng), attributes, outputs, opset, narrow))


def _made(value: Any, rng: Any) -> Any:
    if isinstance(value, Made):
        return value.make(rng)
    return [_made(item, rng) for item in value] if isinstance(value, list | tuple) else value


# Elementwise.
case("Abs Neg Sign Relu Floor Ceil Round Exp Erf Sigmoid Tanh Softplus Softsign Sin Cos Tan Atan Sinh Cosh Asinh", f(7))
case("Mish HardSwish Reciprocal Identity Swish Gelu Elu Selu Celu LeakyRelu ThresholdedRelu HardSigmoid Shrink", f(7))
case("Sqrt Log", p(5))
case("Asin Acos Atanh", u(5))
case("Acosh", Made(lambda rng: rng.uniform(1.5, 3, 5)))
case("Elu Celu LeakyRelu ThresholdedRelu Swish", f(7), alpha=0.7)
case("Selu HardSigmoid", f(7), **{"alpha": 0.3})
case("Selu", f(7), alpha=2.0, gamma=0.5)
case("HardSigmoid", f(7), alpha=0.3, beta=0.6)
case("Shrink", f(7), lambd=0.3, bias=0.3)
case("Gelu", f(7), approximate="tanh")
case("Add Sub Mul Div", f(2, 3), f(2, 1), opset=14)
case("Add Sub Mul Div", f(2, 3), f(3), axis=1, broadcast=1, opset=6)
case("Add Sub Mul Div Max Min Sum Mean", f(2, 3), f(2, 3))
case("Max Min Sum Mean", f(2, 3), f(3), f(2, 1), opset=13)
case("Pow", p(2, 3), f(2, 3))
case("Pow", f(5), np.array(2.0), opset=15)
case("Pow", p(5), np.array(0.5), opset=15)
case("Pow", f(5), np.array(3), opset=15)
case("Pow", p(5), i(0, 1, 2, 9, -2))
case("Mod", f(5), p(5), fmod=1)
case("Mod", f(5), p(5), opset=28)
case("PRelu", f(2, 3), f(3))
case("Clip", f(9), np.array(-0.5), np.array(0.6))
case("Clip", f(9), np.array(-0.5))
case("Clip", f(9), None, np.array(0.5))
case("Clip", f(9))
case("Clip", f(9), min=-0.5, max=0.6, opset=6)
case("SwiGLU", f(2, 3), f(2, 3), alpha=0.5)
case("Where", b(True, False, True), f(2, 3), f(3))
case("Cast", f(4), to=11)
case("CastLike", f(4), np.zeros(1))
case("BitCast", f(4), to=11)
case("Dropout", f(4))
case("Dropout", f(4), ratio=0.4, opset=10)

# Reductions.
REDUCE = "ReduceMean ReduceSum ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"
case(REDUCE + " ReduceMax ReduceMin", p(2, 3, 2), i(1))
case(REDUCE + " ReduceMax ReduceMin", p(2, 3, 2), i(0, -1), keepdims=0)
case(REDUCE + " ReduceMax ReduceMin", p(2, 3), None)
case(REDUCE, p(2, 3), None, noop_with_empty_axes=1)
case("ReduceProd", np.array([[0.0, 2, 3], [0, 0, 1]]), i(1))
case("CumSum CumProd", f(2, 4), n(1))
case("CumSum CumProd", f(2, 4), n(-2), exclusive=1, reverse=1)
case("CumProd", np.array([2.0, 0, 3, 0, 4]), n(0))
case("TopK", f(2, 5), i(2), outputs=2)
case("TopK", f(4, 3), i(2), axis=0, largest=0, sorted=0, outputs=2)
case("Hardmax", f(2, 4))
case("Softmax LogSoftmax", f(2, 3, 2))
case("Softmax LogSoftmax Hardmax", f(2, 3, 2), axis=1)

# Shapes and places.
case("Reshape", f(2, 6), i(3, -1))
case("Reshape", f(2, 6), i(0, 2, -1), allowzero=0)
case("Reshape", f(2, 6), opset=1, shape=(3, 4))
case("Flatten", f(2, 3, 2), axis=2)
case("Squeeze", f(2, 1, 3), i(1))
case("Unsqueeze", f(2, 3), i(1))
case("Transpose", f(2, 3, 2), perm=(2, 0, 1))
case("Transpose", f(2, 3))
case("Concat", f(2, 3), f(2, 1), axis=1)
case("Split", f(2, 5), i(2, 3), axis=1, outputs=2)
case("Split", f(6), num_outputs=2, outputs=2)
case("Split", f(6), outputs=2, opset=13)
case("Split", f(6), split=(2, 4), outputs=2, opset=1)
case("Tile", f(2, 3), i(2, 1))
case("Tile", f(2, 3), np.array(2.0, np.float32), np.array(1.0, np.float32), opset=1)
case("Expand", f(2, 1), i(3, 1, 4))
case("Slice", f(4, 5), i(3, 0), i(0, 5), i(0, 1), i(-2, 3))
case("Slice", f(4, 5), starts=(1, 0), ends=(4, 3), axes=(0, 1), opset=1)
case("Gather", f(3, 4), i([2, 0], [2, -1]), axis=1)
case("GatherElements", f(3, 4), i([2, 0, 2, -1]), axis=0)
case("GatherND", f(3, 4), i([2, 0], [2, 0], [1, -1]))
case("GatherND", f(2, 3), i([1], [1]), batch_dims=1)
for how in ("none", "add", "mul", "max", "min"):
    case("ScatterElements", f(3, 3), i([0, 2, 1]), f(1, 3), axis=0, reduction=how)
    case("ScatterND", f(4, 2), i([3], [1]), f(2, 2), reduction=how)
for how in ("add", "mul", "max", "min"):  # several updates of one element
    case("ScatterElements", f(4), i(1, 1, -3, 0), f(4), reduction=how)
    case("ScatterND", f(4, 2), i([1], [1], [3]), f(3, 2), reduction=how)
case("Scatter", f(3, 3), i([0, 2, 1]), f(1, 3))
case("TensorScatter", f(2, 4, 3), f(2, 2, 3), i(2, 1))
case("TensorScatter", f(2, 4, 3), f(2, 2, 3), i(3, 1), mode="circular")
for how in ("reflect", "edge", "wrap"):
    case("Pad", f(3, 4), i(1, 0, 2, -1), mode=how)
case("Pad", f(3, 4), i(1, 0, 2, -1), np.array(0.5))
case("Pad", f(3, 4), pads=(1, 0, 2, 1), mode="reflect", value=0.5, opset=2)
case("Pad", f(3, 4), paddings=(1, 0, 2, 1), mode="edge", value=0.5, opset=1)
case("CenterCropPad", f(3, 4), i(5, 2))
case("DepthToSpace", f(1, 8, 2, 1), blocksize=2)
case("DepthToSpace", f(1, 8, 2, 1), blocksize=2, mode="CRD")
case("SpaceToDepth", f(1, 1, 2, 4), blocksize=2)
case("Trilu", f(3, 4), n(1))
case("Trilu", f(3, 4), upper=0)
case("ReverseSequence", f(3, 2), i(3, 2))
case("OneHot", i(1, 3), n(4), f(2), axis=0)
case("SequenceConstruct", f(3), f(2))
case("SequenceAt SequenceErase", [f(3), f(2)], n(1))
case("SequenceInsert", [f(3)], f(2), n(0))
case("ConcatFromSequence", [f(3, 1), f(3, 2)], axis=1)
case("ConcatFromSequence", [f(3), f(3)], axis=0, new_axis=1)
case("SplitToSequence", f(5, 2), i(2, 3), axis=0)
case("Optional OptionalGetElement", f(3))

# Products.
case("MatMul", f(2, 3), f(2, 3, 2))
case("MatMul", f(3), f(3, 2))
case("Gemm", f(3, 2), f(3, 4), f(4), transA=1, alpha=0.5, beta=2.0, opset=13)
case("Gemm", f(2, 3), f(3, 4), f(4), broadcast=1, opset=6)
case("Gemm", f(2, 3), f(4, 3), f(2, 4), transB=1)
case("Einsum", f(2, 3), f(3, 2), equation="ij,jk->ik")
case("Einsum", f(3, 3), equation="ii->i")
case("Einsum", f(2, 3), f(3), f(2), equation="...j,j,i->i...")
case("Det", f(2, 3, 3))
case("Det", np.array([[1.0, 2, 0], [2, 4, 0], [1, 1, 1]]))
case("DFT", f(2, 4, 1), None, n(1))
case("DFT", f(2, 4, 2), n(5), n(1), inverse=1)
case("DFT", f(2, 4, 1), None, n(1), onesided=1)
case("DFT", f(2, 3, 2), n(4), axis=1, opset=17)
case("STFT", f(1, 8, 1), n(2), p(4), n(4))
case("STFT", f(1, 8, 1), n(3), None, n(4), onesided=0)

# Layers.
case("Conv", f(1, 2, 5), f(3, 2, 2), f(3), kernel_shape=(2,), pads=(1, 0), strides=(2,))
case("Conv", f(1, 4, 4, 3), f(2, 2, 2, 2), group=2, dilations=(2, 1), kernel_shape=(2, 2))
case("Conv", f(1, 2, 4, 3), f(2, 1, 3, 2), group=2, auto_pad="SAME_UPPER", kernel_shape=(3, 2))
case("Conv", f(1, 1, 3, 3, 3), f(1, 1, 2, 2, 2), kernel_shape=(2, 2, 2))
case("ConvTranspose", f(1, 2, 3), f(2, 3, 2), f(3), strides=(2,), pads=(1, 0), output_padding=(1,))
case("ConvTranspose", f(1, 4, 2, 3), f(4, 1, 2, 2), group=2, dilations=(1, 2), auto_pad="VALID")
case("DeformConv", f(1, 2, 4, 4), f(2, 2, 2, 2), f(1, 8, 3, 3), f(2), f(1, 4, 3, 3))
case("DeformConv", f(1, 2, 4, 4), f(2, 1, 2, 2), f(1, 16, 3, 3), group=2, offset_group=2)
case("CausalConvWithState", f(1, 2, 4), f(2, 1, 3), f(2), f(1, 2, 2), outputs=2)
case("CausalConvWithState", f(1, 2, 4), f(2, 1, 3), activation="silu", outputs=2)
POOLS = "MaxPool AveragePool LpPool"
case(POOLS, f(1, 2, 5), kernel_shape=(2,), strides=(2,), pads=(1, 0))
case(POOLS, f(1, 1, 5, 4), kernel_shape=(3, 2), ceil_mode=1, strides=(2, 1))
case(POOLS, f(1, 1, 5, 4), kernel_shape=(2, 2), dilations=(2, 1), auto_pad="VALID")
case("MaxPool", f(1, 1, 5), kernel_shape=(2,), outputs=2)
case("AveragePool", f(1, 1, 5), kernel_shape=(3,), pads=(1, 1), count_include_pad=1)
case("LpPool GlobalLpPool", f(1, 1, 4), **{"p": 1})
for order in (1, 3):
    case("LpPool", f(1, 1, 4), kernel_shape=(2,), p=order)
    case("GlobalLpPool", f(1, 1, 4), p=order)
CASES["LpPool"] = [c for c in CASES["LpPool"] if "kernel_shape" in c.attributes]
case("GlobalMaxPool GlobalAveragePool GlobalLpPool", f(2, 2, 3))
case("MaxUnpool", f(1, 1, 2, 2), i([[[0, 3], [9, 14]]]), kernel_shape=(2, 2), strides=(2, 2))
case("Col2Im", f(1, 4, 6), i(3, 4), i(2, 2))
case("BatchNormalization", f(3, 2, 2), f(2), f(2), f(2), p(2), epsilon=0.01)
case("BatchNormalization", f(3, 2, 2), f(2), f(2), f(2), p(2), training_mode=1, outputs=3)
case("BatchNormalization", f(3, 2, 2), f(2), f(2), f(2), p(2), opset=7)
case("BatchNormalization", f(3, 2, 2), f(2), f(2), f(2), p(2), is_test=1, opset=6)
case("InstanceNormalization", f(2, 2, 3), f(2), f(2))
case("LayerNormalization", f(2, 3), f(3), f(3), stash_type=11)
case("LayerNormalization", f(2, 3, 2), f(3, 2), axis=1, outputs=3)
case("RMSNormalization", f(2, 3), f(3), stash_type=11)
case("GroupNormalization", f(2, 4, 3), f(4), f(4), num_groups=2, stash_type=11)
case("GroupNormalization", f(2, 4, 3), f(2), f(2), num_groups=2, opset=18)
case("LpNormalization", f(2, 3))
case("LpNormalization", f(2, 3), axis=0, p=1)
case("MeanVarianceNormalization", f(2, 2, 2, 2))
case("MeanVarianceNormalization", f(2, 3), axes=(1,))
case("LRN", f(1, 4, 2), size=3, alpha=0.1)
case("LRN", f(1, 20, 2), size=18, alpha=0.1, beta=0.6, bias=2.0)
case("Attention", f(1, 2, 3, 2), f(1, 2, 4, 2), f(1, 2, 4, 3), f(3, 4))
case(
    "Attention",
    f(1, 2, 3, 2),
    f(1, 1, 3, 2),
    f(1, 1, 3, 2),
    is_causal=1,
    softcap=2.0,
    outputs=4,
    qk_matmul_output_mode=1,
)
case("Attention", f(1, 2, 4), f(1, 3, 4), f(1, 3, 4), b([True, False, False]), q_num_heads=2, kv_num_heads=2)
case("Attention", f(1, 1, 1, 2), f(1, 1, 2, 2), f(1, 1, 2, 2), None, f(1, 1, 2, 2), f(1, 1, 2, 2), outputs=3, scale=0.4)
case(
    "LinearAttention",
    f(1, 3, 4),
    f(1, 3, 4),
    f(1, 3, 4),
    q_num_heads=2,
    kv_num_heads=2,
    outputs=2,
    update_rule="linear",
)
case("RotaryEmbedding", f(1, 2, 3, 4), f(5, 2), f(5, 2), i([0, 2, 4]))
case("RotaryEmbedding", f(1, 3, 8), f(1, 3, 1), f(1, 3, 1), interleaved=1, num_heads=2, rotary_embedding_dim=2)
for way, count in (("forward", 1), ("bidirectional", 2)):
    how = {"hidden_size": 2, "direction": way} | ({} if count == 1 else {"opset": 22})
    case(
        "RNN",
        f(3, 2, 2),
        f(count, 2, 2),
        f(count, 2, 2),
        f(count, 4),
        i(3, 2).astype(np.int32),
        f(count, 2, 2),
        outputs=2,
        **how,
    )
    case("GRU", f(3, 2, 2), f(count, 6, 2), f(count, 6, 2), f(count, 12), i(3, 1).astype(np.int32), outputs=2, **how)
    case("LSTM", f(3, 2, 2), f(count, 8, 2), f(count, 8, 2), f(count, 16), i(3, 2).astype(np.int32), outputs=3, **how)
case("GRU", f(3, 2, 2), f(1, 6, 2), f(1, 6, 2), hidden_size=2, linear_before_reset=1, clip=0.7, outputs=2, opset=22)
case(
    "LSTM",
    f(2, 1, 2),
    f(1, 4, 2),
    f(1, 4, 1),
    None,
    None,
    f(1, 1, 1),
    f(1, 1, 1),
    f(1, 3),
    hidden_size=1,
    layout=0,
    input_forget=1,
    outputs=3,
)
LABELS = i([0, 2], [1, 0])
for how in ("mean", "sum", "none"):
    case("SoftmaxCrossEntropyLoss", f(2, 3, 2), LABELS, p(3), reduction=how, outputs=2)
    case("SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", f(2, 3, 2), LABELS, reduction=how, ignore_index=0)
    case("NegativeLogLikelihoodLoss", f(2, 3, 2), LABELS, p(3), reduction=how)

# Images.
SIZES = i(1, 1, 5, 3)
for how in ("nearest", "linear", "cubic"):
    case("Resize", f(1, 1, 3, 4), None, None, SIZES, mode=how, coordinate_transformation_mode="align_corners", opset=19)
    case(
        "Resize", f(1, 1, 4, 4), None, np.array([1, 1, 0.6, 1.4], np.float32), mode=how, antialias=int(how != "nearest")
    )
case(
    "Resize",
    f(1, 1, 4, 4),
    None,
    np.array([1, 1, 0.6, 1.4], np.float32),
    mode="cubic",
    exclude_outside=1,
    cubic_coeff_a=-0.5,
)
for how in ("half_pixel_symmetric", "pytorch_half_pixel", "asymmetric"):
    case("Resize", f(1, 1, 3, 4), None, None, SIZES, mode="linear", coordinate_transformation_mode=how, opset=19)
CROP = np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 1.2], np.float32)
case("Resize", f(1, 1, 4, 4), CROP, None, SIZES, mode="linear", coordinate_transformation_mode="tf_crop_and_resize")
case("Resize", f(1, 1, 3, 3), np.array([1, 1, 2, 1.5], np.float32), mode="linear", opset=10)
case("Resize", f(1, 1, 3, 3), np.ones(8, np.float32), np.array([1, 1, 2, 1.5], np.float32), mode="linear", opset=11)
case("Upsample", f(1, 1, 3, 2), height_scale=2.0, width_scale=1.5, mode="bilinear", opset=1)
case("Upsample", f(1, 1, 3, 2), scales=(1.0, 1.0, 2.0, 1.5), mode="linear", opset=7)
case("Upsample", f(1, 1, 3, 2), np.array([1, 1, 2, 1.5], np.float32), mode="linear", opset=9)
for how in ("zeros", "border", "reflection"):
    case("GridSample", f(1, 1, 3, 4), f(1, 2, 3, 2), padding_mode=how, opset=22)
case("GridSample", f(1, 1, 3, 4), f(1, 1, 3, 2), mode="cubic", padding_mode="border", opset=22)
case("GridSample", f(1, 1, 3, 4), f(1, 2, 3, 2), mode="bilinear", padding_mode="reflection", align_corners=1, opset=16)
case("GridSample", f(1, 1, 3, 4), f(1, 2, 3, 2), mode="nearest", opset=22)
case("GridSample", f(1, 1, 2, 3, 3), f(1, 1, 2, 2, 3), align_corners=1, opset=22)
case("AffineGrid", f(1, 2, 3), i(1, 1, 2, 3))
case("AffineGrid", f(1, 3, 4), i(1, 1, 2, 3, 2), align_corners=1)
ROIS = np.array([[0.63, 1.17, 4.31, 3.92], [0.76, 0.81, 2.7, 1.93]])
for how in ("avg", "max"):
    for count in (0, 2):
        case(
            "RoiAlign",
            f(1, 2, 5, 5),
            ROIS,
            i(0, 0),
            mode=how,
            sampling_ratio=count,
            output_height=2,
            output_width=2,
            opset=22,
        )
case("RoiAlign", f(1, 2, 5, 5), ROIS, i(0, 0), output_width=2, sampling_ratio=1, opset=10)
case("RoiAlign", f(1, 2, 5, 5), ROIS, i(0, 0), coordinate_transformation_mode="output_half_pixel", sampling_ratio=2)
case("MaxRoiPool", f(1, 2, 5, 5), np.array([[0.0, 1.1, 0.9, 3.3, 3.8]]), pooled_shape=(2, 2))

# Quantization, by the scales.
case("DequantizeLinear", i(3, -5).astype(np.int8), np.array(0.5, np.float32), np.array(1, np.int8), opset=10)
case("DequantizeLinear", i([3, -5], [1, 2]).astype(np.int8), np.array([0.5, 2], np.float32), axis=0)

# ai.onnx.ml.
ML = "ai.onnx.ml."
case(f"{ML}Scaler", f(2, 3), offset=(1.0, 2.0, 0.5), scale=(0.5, 2.0, 3.0))
for how in ("MAX", "L1", "L2"):
    case(f"{ML}Normalizer", f(2, 3), norm=how)
case(f"{ML}Imputer", f(1, 3), imputed_value_floats=(7.0,), replaced_value_float=2.0)
case(f"{ML}FeatureVectorizer", f(2, 3), f(2, 2), inputdimensions=(3, 2))
case(f"{ML}ArrayFeatureExtractor", f(2, 3), i(2, 0))
WEIGHTS = (0.5, -1.0, 0.25, 1.0, 2.0, -0.5)
for how in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
    case(f"{ML}LinearRegressor", f(2, 3), coefficients=WEIGHTS, intercepts=(0.1, 0.2), targets=2, post_transform=how)
    case(
        f"{ML}LinearClassifier", f(2, 3), coefficients=WEIGHTS, intercepts=(0.1, 0.2), classlabels_ints=(0, 1),
        post_transform=how, outputs=2,
    )  # fmt: skip
for how in ("LINEAR", "POLY", "RBF", "SIGMOID"):
    case(
        f"{ML}SVMRegressor", f(2, 3), coefficients=(0.5, -1.0), support_vectors=WEIGHTS, n_supports=2, rho=(0.3,),
        kernel_type=how, kernel_params=(0.5, 0.1, 2.0),
    )  # fmt: skip
case(
    f"{ML}SVMClassifier", f(2, 3), coefficients=(0.5, -1.0), support_vectors=WEIGHTS, vectors_per_class=(1, 1),
    rho=(0.3,), classlabels_ints=(0, 1), kernel_type="RBF", kernel_params=(0.5, 0.1, 2.0), outputs=2,
)  # fmt: skip
