"""Finds the module that a node came from, in names and metadata that exporters write.

PyTorch's exporters write a path into the name of a node (`/encoder/layer.0/fc/MatMul`) or into its metadata, tf2onnx
into the name (`model/dense/MatMul`). A path is written `encoder.layer.0.fc` here, as PyTorch names modules.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from jaxops.graph.nodes import DEEPEST_MODULE, is_module_path

# A list of names, as Python prints it. Names with a backslash are not read: no module has one.
_NAME = r"""(?:'[^'\\]*'|"[^"\\]*")"""
_NAMES = re.compile(rf"[\[(]\s*{_NAME}(?:\s*,\s*{_NAME})*\s*,?\s*[\])]")
# PyTorch writes these for a node that belongs to no module.
_NOWHERE = "_empty_nn_module_stack"


class Modules(set[str]):
    """The paths of the modules that have parameters, and of the modules around them."""

    @functools.cached_property
    def _by_last_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self:
            found.setdefault(path.rpartition(".")[2], []).append(path)
        return found

    def whole(self, path: str) -> str:
        """Returns a path with the modules around it that it lacks.

        PyTorch leaves out a module that was not called itself: `model` if its parent calls `model.decoder`. A path is
        completed if a single module has the name in which it begins, and that one has its second name, too.

        >>> modules_of(["model.decoder.layers.0.norm.weight"]).whole("decoder.layers.0.attention")
        'model.decoder.layers.0.attention'
        """
        first, _, inner = path.partition(".")
        known = [] if first in self or not inner else self._by_last_name.get(first, [])
        is_known = len(known) == 1 and f"{known[0]}.{inner.partition('.')[0]}" in self
        return f"{known[0]}.{inner}" if is_known else path


def scope_of(name: str, metadata: Mapping[str, str], modules: Modules | None = None) -> str:
    """Returns the path of the module of a node; empty if the file does not have it. modules: see `module_path`.

    >>> scope_of("/model/encoder/layer.0/fc/MatMul", {})
    'model.encoder.layer.0.fc'
    >>> scope_of("node_linear", {"pkg.torch.onnx.name_scopes": "['', 'model', 'model.fc', 'linear']"})
    'model.fc'
    >>> scope_of("MatMul_3", {})
    ''
    """
    scopes = _listed(metadata.get("pkg.torch.onnx.name_scopes", "")) or _namespace(metadata.get("namespace", ""))
    if scopes:
        inner = scopes[-2] if len(scopes) > 1 else ""  # the last one is the node
        return "" if inner.startswith(_NOWHERE) or not is_module_path(inner) else inner
    return module_path([part for part in name.split("/") if part][:-1], modules)


def module_path(parts: Sequence[str], modules: Modules | None = None) -> str:
    """Joins the parts of a name to a path. A container that was called occurs twice: `layer/layer.0` is `layer.0`.

    modules: those that the file has. They decide whether `layer/layer.0` is a repetition, or a module `layer` with a
    child of the same name, and complete the path. Returns an empty path for more modules than a program nests.

    >>> module_path(["encoder", "stages.1", "layer", "layer.0", "conv"])
    'encoder.stages.1.layer.0.conv'
    >>> module_path(["layer", "layer.0", "conv"], modules_of(["layer.layer.0.conv.weight"]))
    'layer.layer.0.conv'
    """
    path: list[str] = []
    modules = Modules() if modules is None else modules
    for part in parts:
        if path and part.startswith(f"{path[-1]}.") and ".".join([*path, part]) not in modules:
            path.pop()
        path.append(part)
        if len(path) > DEEPEST_MODULE:
            return ""
    joined = ".".join(path)
    return modules.whole(joined) if is_module_path(joined) else ""


def modules_of(parameters: Iterable[str]) -> Modules:
    """Returns the paths of the modules that have parameters of these names, and of the modules around them.

    >>> sorted(modules_of(["layer.0.fc.weight", "onnx::MatMul_7"]))
    ['layer', 'layer.0', 'layer.0.fc']
    """
    paths = Modules()
    for name in parameters:
        path = name.rpartition(".")[0] if is_module_path(name) else ""
        while path and path not in paths:
            paths.add(path)
            path = path.rpartition(".")[0]
    return paths


def _listed(text: str) -> list[str]:
    return [name[1:-1] for name in re.findall(_NAME, text)] if _NAMES.fullmatch(text.strip()) else []


def _namespace(text: str) -> list[str]:
    """Returns the names in a text such as `: First/model: pkg.Bert/model.fc: torch.nn.Linear/linear: aten.linear`."""
    return [part.partition(":")[0] for part in text.split("/")] if ":" in text else []
