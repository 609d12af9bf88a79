"""A format of a few lines of JSON, its weights in a file beside it, and its front end, which has no ONNX in it.

    {"inputs": {"x": ["float32", ["batch", 4]]}, "outputs": ["y"], "data": "weights.bin",
     "tensors": {"w": {"type": "float32", "shape": [4, 3], "offset": "0"}},
     "nodes": [{"op": "matmul", "in": ["x", "w"], "out": ["y"]}]}

A node may have "name" and "with", its attributes; one that is an object with "nodes" is a graph.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

import jaxops as jo
from jaxops.errors import UnsupportedError
from jaxops.frontend.custom_operators import custom_operators
from jaxops.frontend.declarations import check_declared
from jaxops.frontend.extraction import Extraction
from jaxops.frontend.loading import BoundModel, load_model
from jaxops.frontend.module_paths import modules_of, scope_of
from jaxops.frontend.norm_gradients import with_safe_norms
from jaxops.frontend.options import Operators, Options, takes_options
from jaxops.frontend.safe_files import Folders, find_data, folders
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.graph.node_order import check_subgraph, in_order
from jaxops.graph.nodes import Graph, Node, Tensor, Value
from jaxops.model import Model

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(jo, name) for name in ("add", "conv", "div", "gather", "gelu", "if_", "layer_normalization")},
    **{name: getattr(jo, name) for name in ("less", "matmul", "mul", "nonzero", "reduce_sum", "relu", "reshape")},
    **{name: getattr(jo, name) for name in ("shape", "softmax", "sqrt", "random_normal_like")},
}
VARIADIC = {"concat": jo.concat}


@takes_options
def load(path: str, *, weights: str | None = None, **options: Unpack[Options]) -> Model:
    """Loads a toy.

    {options}
    weights: the folder of its weights.
    """
    return load_model(path, functools.partial(_bound, Path(path), weights), options)


def _bound(path: Path, weights: str | None, operators: Operators, extraction: Extraction) -> BoundModel:
    content = json.loads(path.read_text())
    tensors = _tensors(content, folders(path, weights, noun="weights", option="weights"))
    custom = {name: operator for (_, name), operator in custom_operators(operators).items()}
    return BoundModel(
        graph=extraction.of(_graph(content, tensors, custom, modules_of(tensors), frozenset()), lambda names: {}),
        opsets={"toy": 1},
        description="toy 1",
        without_training="This format has none.",
        origin=functools.partial(ToyOrigin, path, tensors),
    )


def _tensors(content: Any, places: Folders) -> dict[str, Tensor]:
    tensors = {}
    for name, tensor in content["tensors"].items():
        dtype, shape = np.dtype(tensor["type"]), tuple(tensor["shape"])
        data = find_data(name, dtype, shape, content["data"], places, tensor["offset"])
        tensors[name] = data.tensor(name, dtype, shape)
    return tensors


def _graph(content: Any, tensors: Mapping[str, Tensor], custom: Mapping[str, Any], modules: Any, outer: Any) -> Graph:
    values = {name: Value(name, np.dtype(kind), tuple(shape)) for name, (kind, shape) in content["inputs"].items()}
    nodes = [
        Node(
            operator=custom.get(node["op"]) or _operator(node["op"]),
            name=node.get("name", ""),
            inputs=tuple(node["in"]),
            outputs=tuple(node["out"]),
            attributes=node.get("with", {}),
            scope=scope_of(node.get("name", ""), {}, modules),
        )
        for node in content["nodes"]
    ]
    outputs = tuple(Value(name, None, None) for name in content["outputs"])
    check_declared(tuple(values.values()), tensors)
    unread = Graph(content.get("name", ""), tuple(values.values()), outputs, tuple(nodes), tensors)

    def inside(node: Node) -> Node:
        nested = {
            key: _graph(value, {}, custom, modules, outer | unread.defined)
            for key, value in node.attributes.items()
            if key in node.operator.subgraphs
        }
        node.operator.check_node(node.inputs, node.attributes)
        node = dataclasses.replace(node, attributes={**node.attributes, **nested})
        for key, graph in nested.items():
            check_subgraph(node, key, graph)
        return node

    found = dataclasses.replace(unread, nodes=tuple(map(inside, unread.nodes)))
    return with_safe_norms(in_order(found, outer))


def _operator(name: str) -> SignatureOperator:
    fn = {**FUNCTIONS, **VARIADIC}.get(name)
    if fn is None:
        raise UnsupportedError(f"the toy has no operator {name}")
    return SignatureOperator(name, fn, variadic=name in VARIADIC)


@dataclasses.dataclass(frozen=True)
class ToyOrigin:
    """The file of a model, for `Model.save`."""

    path: Path
    constants: Mapping[str, Tensor]
    values: Mapping[str, Any]

    def tensors(self, inputs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Nothing else runs a toy."""
        raise UnsupportedError("compare: nothing but jaxops runs a toy")

    def save(self, path: Any, graph: Graph, weights: Mapping[str, Any], dtypes: Any, original: Any) -> None:
        """Writes the nodes as they are, and the weights after each other."""
        others = {name: tensor.load() for name, tensor in self.constants.items()}
        written = {name: np.asarray(weight, dtypes[name]) for name, weight in weights.items()}
        write(path, json.loads(self.path.read_text()), {**others, **written})


def write(path: Path, content: dict[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a toy, with these tensors in a file beside it."""
    described, offset = {}, 0
    for name, values in tensors.items():
        described[name] = {"type": values.dtype.name, "shape": values.shape, "offset": str(offset)}
        offset += values.nbytes
    path = Path(path)
    path.with_suffix(".bin").write_bytes(b"".join(values.tobytes() for values in tensors.values()))
    path.write_text(json.dumps({**content, "data": path.with_suffix(".bin").name, "tensors": described}))
