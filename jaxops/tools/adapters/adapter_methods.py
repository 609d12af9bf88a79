"""The method of a model that writes its adapters."""

import os
from collections.abc import Mapping
from typing import Any

from jaxops.errors import UnsupportedError
from jaxops.graph.nodes import Graph
from jaxops.runtime.x64 import under_its_x64
from jaxops.signature_errors import explained
from jaxops.tools.adapters.peft_files import write


class AdapterMethods:
    """The method of a model that writes its adapters."""

    graph: Graph
    x64: bool

    def _own_or(self, caller: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
        raise NotImplementedError

    @explained
    @under_its_x64
    def save_adapters(self, folder: str | os.PathLike[str], params: Mapping[str, Any] | None = None) -> None:
        """Writes the adapters alone, as the package peft does: `load(path, adapters=folder)` and peft read them.

        params: as `model.params`, which is the default. The folder gets 'adapter_model.safetensors', with the names
        `base_model.model.<module>.lora_A.weight`, and 'adapter_config.json'.
        Raises UnsupportedError for a model without adapters, PathError for a folder that cannot be made, and what
        `save` raises for params.

        >>> import os, tempfile, jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx", adapters={"hidden": 2})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_adapters(f"{folder}/tuned")
        ...     sorted(os.listdir(f"{folder}/tuned"))
        ['adapter_config.json', 'adapter_model.safetensors']
        """
        if not self.graph.adapters:
            raise UnsupportedError("save_adapters: the model has no adapters; load it with adapters={'*.q_proj': 8}")
        write(folder, self.graph.adapters, self._own_or("save_adapters", params))
