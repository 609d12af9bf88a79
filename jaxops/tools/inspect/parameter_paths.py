"""Names of parameters in the author's program, such as `encoder.layer.0.fc.weight` for `onnx::MatMul_664` in a file.

A name that is a path already stays unchanged. For any other name, the path follows from the node that uses the
parameter: from its module, and from the role of the operand. If a file has one tensor for equal parameters of several
modules, `tied` has the further paths.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxops import ops
from jaxops.errors import SignatureError
from jaxops.graph.nodes import Graph, Node, is_module_path
from jaxops.signature import BIAS, WEIGHT, role

# The roles of operands in Keras's words; all other names use PyTorch's.
_KERAS = {"weight": "kernel"}
_KERAS_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
_PATH = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)+")
# `model/dense/MatMul/ReadVariableOp:0` is the parameter that the operation MatMul of the layer reads.
_READ = re.compile(r"(.*)/[^/]+/(ReadVariableOp|Read)(_\d+)?(/.*)?")


@dataclass(frozen=True)
class Paths:
    """The paths of parameters. names: name in the file → path, all different. tied: further path → path in `names`."""

    names: dict[str, str] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)


@dataclass
class _Use:
    node: Node
    position: int
    scope: str  # of the node; inside a function, of the node that calls it


@dataclass
class _Uses:
    """The nodes that use each parameter, and the further names of parameters."""

    of: dict[str, list[_Use]] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    weighted: set[str] = field(default_factory=set)  # the modules that multiply by a parameter
    readers: dict[str, list[Node]] = field(default_factory=dict)  # value → the nodes that read it


def paths(graph: Graph) -> Paths:
    """The path of each parameter of a prepared graph, also in subgraphs and functions."""
    uses = _Uses()
    _collect(graph, {}, "", uses, set())
    given_paths = {name: path_in_name(name) for name in uses.of}
    result, used = Paths(), _Taken()
    # Names that are paths come first; a derived path that equals one of them gets a suffix.
    for name in sorted(uses.of, key=lambda name: given_paths[name] is None):
        guesses = (_path_of(name, use, uses) for use in uses.of[name])
        guessed = [path for path in guesses if path and is_module_path(path)]
        plain = name if is_module_path(name) else name.replace(".", "_")
        result.names[name] = used.unique(given_paths[name] or next(iter(guessed), plain))
    for name, path in result.names.items():
        further = dict.fromkeys(alias for alias in uses.aliases.get(name, []) if path_in_name(alias))
        further |= dict.fromkeys(_modules(name, path, uses))
        result.tied.update((other, path) for other in further if other != path and other not in used.paths)
    result = Paths({name: result.names[name] for name in uses.of}, result.tied)
    return result


def nested(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Values by name as nested dictionaries, along the paths of the names.

    Raises SignatureError for a name without a path.

    >>> nested({"a": 1, "b": 2}, {"a": "fc.weight", "b": "fc.bias"})
    {'fc': {'weight': 1, 'bias': 2}}
    """
    tree: dict[str, Any] = {}
    for name, value in values.items():
        if name not in names:
            raise SignatureError(f"nest: the model has no parameter '{name}'; model.params has its parameters")
        *modules, leaf = names[name].split(".")
        level = tree
        for module in modules:
            level = level.setdefault(module, {})
        level[leaf] = value
    return tree


def flat(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The inverse of `nested`. Raises SignatureError for a path that no name has.

    >>> flat({"fc": {"weight": 1, "bias": 2}}, {"a": "fc.weight", "b": "fc.bias"})
    {'a': 1, 'b': 2}
    """
    by_path = {path: name for name, path in names.items()}
    by_name = {}
    for path, value in _leaves(values, ""):
        if path not in by_path:
            raise SignatureError(f"flatten: the model has no parameter '{path}'; model.paths lists its paths")
        by_name[by_path[path]] = value
    return by_name


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class _Taken:
    """The paths in use. No path is the beginning of another one, since `nested` could not represent both."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.inner: set[str] = set()

    def unique(self, path: str) -> str:
        # The scale of a compressed weight is named `fc.weight/scale`.
        outer = next((taken for taken in _beginnings(path) if taken in self.paths), None)
        path = path if outer is None else f"{outer}_{path.removeprefix(outer)[1:].replace('.', '_')}"
        unique, count = path, 1
        while unique in self.paths or unique in self.inner:
            count += 1
            unique = f"{path}_{count}"
        self.paths.add(unique)
        self.inner |= _beginnings(unique)
        return unique


def _beginnings(path: str) -> set[str]:
    parts = path.split(".")
    return {".".join(parts[:k]) for k in range(1, len(parts))}


def _collect(graph: Graph, outer: Mapping[str, str], caller: str, uses: _Uses, seen: set[int]) -> None:
    """Adds the uses of parameters in a graph to `uses`.

    outer: name in the graph → parameter, for captured values and operands of a call. caller: the scope of the node that
    the graph belongs to. seen: functions that were visited.
    """
    local = {**outer, **graph.params}
    for param in graph.params.values():
        uses.of.setdefault(param, [])
    for node in graph.nodes:
        scope = node.scope or caller
        if node.body is not None:
            formals = zip(node.body.inputs, node.inputs, strict=False)
            bound = {formal.name: local[name] for formal, name in formals if name in local}
            if bound or id(node.body) not in seen:
                seen.add(id(node.body))
                _collect(node.body, bound, scope, uses, seen)
            continue
        for position, name in enumerate(node.inputs):
            uses.readers.setdefault(name, []).append(node)
            param = local.get(name)
            if param is None:
                continue
            if node.operator.traits.kind == "form" and position == 0:
                local[node.outputs[0]] = param
                if node.operator.function is ops.identity:
                    uses.aliases.setdefault(param, []).append(node.outputs[0])
                continue
            uses.of[param].append(_Use(node, position, scope))
            if _role(node, position) == WEIGHT:
                uses.weighted.add(scope)
        for inner in node.subgraphs.values():
            captured = {name: local[name] for name in inner.captures if name in local}
            _collect(inner, captured, scope, uses, seen)


def path_in_name(name: str) -> str | None:
    """The path in a name; None for a name that a tool generated, and for one of too many modules."""
    if "::" in name or not is_module_path(name.replace("/", ".")):
        return None
    # OpenVINO's front end for PyTorch writes `self.`, the model, before a path.
    plain = re.sub(r":\d+$", "", name).removeprefix("self.")
    if "/" in plain:
        plain = re.sub("(/read|/Read/ReadVariableOp)$", "", plain)
        return None if _READ.fullmatch(plain) else ".".join(part for part in plain.split("/") if part)
    name = name.removeprefix("self.")
    return name if _PATH.fullmatch(name) else None


def _role(node: Node, position: int) -> str | None:
    """The role of an operand; for a recurrent layer, which has two weights, the name of the operand."""
    operator = node.operator
    known_role = role(operator.function, position)
    return operator.formals[position] if known_role and operator.traits.kind == "recurrent" else known_role


def _leaf(use: _Use, uses: _Uses, module: str) -> str | None:
    """The last part of a path for an operand; None if it is unclear."""
    leaf, operator = _role(use.node, use.position), use.node.operator
    if leaf == BIAS and module not in uses.weighted:  # an addend is a bias if its module has a weight
        return leaf if any(role(operator.function, k) == WEIGHT for k in range(len(operator.formals))) else None
    return leaf


def _path_of(name: str, use: _Use, uses: _Uses) -> str | None:
    """The path of a parameter according to one use; None if it is unclear."""
    read = _READ.fullmatch(re.sub(r":\d+$", "", name))
    if read:
        leaf = _leaf(use, uses, use.scope) or "bias"
        words = _KERAS_NORM if use.node.operator.traits.kind == "normalization" else _KERAS
        return f"{read[1].replace('/', '.').strip('.')}.{words.get(leaf, leaf)}"
    module = use.scope
    if not module:
        # Older exporters name biases only. The weight of the product to which the bias is added is in the same module.
        biases = [
            path
            for output in use.node.outputs
            for reader in uses.readers.get(output, [])
            if reader.operator.function is ops.add
            for other in reader.inputs
            if other != output and (path := path_in_name(other)) and path.endswith(".bias")
        ]
        module = biases[0].removesuffix(".bias") if len(biases) == 1 else ""
        if not module:
            return None
    leaf = _leaf(use, uses, module)
    if leaf is None:
        leaf = _leaf_in_name(name) or use.node.label.rpartition("/")[2]
    return f"{module}.{leaf}"


def _leaf_in_name(name: str) -> str | None:
    """The last part of a name that the author may have chosen; None for a name that a tool generated."""
    leaf = (path_in_name(name) or name).rpartition(".")[2]
    return leaf if leaf.isidentifier() and not re.search(r"\d$", leaf) else None


def _modules(name: str, path: str, uses: _Uses) -> Iterator[str]:
    """The paths of the modules that use a parameter, if there are several, or if its name has another module."""
    uses_of_parameter = uses.of[name]
    shared = len({use.scope for use in uses_of_parameter}) > 1
    for use in uses_of_parameter:
        # Several modules may add a bias to something else than a product; they share its name.
        leaf = _leaf(use, uses, use.scope) or (_leaf_in_name(name) if shared else None)
        if not (use.scope and leaf):
            continue
        # If an exporter folds a normalization into a convolution, the convolution is in the normalization's module.
        sibling = use.scope.rpartition(".")[0] == ".".join(path.split(".")[:-2])
        if len(uses_of_parameter) > 1 or not sibling:
            yield f"{use.scope}.{leaf}"
