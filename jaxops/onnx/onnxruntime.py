"""Runs a model by onnxruntime, for a comparison with jaxops. No other file imports onnxruntime; here a call does."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import uses_external_data

from jaxops.errors import UnsupportedError
from jaxops.frontend.safe_files import Folders
from jaxops.onnx.read import located
from jaxops.onnx.tensors import tensors_of


def tensors(model: onnx.ModelProto, folders: Folders, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Computes each tensor that a node makes, by name, with onnxruntime and without its optimizations.

    model: is changed by the call. folders: where external data is. inputs: NumPy arrays, or sequences of them.
    Raises ModuleNotFoundError if onnxruntime is not installed; UnsupportedError for a model that onnxruntime refuses.
    """
    try:
        import onnxruntime

        state: Any = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("compare needs the onnxruntime package: pip install onnxruntime") from error
    asked = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    if (folder := _in_one_folder(model, folders)) is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    refusals = (state.Fail, state.InvalidArgument, state.InvalidGraph, state.NotImplemented, state.RuntimeException)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        fed = {value.name for value in session.get_inputs()} | {t.name for t in model.graph.initializer}
        results = session.run(asked, {name: x for name, x in inputs.items() if name in fed and x is not None})
    except refusals as error:
        raise UnsupportedError(f"onnxruntime does not run this model: {str(error).splitlines()[0]}") from error
    return dict(zip(asked, results, strict=True))


def _in_one_folder(model: onnx.ModelProto, folders: Folders) -> Path | None:
    """Returns one folder that holds all external data; rewrites the locations in `model` as paths inside it.

    onnxruntime takes one folder and follows no link out of it, so links are resolved here.
    """
    found = [
        (tensor, Path(str(located(tensor, folders).file))) for tensor in tensors_of(model) if uses_external_data(tensor)
    ]
    if not found:
        return None
    folder = Path(os.path.commonpath([path.parent for _, path in found]))
    for tensor, path in found:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = path.relative_to(folder).as_posix()
    return folder
