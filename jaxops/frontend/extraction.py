"""Extracts a part of a graph, from chosen tensors (its inputs) to chosen tensors (its outputs)."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jaxops.errors import SignatureError
from jaxops.graph.liveness import tensor_names
from jaxops.graph.node_order import in_order
from jaxops.graph.nodes import Graph, Node, Value


@dataclasses.dataclass(frozen=True)
class Extraction:
    """The part of a model that a caller asks for.

    inputs, outputs: names of tensors; None for the inputs or outputs of the graph.
    """

    inputs: Any = None
    outputs: Any = None

    def __bool__(self) -> bool:
        return not (self.inputs is None and self.outputs is None)

    def of(self, graph: Graph, declared: Callable[[Collection[str]], Mapping[str, Value]]) -> Graph:
        """Returns the part of a graph, whose nodes need not be bound; the graph itself if no part is asked for.

        declared: returns the types and shapes that the file declares for tensors of these names.
        Raises SignatureError for a name that the graph does not have, and for an input of the graph that an output
        needs and `inputs` does not name; ModelError for a graph that cannot be ordered.
        """
        if not self:
            return graph
        graph = in_order(graph)
        outputs = graph.output_names if self.outputs is None else tensor_names("outputs", self.outputs, graph)
        inputs = None if self.inputs is None else _inputs(self.inputs, graph)
        outputs = _last(outputs, [variable.after for variable in graph.variables])
        inputs = None if inputs is None else _last(inputs, [variable.before for variable in graph.variables])
        roots = *outputs, *filter(None, (variable.initial for variable in graph.variables))
        free = {value.name for value in graph.inputs} if inputs is None else set(inputs)
        nodes, needed = _needed(graph, roots, free)
        needed |= {variable.before for variable in graph.variables}
        for value in graph.inputs:
            if value.name in needed - free - graph.initializers.keys():
                raise SignatureError(_missing(graph, roots, free, value.name))
        values = {value.name: value for value in (*graph.outputs, *graph.inputs)}
        values |= {name: Value(name, t.dtype, t.shape) for name, t in graph.initializers.items()} | values
        values = {**declared({*(inputs or ()), *outputs} - values.keys()), **values}
        chosen = [value.name for value in graph.inputs if value.name in needed] if inputs is None else inputs
        return dataclasses.replace(
            graph,
            inputs=tuple(values.get(name, Value(name, None, None)) for name in chosen),
            outputs=tuple(values.get(name, Value(name, None, None)) for name in outputs),
            nodes=nodes,
            initializers={
                name: tensor
                for name, tensor in graph.initializers.items()
                if name in needed and (inputs is None or name not in free)
            },
        )


def _inputs(names: Any, graph: Graph) -> tuple[str, ...]:
    inputs = tensor_names("inputs", names, graph)
    if len(set(inputs)) < len(inputs):
        raise SignatureError(f"`inputs` has a name twice: {inputs}")
    return inputs


def _last(names: Sequence[str], of_variables: Sequence[str]) -> tuple[str, ...]:
    """Returns the names, followed by those of the variables: each part of a model has its complete state."""
    return *(name for name in names if name not in of_variables), *of_variables


def _needed(graph: Graph, outputs: Sequence[str], free: Collection[str]) -> tuple[tuple[Node, ...], set[str]]:
    """Returns the nodes that compute the outputs, and all names that these nodes and the outputs read.

    free: the names of the part's inputs, which no node needs to compute.
    """
    needed = set(outputs)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(set(node.outputs).difference(free, [""])):
            needed.update(node.uses())
            outputs = tuple("" if name in free else name for name in node.outputs)
            nodes.append(node if outputs == node.outputs else dataclasses.replace(node, outputs=outputs))
    return tuple(reversed(nodes)), needed


def _missing(graph: Graph, outputs: Sequence[str], free: Collection[str], name: str) -> str:
    """Returns the message about an input of the graph that an output needs, and that is not an input of the part."""
    output, nodes = next(
        (output, nodes) for output in outputs for nodes, needed in [_needed(graph, [output], free)] if name in needed
    )
    readers = [node.title for node in nodes if name in node.uses()]
    reader = f", which {readers[0]} reads" if readers else ""
    return f"`inputs`: output '{output}' needs '{name}', an input of the model{reader}; add it to `inputs`"
