"""The IR that a model came from, read again to write it with other weights, or to run it by OpenVINO."""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from jaxops.frontend.extraction import Extraction
from jaxops.frontend.model_file import opened
from jaxops.frontend.runtime_inputs import feeds
from jaxops.graph.nodes import Graph
from jaxops.openvino.open import Weights, open_ir
from jaxops.openvino.save import save


@dataclass(frozen=True)
class Origin:
    """The source of a model: an .xml, read again when it is needed, or its bytes; and its weights.

    sizes: the names of the sizes that `load` fixed. extraction: the part that was loaded. ways_back: see
    `jaxops.openvino.constant_forms`. values: by name, of the inputs that `load` fixed.
    """

    suffix: ClassVar[str] = ".xml"
    source: Path | bytes
    weights: Weights
    sizes: Collection[str]
    extraction: Extraction
    ways_back: Mapping[str, Callable[[np.ndarray], np.ndarray]]
    values: Mapping[str, Any]

    def tensors(self, inputs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> dict[str, Any]:
        """Computes each tensor that has a name with OpenVINO: see `jaxops.openvino.runtime`."""
        from jaxops.openvino.runtime import tensors

        text = self.text()
        ir = dataclasses.replace(open_ir(text), weights=self.weights)
        return tensors(ir, text, self.extraction, self.sizes, feeds({**self.values, **inputs}, dtypes))

    def text(self) -> bytes:
        """Reads the XML again. Raises PathError if the file is gone."""
        if isinstance(self.source, bytes):
            return self.source
        with opened(self.source, self.source) as file:
            return file.read()

    def save(
        self,
        path: str | os.PathLike[str],
        graph: Graph,
        weights: Mapping[str, Any],
        dtypes: Mapping[str, np.dtype],
        original: Mapping[str, Any],
    ) -> "Origin":
        """Writes the IR with other weights: see `jaxops.openvino.save`."""
        text = self.text()
        ir = dataclasses.replace(open_ir(text), weights=self.weights)
        save(path, ir, text, graph, weights, dtypes, original, self.sizes, self.ways_back)
        return dataclasses.replace(self, source=Path(path), weights=open_ir(path).weights)
