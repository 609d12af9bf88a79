"""The file that a model came from, read again to write it with other weights, or to run it elsewhere."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from jaxops.frontend.safe_files import Folders
from jaxops.graph.nodes import Graph
from jaxops.onnx.open import whole
from jaxops.onnx.save import save


@dataclass(frozen=True)
class Origin:
    """The source of a model: a file, read again when it is needed, its bytes, or a ModelProto.

    folders: where its external data lies. values: of inputs that have one for good.
    """

    source: Path | bytes | onnx.ModelProto
    folders: Folders
    values: Mapping[str, Any] = field(default_factory=dict)

    def tensors(self, inputs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> dict[str, Any]:
        """Computes by onnxruntime each tensor of the graph, by name: see `jaxops.onnx.onnxruntime`."""
        from jaxops.onnx.onnxruntime import feeds, tensors

        return tensors(self.proto(), self.folders, feeds({**self.values, **inputs}, dtypes))

    def proto(self) -> onnx.ModelProto:
        """The model again, for the caller to change; external data stays in its files.

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
    ) -> None:
        """Writes the model with other weights: see `jaxops.onnx.save`."""
        save(path, self.proto(), self.folders, graph, weights, dtypes, original)
