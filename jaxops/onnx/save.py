"""Saving: the file that a model came from, with other weights in it.

Everything but the weights stays as it was. A weight goes back to where it came from: an initializer, a Constant, or
the node that computed it, which becomes a Constant; in subgraphs and function bodies too.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data, uses_external_data

from jaxops.errors import ModelError, UnsupportedError
from jaxops.file_replacement import replace, target, unfinished
from jaxops.frontend.safe_files import Folders
from jaxops.graph.nodes import Graph
from jaxops.onnx.open import parsed
from jaxops.onnx.read import located
from jaxops.onnx.tensors import LARGEST, tensors_of

# Tensors of fewer bytes stay in the model, as in files that onnx writes. Larger ones begin at a page, to be mapped.
_SMALL, _PAGE = 1024, 4096
# The bytes of the digest in the name of a data file.
_DIGEST = 16


def save(
    path: str | os.PathLike[str],
    proto: ModelProto,
    folders: Folders,
    graph: Graph,
    weights: Mapping[str, Any],
    dtypes: Mapping[str, np.dtype],
    original: Mapping[str, Any],
) -> None:
    """Writes `proto`, which it changes, with other weights.

    folders: where the external data of `proto` is. graph: the model's, with the place of each weight. weights:
    by name, of any type. dtypes: their types in the file. original: the weights of the file that are known.

    If the original has external data, or the weights exceed 2 GB, large tensors go to a second file next to the first.
    Its name has a digest of its contents, so that a model that is replaced keeps its own data until the new model has
    its name; after that, the old data are removed, if `save` wrote them.
    Raises UnsupportedError for a changed weight that the file has no place for, PathError for a path where something
    other than a regular file is.
    """
    places = _Places(proto, weights)
    places.find(graph)
    places.check(weights, original)
    found = target(path, "save")
    own = _locations(proto)
    size = sum(weight.nbytes for weight in weights.values())
    beside = size > LARGEST or any(map(uses_external_data, tensors_of(proto)))
    with unfinished(found) as scratch:
        model, data = scratch / "model", scratch / "data"
        with data.open("wb") as file:
            store = _Store(file, folders)
            for tensor, name in places.found:
                values = np.asarray(weights[name], dtypes[name], order="C")
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
                if beside and len(tensor.raw_data) >= _SMALL:
                    store.put(tensor, tensor.raw_data)
            done = {id(tensor) for tensor, _ in places.found}
            for tensor in tensors_of(proto):
                if id(tensor) not in done and uses_external_data(tensor):
                    store.put(tensor, store.original(tensor))
        location = f"{found.name}.{store.digest.hexdigest()}.data"
        for tensor in store.tensors:
            next(entry for entry in tensor.external_data if entry.key == "location").value = location
        model.write_bytes(proto.SerializeToString())
        old = _own_data(found) - {location}
        if old & own:  # the model may have been loaded from them, and reads a weight when it is needed
            list(map(original.__getitem__, original))
        if beside:
            replace(data, target(found.with_name(location), "save"))
        replace(model, found)
    for name in old:
        found.with_name(name).unlink(missing_ok=True)


def _own_data(model: Path) -> set[str]:
    """Returns the names of the data files that `save` wrote for the present file of a model."""
    name = re.compile(rf"{re.escape(model.name)}\.[0-9a-f]{{{2 * _DIGEST}}}\.data")
    present = {path.name for path in model.parent.iterdir() if name.fullmatch(path.name)}
    if not present or not model.exists():
        return set()
    try:
        return present & _locations(parsed(model).proto)
    except ModelError:  # a file of another kind
        return set()


def _locations(proto: ModelProto) -> set[str]:
    """Returns the names of the data files of a model."""
    return {e.value for tensor in tensors_of(proto) for e in tensor.external_data if e.key == "location"}


class _Store:
    """The file next to the model that its large tensors go to.

    tensors: those that were put there. digest: of the contents so far.
    """

    def __init__(self, file: BinaryIO, folders: Folders) -> None:
        self.file, self.folders = file, folders
        self.tensors, self.digest = list[TensorProto](), hashlib.blake2b(digest_size=_DIGEST)

    def put(self, tensor: TensorProto, data: bytes) -> None:
        """Writes the data of a tensor; the tensor gets their position, but not the name of the file."""
        self._write(b"\0" * (-self.file.tell() % _PAGE))
        tensor.raw_data = b""  # `set_external_data` asks for this field
        set_external_data(tensor, "", self.file.tell(), len(data))
        tensor.ClearField("raw_data")
        self._write(data)
        self.tensors.append(tensor)

    def _write(self, data: bytes) -> None:
        self.file.write(data)
        self.digest.update(data)

    def original(self, tensor: TensorProto) -> bytes:
        """The bytes of a tensor in the original."""
        return located(tensor, self.folders).read()


class _Places:
    """The places of the weights in a file.

    found: each tensor that is a weight, with the name of its parameter. equal: the parameters that are written as the
    tensor of another one.
    """

    def __init__(self, proto: ModelProto, weights: Mapping[str, Any]) -> None:
        self.proto, self.weights, self.equal = proto, weights, set[str]()
        self.found: list[tuple[TensorProto, str]] = []
        self._functions = {(_domain(f.domain), f.name, f.overload): f for f in proto.functions}
        self._bodies: dict[tuple[str, str, str], Mapping[str, str]] = {}
        self._shared: list[tuple[str, str, str]] = []  # (function, name, other name) of weights that share a place

    def find(self, graph: Graph) -> None:
        """Finds the places of all weights of a model."""
        self._graph(self.proto.graph, graph)

    def check(self, weights: Mapping[str, Any], original: Mapping[str, Any]) -> None:
        """Raises UnsupportedError for a weight that was changed and has no place, or shares one with another."""
        placed = {name for _, name in self.found} | {other for *_, other in self._shared} | self.equal
        for name, weight in weights.items():
            if name not in placed and not (name in original and np.array_equal(weight, original[name])):
                raise UnsupportedError(
                    f"save: the weight '{name}' was changed, or given by with_params, and is a constant of the "
                    "standard's own definition of an operator, so the file has no place for it"
                )
        for function, one, other in self._shared:
            if not np.array_equal(weights[one], weights[other]):
                raise UnsupportedError(
                    f"save: '{one}' and '{other}' are one constant of the function '{function}', which is called with "
                    "different attributes, but they have different values now"
                )

    def _graph(self, proto: GraphProto, graph: Graph) -> None:
        params = dict(graph.params)
        self._untie(proto, graph)
        for tensor in list(proto.initializer):
            if tensor.name in params:
                self.found.append((tensor, params[tensor.name]))
        for sparse in list(proto.sparse_initializer):
            if sparse.values.name in params:
                dense = proto.initializer.add(name=sparse.values.name)
                self.found.append((dense, params[sparse.values.name]))
                proto.sparse_initializer.remove(sparse)
        self._nodes(proto, graph)

    def _untie(self, proto: GraphProto, graph: Graph) -> None:
        """Gives a parameter that shares an initializer an initializer of its own, if its values differ now."""
        tensors, outputs = {t.name: t for t in proto.initializer}, {name: n for n in graph.nodes for name in n.outputs}
        for node in proto.node:
            bound = next((outputs[name] for name in node.output if name in outputs and name), None)
            for position, (shared, name) in enumerate(zip(node.input, bound.inputs if bound else (), strict=False)):
                if shared == name or shared not in tensors or name not in graph.params:
                    continue
                if self._are_equal(graph.params[name], graph.params.get(shared)):
                    continue
                if name not in tensors:
                    tensors[name] = proto.initializer.add(name=name, data_type=tensors[shared].data_type, dims=[0])
                node.input[position] = name

    def _are_equal(self, param: str | None, other: str | None) -> bool:
        """Returns True if two parameters have the same values, so that one tensor can hold both."""
        if param is None or other is None or not np.array_equal(self.weights[param], self.weights[other]):
            return False
        self.equal.add(param)
        return True

    def _nodes(self, proto: GraphProto | FunctionProto, graph: Graph) -> None:
        bound = {name: node for node in graph.nodes for name in node.outputs if name}
        for position, node in reversed(list(enumerate(proto.node))):
            outputs = [name for name in node.output if name]
            if node.op_type == "Constant" and outputs and outputs[0] in graph.params:
                kind = next((a.t.data_type for a in node.attribute if a.name == "value"), TensorProto.FLOAT)
                del node.attribute[:]
                node.attribute.append(helper.make_attribute("value", _stub(kind)))
            elif node.op_type == "Identity" and self._are_equal(
                graph.params.get(outputs[0]), graph.params.get(node.input[0])
            ):
                continue
            elif any(name in graph.params for name in outputs):
                del proto.node[position]
                for name in outputs:
                    proto.node.insert(position, self._constant(name, graph))
            elif outputs and outputs[0] in bound:
                self._inside(node, bound[outputs[0]])
        # Inserting copies a node, so the tensors are looked up after all insertions.
        for node in proto.node:
            if node.op_type == "Constant" and node.output[0] in graph.params:
                self.found.append((node.attribute[0].t, graph.params[node.output[0]]))

    def _constant(self, name: str, graph: Graph) -> NodeProto:
        """Returns a Constant in place of a node; a static value beside a weight keeps its value."""
        tensor = (
            _stub(TensorProto.UNDEFINED)
            if name in graph.params
            else numpy_helper.from_array(np.asarray(graph.static[name]))
        )
        return helper.make_node("Constant", [], [name], name=name, value=tensor)

    def _inside(self, proto: NodeProto, node: Any) -> None:
        for attribute in proto.attribute:
            if attribute.HasField("g") and attribute.name in node.subgraphs:
                self._graph(attribute.g, node.subgraphs[attribute.name])
        key = _domain(proto.domain), proto.op_type, proto.overload
        if node.body is None or key not in self._functions:
            return
        if key not in self._bodies:
            self._bodies[key] = _params(node.body)
            self._nodes(self._functions[key], node.body)
            return
        for local, name in _params(node.body).items():
            one = self._bodies[key].get(local, name)
            if one != name:
                self._shared.append((proto.op_type, one, name))


def _stub(kind: int) -> TensorProto:
    """Returns an empty tensor, to be filled with a weight; its type is that of the file, if stated."""
    return TensorProto(data_type=kind, dims=[0])


def _params(graph: Graph) -> dict[str, str]:
    """Returns the names of the parameters inside a graph, by their place."""
    params = dict(graph.params)
    for node in graph.nodes:
        for key, inner in (*node.subgraphs.items(), *([("", node.body)] if node.body else [])):
            params |= {f"{node.label}/{key}/{local}": name for local, name in _params(inner).items()}
    return params


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
