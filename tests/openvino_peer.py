"""Single operations as OpenVINO's CPU plugin, or its reference implementation, computes them."""

import os
from collections.abc import Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

REASON = "OpenVINO itself is the second opinion; pip install openvino"


def imported() -> Any:
    """OpenVINO; skips the test where it is not installed."""
    # Its import sends a message to its authors, in a process forked from this one, unless it runs in CI.
    with mock.patch.dict(os.environ, {"CI": "true"}):
        return pytest.importorskip("openvino", reason=REASON)


def runtime(
    opset: int,
    op: str,
    inputs: Sequence[Any],
    attributes: dict[str, Any],
    *,
    constants: Sequence[int] = (),
    reference: bool = False,
) -> list[np.ndarray]:
    """The outputs of an operation. constants: the positions of the inputs that the file holds.

    reference: by the reference implementation, which must know the sizes of the outputs beforehand.
    """
    openvino = imported()
    with mock.patch.dict(os.environ, {"CI": "true"}):
        factory = pytest.importorskip("openvino.utils.node_factory", reason=REASON).NodeFactory(f"opset{opset}")
    arrays = [np.asarray(x) for x in inputs]
    kinds = openvino.op
    nodes = [
        kinds.Constant(x) if i in constants else kinds.Parameter(openvino.Type(x.dtype), openvino.Shape(x.shape))
        for i, x in enumerate(arrays)
    ]
    node = factory.create(op, [n.output(0) for n in nodes], attributes)
    free = [i for i in range(len(nodes)) if i not in constants]
    model = openvino.Model([kinds.Result(output) for output in node.outputs()], [nodes[i] for i in free], "model")
    if reference:
        outputs = [openvino.Tensor(output.element_type, output.shape) for output in model.outputs]
        assert model.evaluate(outputs, [openvino.Tensor(np.ascontiguousarray(arrays[i])) for i in free])
        return [np.array(tensor.data) for tensor in outputs]
    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled([arrays[i] for i in free])
    return [np.array(results[i]) for i in range(len(compiled.outputs))]


def agree(
    opset: int,
    op: str,
    inputs: Sequence[Any],
    attributes: dict[str, Any],
    outputs: Any,
    *,
    atol: float = 1e-5,
    **options: Any,
) -> None:
    """Asserts that our outputs are OpenVINO's; 64-bit types may be those of 32 bits while x64 is off."""
    expected = runtime(opset, op, inputs, attributes, **options)
    ours = outputs if isinstance(outputs, tuple) else (outputs,)
    assert len(ours) == len(expected)
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine.dtype in (theirs.dtype, jax.dtypes.canonicalize_dtype(theirs.dtype))
        assert mine.shape == theirs.shape
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-4, atol=atol)
        else:
            np.testing.assert_array_equal(np.asarray(mine), theirs)
