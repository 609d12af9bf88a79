"""What onnxruntime computes on a CPU, jaxops computes as well: its list of kernels beside our operators."""

import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

from jaxops.errors import UnsupportedError
from jaxops.onnx import registry
from jaxops.onnx.schemas import newest_opset

# (domain, operator) → why jaxops has none; "*" stands for all operators of a domain.
EXCLUDED = {
    ("", "MemcpyFromHost"): "it copies between devices, and only onnxruntime itself writes it",
    ("", "MemcpyToHost"): "it copies between devices, and only onnxruntime itself writes it",
    ("com.microsoft", "SampleOp"): "a demonstration of how an operator is added to onnxruntime",
    ("com.microsoft.nchwc", "*"): "its blocks of channels are the layout of one processor",
}
# onnxruntime keeps operators in the empty domain that the standard does not have; ours are in this one.
OWN = "com.microsoft"


def kernels():
    """The operators that onnxruntime has a CPU kernel of."""
    return {(k.domain, k.op_name) for k in get_all_opkernel_def() if k.provider == "CPUExecutionProvider"}


def has(domain, name):
    """Whether jaxops computes an operator at some version, by a function or by the standard's own body."""
    return any(_found(name, known) for known in {domain, domain or OWN})


def _found(name, domain):
    if registry.function(name, domain) is not None or (domain, name) in registry.adapters():
        return True
    try:
        return registry.find(name, domain, newest_opset(domain)) is not None
    except UnsupportedError:
        return False


def missing(listed, excluded):
    """Kernels without an operator, and exclusions that are not needed."""
    names = {(d, n) for d, n in listed if not has(d, n)}
    unlisted = sorted(row for row in names if row not in excluded and (row[0], "*") not in excluded)
    needed = {row for d, n in names for row in ((d, n), (d, "*"))}
    return unlisted, sorted(set(excluded) - needed)


def test_each_kernel_has_an_operator_or_a_reason():
    listed = kernels()
    assert len(listed) > 280
    assert missing(listed, EXCLUDED) == ([], [])


@pytest.mark.parametrize("row", [("", "Gemm"), ("com.microsoft", "NGramHashMapping"), ("ai.onnx.ml", "Scaler")])
def test_an_exclusion_that_is_not_needed_is_caught(row):
    assert missing(kernels(), EXCLUDED | {row: ""}) == ([], [row])


@pytest.mark.parametrize("row", [("", "Nothing"), ("com.microsoft", "Nothing"), ("another.domain", "Gemm")])
def test_a_missing_operator_is_caught(row):
    assert missing(kernels() | {row}, EXCLUDED) == ([row], [])
    assert ("com.microsoft", "SampleOp") in missing(kernels(), {})[0]
