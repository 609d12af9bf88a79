"""Differences from onnxruntime that are known, each with its reason. What is not here is a finding."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from random_nodes import Case


class Known(NamedTuple):
    """ops: operators. holds: whether a node with its operands, and our and onnxruntime's outputs, is such a case."""

    ops: str
    reason: str
    holds: Callable[[Case, Sequence[Any], Sequence[Any], Sequence[Any]], bool]


def _has_nan(case: Case, inputs: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return any(x is not None and x.dtype.kind == "f" and np.isnan(x.astype(np.float32)).any() for x in inputs)


def _not_finite(case: Case, inputs: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    found = [x for x in inputs if x is not None and x.dtype.kind == "f"]
    return any(not np.isfinite(x.astype(np.float32)).all() for x in found)


def _extreme(case: Case, inputs: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    found = [x for x in inputs if x is not None and x.dtype.kind == "f"]
    return any(not (np.abs(x.astype(np.float64)) < 1e18).all() for x in found)


def _huge_integers(case: Case, inputs: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    x = inputs[0]
    return x.dtype.kind in "iu" and x.size > 0 and bool(max(int(x.max()), -int(x.min())) > np.iinfo(x.dtype).max // 64)


def _overflows(case: Case, inputs: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """A power, or a product of all elements, that the type cannot hold."""
    x = inputs[0]
    if x.dtype.kind not in "iu" or not x.size:
        return False
    wide = [np.abs(v.astype(np.float64)) for v in inputs if v is not None]
    with np.errstate(all="ignore"):
        found = wide[0] ** wide[1] if case.op == "Pow" else np.prod(np.maximum(wide[0], 1))
    return bool(np.max(found) > np.iinfo(x.dtype).max)


def _one_step(case: Case, inputs: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Integers that differ by one at most."""
    return len(ours) == len(theirs) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0) <= 1
        for a, b in zip(ours, theirs, strict=True)
        if b.dtype.kind in "iu"
    )


def _saturated(case: Case, inputs: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Integers that differ by one at most, but where ours are the largest of their type."""
    most = ours[0] == np.iinfo(ours[0].dtype).max
    return bool(most.any()) and _one_step(case, inputs, [np.where(most, theirs[0], ours[0])], theirs)


KNOWN = [
    Known(
        "MaxPool LpPool AveragePool GlobalMaxPool Max Min ReduceMax ReduceMin Clip ArgMax ArgMin TopK Relu MaxRoiPool "
        "SoftmaxCrossEntropyLoss Sign Hardmax LSTM GRU RNN MoE QMoE",
        "NaN: jaxops propagates it as NumPy does, onnxruntime's vectorised loops skip it in some places",
        _has_nan,
    ),
    Known(
        "NonZero",
        "of a scalar it has shape (0, N), as the standard says; onnxruntime gives (1, N), as NumPy did",
        lambda case, inputs, ours, theirs: inputs[0].ndim == 0,
    ),
    Known(
        "SkipSimplifiedLayerNormalization SkipLayerNormalization SimplifiedLayerNormalization EmbedLayerNormalization",
        "onnxruntime leaves the mean and the inverse deviation as its memory is",
        lambda case, inputs, ours, theirs: case.n_outputs > 1 and not case.domain.startswith("ai"),
    ),
    Known(
        "DecoderMaskedMultiHeadAttention",
        "one step at a time: onnxruntime reads the first of several keys alone",
        lambda case, inputs, ours, theirs: inputs[1].ndim == 3 and inputs[1].shape[1] > 1,
    ),
    Known(
        "MoE",
        "onnxruntime's kernel of float16 disagrees with its own of float32, with which jaxops agrees",
        lambda case, inputs, ours, theirs: inputs[0].dtype == np.float16,
    ),
    Known(
        "ReduceSum ReduceSumSquare ReduceL1 ReduceL2 ReduceProd ReduceMean ReduceLogSum ReduceLogSumExp Normalizer",
        "integers that overflow wrap, as NumPy's, or are floats before they can; some kernels of onnxruntime saturate",
        _huge_integers,
    ),
    Known(
        "Pow ReduceProd",
        "integers that overflow wrap, as NumPy's; onnxruntime casts a float64, which C++ leaves undefined then",
        _overflows,
    ),
    Known(
        "QLinearConv QLinearMatMul QLinearAdd QLinearMul QLinearLeakyRelu QLinearSigmoid QLinearGlobalAveragePool "
        "QuantizeLinear DynamicQuantizeLinear",
        "a quotient at a half may be rounded the other way, as a product of two float32 scales is rounded before it",
        _one_step,
    ),
    Known(
        "QLinearSoftmax",
        "a probability beyond the largest integer of the type saturates; onnxruntime wraps it",
        _saturated,
    ),
    Known(
        "MeanVarianceNormalization",
        "of equal numbers onnxruntime rounds mean of squares less squared mean to below 0: NaN, where it is 0",
        lambda case, inputs, ours, theirs: bool(np.isnan(theirs[0]).any() and np.isfinite(inputs[0]).all()),
    ),
    Known(
        "Attention",
        "a row of a causal mask sees the past and the new keys up to its own, as the text says; onnxruntime counts "
        "from elsewhere where there are not as many new keys as queries",
        lambda case, inputs, ours, theirs: (
            bool(case.attributes.get("is_causal")) and len(inputs) > 4 and inputs[0].shape[-2] != inputs[1].shape[-2]
        ),
    ),
    Known(
        "Attention MultiHeadAttention PackedAttention PackedMultiHeadAttention GroupQueryAttention",
        "float16 that overflows: onnxruntime computes float16 in float32 on a CPU",
        lambda case, inputs, ours, theirs: (
            inputs[0].dtype == np.float16 and any(np.abs(x).max(initial=0) > 1e4 for x in inputs if x is not None)
        ),
    ),
    Known(
        "Det",
        "of a singular matrix: 0 but for the rounding of products",
        lambda case, inputs, ours, theirs: bool(
            np.allclose(ours[0], theirs[0], atol=1e-5 * float(np.abs(inputs[0]).max(initial=0)) ** inputs[0].shape[-1])
        ),
    ),
    Known(
        "ReduceLogSum",
        "a sum below 0 has a logarithm of NaN, which no integer is; one that cancels has that of its rounding",
        lambda case, inputs, ours, theirs: (
            inputs[0].dtype.kind in "iu"
            or bool(np.allclose(np.exp(ours[0].astype(np.float64)), np.exp(theirs[0].astype(np.float64)), atol=1e-5))
        ),
    ),
    Known(
        "DFT STFT Normalizer CDist DynamicQuantizeMatMul LinearAttention LayerNormalization Resize Upsample Attention "
        "Det DynamicQuantizeLSTM LogSoftmax Softmax",
        "infinities, and numbers whose squares are: both give infinities and NaNs, at other places",
        _extreme,
    ),
    Known(
        "LRN",
        "onnxruntime slides its sum over the channels: behind a large number nothing is left of small ones",
        lambda case, inputs, ours, theirs: not (np.abs(inputs[0].astype(np.float64)) < 1e3).all(),
    ),
    Known(
        "FastGelu",
        "onnxruntime has the coefficients of float64 in float32",
        lambda case, inputs, ours, theirs: (
            inputs[0].dtype == np.float64 and np.allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-6, equal_nan=True)
        ),
    ),
    Known(
        "QuantizeLinear",
        "a quotient that overflows is the largest integer, or the smallest; onnxruntime's kernel of blocks wraps it",
        _extreme,
    ),
    Known(
        "Inverse",
        "a singular matrix has no inverse: both give infinities and NaNs, at other places",
        lambda case, inputs, ours, theirs: not np.isfinite(theirs[0].astype(np.float64)).all(),
    ),
    Known(
        "BlackmanWindow HannWindow HammingWindow",
        "zeros at the ends, up to a rounding of terms that cancel",
        lambda case, inputs, ours, theirs: np.allclose(ours[0], theirs[0], atol=1e-6),
    ),
    Known(
        "Cast CastLike QuantizeLinear DynamicQuantizeLinear",
        "a NaN or an infinity has no integer; what comes out is not defined",
        _not_finite,
    ),
]


def known(case: Case, inputs: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> Known | None:
    """The known difference of a node; None for a finding."""
    return next((k for k in KNOWN if case.op in k.ops.split() and k.holds(case, inputs, ours, theirs)), None)
