"""onnxruntime as a peer: one operator on NumPy arrays, those of narrow types included."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def runtime(op: str, inputs: Any, opset: int, n_outputs: int = 1, **attributes: Any) -> list[np.ndarray]:
    """The outputs of an operator of the standard; None is an input left out. Narrow types: see `run_node`."""
    return run_node(op, inputs, (True,) * n_outputs, attributes, {"": opset})


def run_node(
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    attributes: Mapping[str, Any],
    opsets: Mapping[str, int],
    domain: str = "",
) -> list[Any]:
    """The outputs that are asked for; None is an input left out, a list of arrays a sequence.

    outputs: for each output True, or its element type where onnxruntime cannot infer it; False or None leaves it out.
    Operands of types that NumPy lacks become initializers; all outputs are float32 then.
    """
    onnxruntime.set_default_logger_severity(4)
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    lists = {n: [f"{n}_{k}" for k in range(len(x))] for n, x in zip(names, inputs, strict=True) if isinstance(x, list)}
    given = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n and n not in lists}
    given |= {item: x for n in lists for item, x in zip(lists[n], inputs[names.index(n)], strict=True)}
    plain = {n: x for n, x in given.items() if x.dtype.isbuiltin == 1}
    made = {f"y{i}": kind for i, kind in enumerate(outputs) if kind not in (False, None)}
    results = [f"y{i}" if f"y{i}" in made else "" for i in range(len(outputs))]
    nodes = [helper.make_node("SequenceConstruct", items, [n]) for n, items in lists.items()]
    nodes.append(helper.make_node(op, names, results, domain=domain, **attributes))
    kept = [
        helper.make_empty_tensor_value_info(n) if kind is True else helper.make_tensor_value_info(n, _code(kind), None)
        for n, kind in made.items()
    ]
    if len(plain) < len(given):
        nodes += [helper.make_node("Cast", [y], [f"{y} as float32"], to=TensorProto.FLOAT) for y in made]
        kept = [helper.make_empty_tensor_value_info(f"{y} as float32") for y in made]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, _code(x.dtype), x.shape) for n, x in plain.items()],
        kept,
        [numpy_helper.from_array(x, n) for n, x in given.items() if n not in plain],
    )
    imports = [helper.make_opsetid(name, version) for name, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1  # each thread of a DynamicQuantizeLSTM would quantize a part of the batch
    return list(onnxruntime.InferenceSession(model.SerializeToString(), settings).run(None, plain))


def _code(dtype: Any) -> int:
    kind = np.dtype(dtype)
    return TensorProto.STRING if kind.kind == "O" else helper.np_dtype_to_tensor_dtype(kind)
