"""The tensors in a model's proto: in its graph, subgraphs and functions."""

import itertools
from collections.abc import Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

# protobuf refuses messages of 2 GiB or more; the nodes need some room beside the tensors.
LARGEST = 2**31 - 2**26


def tensors_of(proto: ModelProto) -> Iterator[TensorProto]:
    """All tensors of a model."""
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        yield from itertools.chain.from_iterable(map(_of_node, function.node))


def _of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from itertools.chain.from_iterable(map(_of_node, graph.node))


def _of_node(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            yield from _of_graph(graph)
