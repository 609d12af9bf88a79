"""The methods of a model that write files: its own again, its adapters, and a Python package."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxops.errors import PathError, UnsupportedError
from jaxops.graph.nodes import Graph, Tensor, Value
from jaxops.graph.origin import Origin
from jaxops.memory import max_bytes
from jaxops.runtime.model_function import ModelFunction
from jaxops.runtime.parameter_values import GivenWeights, Weights, matched
from jaxops.runtime.training_function import check_infers
from jaxops.runtime.x64 import under_its_x64
from jaxops.signature_errors import explained
from jaxops.tools.adapters.merging import merged
from jaxops.tools.adapters.peft_files import write
from jaxops.tools.python.source import to_python


class Writing:
    """The methods of a model that write files."""

    graph: Graph
    x64: bool
    _file_graph: Graph
    _formals: tuple[Value, ...]
    _tensors: dict[str, Tensor]
    _weights: Weights | GivenWeights
    _written: dict[str, np.dtype]
    _function: ModelFunction
    _origin: Origin | None
    _description: str

    @explained
    @under_its_x64
    def save(self, path: str | os.PathLike[str], params: Mapping[str, Any] | None = None) -> None:
        """Writes the model's file again, with other weights. Other runtimes compute the same results from it.

        params: as `model.params`, which is the default. Each weight goes to its place in the file, in the type of the
        file, also after `astype`; adapters are merged into weights. Weights of more than 2 GB, and weights that were in
        a file next to the model, go to a second file, `NAME.onnx.<digest>.data`. An existing model is replaced at once,
        by renaming, and the data that `save` wrote for it are removed after that. Only the two files of an OpenVINO IR,
        whose names are fixed, are replaced one after the other. Links are followed, and permissions stay.
        Raises SignatureError for a missing or unknown parameter, ShapeError and DTypeError for one that does not fit,
        UnsupportedError for a model that was not loaded from a file, and for an adapter of a weight of integers,
        PathError for a folder that does not exist and for a path where something other than a file is, and
        ArgumentError for an OpenVINO IR whose path does not end in .xml.

        >>> import tempfile, jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> tuned = {name: x * 1.1 for name, x in model.params.items()}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/tuned.onnx", tuned)
        ...     saved = jaxops.onnx.load(f"{folder}/tuned.onnx").params
        >>> bool((saved["hidden.weight"] == tuned["hidden.weight"]).all())
        True
        """
        if self._origin is None:
            raise UnsupportedError("save: the model was not loaded from a file, so there is no file to write again")
        if not (folder := Path(path).absolute().parent).is_dir():
            raise PathError(f"save: there is no folder '{folder}'; make it first")
        self._write(self._origin, path, self._own_or("save", params))

    @explained
    @under_its_x64
    def to_python(
        self, folder: str | os.PathLike[str], params: Mapping[str, Any] | None = None, *, overwrite: bool = False
    ) -> None:
        """Writes the model as a Python package to read and edit: a function for each module, with calls of `jaxops`.

        Its `apply(params, *inputs)` computes what `model.apply` does. Operators are called as `jaxops.conv`, and a
        version with another meaning as the function of its opset: `opset9 = jaxops.onnx.opset(9)`, `opset9.Upsample`.
        Such a package of an ONNX model needs onnx. Variables are its last inputs, and their next
        values its last outputs, as in `export`. params: as `model.params`, which is the default; they go to
        'params.safetensors', under the paths of their modules, and `load_params()` reads them. overwrite: also write to
        a folder that has other files, or files that were edited.
        Raises ExistsError (a FileExistsError) for such a folder; SignatureError, ShapeError and DTypeError as `save`,
        and UnsupportedError for a node that no function which can be imported computes.

        >>> import os, tempfile, jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/digits.onnx")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.to_python(f"{folder}/net")
        ...     sorted(os.listdir(f"{folder}/net"))
        ['.jaxops.sha256', '__init__.py', 'params.safetensors']
        """
        check_infers("to_python", self.graph)
        weights = self._own_or("to_python", params)
        with max_bytes(self._function.runner.max_bytes):
            to_python(folder, self.graph, self._formals, weights, self._description, x64=self.x64, overwrite=overwrite)

    @explained
    @under_its_x64
    def save_adapters(self, folder: str | os.PathLike[str], params: Mapping[str, Any] | None = None) -> None:
        """Writes the adapters alone, as the package peft does: `load(path, adapters=folder)` and peft read them.

        params: as `model.params`, which is the default. The folder gets 'adapter_model.safetensors', with the names
        `base_model.model.<module>.lora_A.weight`, and 'adapter_config.json'. A product of queries, keys and values
        (`qkv_proj` of onnxruntime-genai's builder) has three modules there, as in peft: `q_proj`, `k_proj`, `v_proj`.
        Its `attn` is called `self_attn`, unless a folder that was read has other names. Adapters that were read from
        Phi-3's `qkv_proj` and `gate_up_proj`, and new ones where a `genai_config.json` says that the model is `phi3`,
        are written as these, though the file has some of their products apart: of the sum of the ranks, then.
        If a wrapper of the model was exported, names begin with its attribute, and peft reads the folder for the
        wrapper: `PeftModel.from_pretrained(wrapper, folder)`.
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

    def _own_or(self, caller: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
        return self._weights.all() if params is None else matched(params, self._tensors, {}, caller)

    def _write(self, origin: Origin, path: str | os.PathLike[str], params: Mapping[str, Any]) -> Origin:
        """Writes the model's file again with these parameters; returns the origin that the new file is."""
        known = self._weights.all() if isinstance(self._weights, Weights) else {}
        return origin.save(path, self._file_graph, merged(self.graph.adapters, params), self._written, known)
