"""Differences from onnxruntime that are known, each with its reason. What is not here is a finding."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from random_nodes import Case


class Known(NamedTuple):
    """ops: operators, or "*". holds: whether a node (with its operands and onnxruntime's outputs) is such a case."""

    ops: str
    reason: str
    holds: Callable[[Case, Sequence[Any], Sequence[Any]], bool]


def _has_nan(case: Case, inputs: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return any(x is not None and x.dtype.kind == "f" and np.isnan(x.astype(np.float32)).any() for x in inputs)


def _not_finite(case: Case, inputs: Sequence[Any], theirs: Sequence[Any]) -> bool:
    found = [x for x in inputs if x is not None and x.dtype.kind == "f"]
    return any(not np.isfinite(x.astype(np.float32)).all() for x in found)


KNOWN = [
    Known(
        "MaxPool LpPool AveragePool GlobalMaxPool Max Min ReduceMax ReduceMin Clip ArgMax ArgMin TopK Relu MaxRoiPool",
        "NaN: jaxops propagates it as NumPy does, onnxruntime's vectorised loops skip it in some places",
        _has_nan,
    ),
    Known(
        "NonZero",
        "of a scalar it has shape (0, N), as the standard says; onnxruntime gives (1, N), as NumPy did",
        lambda case, inputs, theirs: inputs[0].ndim == 0,
    ),
    Known(
        "SkipSimplifiedLayerNormalization SkipLayerNormalization SimplifiedLayerNormalization EmbedLayerNormalization",
        "onnxruntime leaves the mean and the inverse deviation as its memory is",
        lambda case, inputs, theirs: case.n_outputs > 1 and not case.domain.startswith("ai"),
    ),
    Known(
        "DecoderMaskedMultiHeadAttention",
        "one step at a time: onnxruntime reads the first of several keys alone",
        lambda case, inputs, theirs: inputs[1].ndim == 3 and inputs[1].shape[1] > 1,
    ),
    Known(
        "MoE",
        "onnxruntime's kernel of float16 disagrees with its own of float32, with which jaxops agrees",
        lambda case, inputs, theirs: inputs[0].dtype == np.float16,
    ),
    Known(
        "Cast CastLike QuantizeLinear DynamicQuantizeLinear",
        "a NaN or an infinity has no integer; what comes out is not defined",
        _not_finite,
    ),
]


def known(case: Case, inputs: Sequence[Any], theirs: Sequence[Any]) -> Known | None:
    """The known difference of a node; None for a finding."""
    return next((k for k in KNOWN if case.op in k.ops.split() and k.holds(case, inputs, theirs)), None)
