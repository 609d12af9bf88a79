"""Quantized operators of com.microsoft beside onnxruntime, whose kernels may round another way by one step."""

from typing import Any

import numpy as np
from microsoft_peer import ours, runtime


def agree(
    op: str, inputs: Any, *, steps: int = 0, n_outputs: int = 1, tolerance: float = 1e-5, **attributes: Any
) -> Any:
    """Asserts that both give the same: integers up to `steps`, floats up to a tolerance. Returns onnxruntime's."""
    theirs = runtime(op, inputs, (True,) * n_outputs, **attributes)
    for mine, other in zip(ours(op, inputs, n_outputs, **attributes), theirs, strict=False):
        close(mine, other, steps, tolerance)
    return theirs[0] if n_outputs == 1 else theirs


def close(mine: Any, other: np.ndarray, steps: int = 0, tolerance: float = 1e-5) -> None:
    """Asserts equal sizes and types, and values that differ by no more than that."""
    found = np.asarray(mine)
    assert (found.dtype, found.shape) == (other.dtype, other.shape)
    if other.dtype.kind == "f":
        np.testing.assert_allclose(found, other, rtol=tolerance, atol=tolerance)
    else:
        apart = np.abs(found.astype(np.int64) - other.astype(np.int64))
        assert apart.max(initial=0) <= steps, f"{(apart > steps).sum()} of {apart.size} differ, by up to {apart.max()}"
