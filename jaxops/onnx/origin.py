"""The file that a model came from, read again to write it with other weights, or to run it elsewhere."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import helper

from jaxops.frontend.extraction import Extraction
from jaxops.frontend.runtime_inputs import feeds
from jaxops.frontend.safe_files import Folders
from jaxops.graph.nodes import Graph
from jaxops.onnx.inference import for_inference
from jaxops.onnx.open import parsed, whole
from jaxops.onnx.read import read
from jaxops.onnx.save import save


@dataclass(frozen=True)
class Origin:
    """The source of a model: a file, read again when it is needed, its bytes, or a ModelProto.

    folders: where its external data lies. extraction: the part that was loaded. values: by name, of the inputs that
    `load` fixed.
    """

    suffix: ClassVar[str] = ".onnx"
    source: Path | bytes | onnx.ModelProto
    folders: Folders
    extraction: Extraction
    values: Mapping[str, Any]

    def tensors(self, inputs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> dict[str, Any]:
        """Computes each tensor of the graph, by name, with onnxruntime: see `jaxops.onnx.onnxruntime`."""
        from jaxops.onnx.onnxruntime import tensors

        fed = feeds({**self.values, **inputs}, dtypes)
        proto = self.proto()
        return tensors(_extracted(proto, self.extraction, fed) if self.extraction else proto, self.folders, fed)

    def proto(self) -> onnx.ModelProto:
        """Reads the model again, as a copy that the caller may change; external data stays in its files.

        Raises FileNotFoundError and ModelError for a file that is gone or damaged.
        """
        return whole(self.source)

    def save(
        self,
        path: str | os.PathLike[str],
        graph: Graph,
        weights: Mapping[str, Any],
        dtypes: Mapping[str, np.dtype],
        original: Mapping[str, Any],
    ) -> "Origin":
        """Writes the model with other weights, for inference if it trains: see `jaxops.onnx.save`."""
        proto = self.proto() if graph.statistics is None else for_inference(self.proto())
        save(path, proto, self.folders, graph, weights, dtypes, original)
        return dataclasses.replace(self, source=Path(path), folders=parsed(path).folders)


def _extracted(proto: onnx.ModelProto, extraction: Extraction, inputs: Mapping[str, Any]) -> onnx.ModelProto:
    """Removes from a model, in place, all but the part that is loaded. inputs: NumPy arrays, or lists of them."""
    graph = extraction.of(read(proto, weights=False).graph, lambda names: {})
    computed = {name for node in graph.nodes for name in node.outputs if name}
    nodes = proto.graph.node
    for position in reversed(range(len(nodes))):
        outputs = nodes[position].output
        if computed.isdisjoint(outputs):
            del nodes[position]
        else:  # an output that is an input now gets a name that nothing reads
            outputs[:] = [x if x in computed or not x else f"{x} of {nodes[position].name}" for x in outputs]
    declared = {value.name: value for value in proto.graph.input}
    del proto.graph.input[:]
    for name in (value.name for value in graph.inputs):
        fed = onnx.ValueInfoProto(name=name, type=_type(inputs.get(name)))
        proto.graph.input.append(declared.get(name, fed))
    return proto


def _type(value: Any) -> onnx.TypeProto:
    if isinstance(value, list):
        return helper.make_sequence_type_proto(_type(next(iter(value), None)))
    dtype = np.dtype(np.float32) if value is None else value.dtype
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), None)
