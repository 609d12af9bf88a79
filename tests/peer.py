"""onnxruntime as a peer: one operator of an opset on NumPy arrays, those of narrow types included."""

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def runtime(op: str, inputs: Any, opset: int, n_outputs: int = 1, **attributes: Any) -> list[np.ndarray]:
    """The outputs; None is an input left out.

    Operands of types that NumPy lacks become initializers; all outputs are float32 then.
    """
    onnxruntime.set_default_logger_severity(4)
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}
    plain = {n: x for n, x in given.items() if x.dtype.isbuiltin == 1}
    outputs = [f"y{i}" for i in range(n_outputs)]
    nodes = [helper.make_node(op, names, outputs, **attributes)]
    kept = outputs
    if len(plain) < len(given):
        kept = [f"z{i}" for i in range(n_outputs)]
        nodes += [helper.make_node("Cast", [y], [z], to=TensorProto.FLOAT) for y, z in zip(outputs, kept, strict=True)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in plain.items()],
        [helper.make_empty_tensor_value_info(n) for n in kept],
        [numpy_helper.from_array(x, n) for n, x in given.items() if n not in plain],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, plain)
