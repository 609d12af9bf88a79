"""Where a model came from, for those who want its file again: to write it with other weights, to run it elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from jaxops.onnx.read import parsed


@dataclass(frozen=True)
class Origin:
    """What a model was loaded from: a file, read again when it is needed, or a ModelProto.

    folder: where its external data lies; None where there can be none.
    """

    source: Path | onnx.ModelProto
    folder: Path | None

    def tensors(self, inputs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> dict[str, Any]:
        """What onnxruntime computes for each tensor of the graph, by name: see `jaxops.onnx.runtime`."""
        from jaxops.onnx.runtime import feeds, tensors

        return tensors(self.proto(), self.folder, feeds(inputs, dtypes))

    def proto(self) -> onnx.ModelProto:
        """The model again, for the caller to change; external data stays in its files.

        Raises FileNotFoundError and ModelError for a file that is gone or damaged.
        """
        proto = onnx.ModelProto()
        proto.CopyFrom(parsed(self.source).proto)
        return proto
