"""The part of a graph that a Gradient node of ai.onnx.preview.training differentiates."""

import dataclasses
from collections.abc import Sequence

from jaxops.errors import ModelError
from jaxops.graph.nodes import Graph, Node, Value


def with_differentiated(node: Node, before: Sequence[Node]) -> Node:
    """Returns a bound node; a Gradient node gets the graph that computes the value `y` from those named in `xs`, `zs`.

    before: the bound nodes before it, some of which compute y. The graph captures values that depend on none of xs and
    zs. Nodes that draw random numbers draw new ones in it. Raises ModelError if no node in `before` computes y.
    """
    if "differentiated" not in getattr(node.operator, "subgraphs", ()):
        return node  # also one whose operator jaxops does not have
    target = node.attributes["y"]
    variables = (*node.attributes["xs"], *node.attributes.get("zs", ()))
    if target not in {*variables, *(name for other in before for name in other.outputs)}:
        raise ModelError(f"Gradient: `y` is '{target}', but no earlier node of the same graph computes it")
    needed, leading = {target}, []
    for other in reversed(before):
        if needed.intersection(other.outputs).difference(variables):
            leading.append(other)
            needed.update(other.uses())
    moving, nodes = set(variables), []
    for other in reversed(leading):
        if moving.intersection(other.uses()):
            # A given value replaces the one that the node computes.
            outputs = tuple("" if name in variables else name for name in other.outputs)
            nodes.append(dataclasses.replace(other, outputs=outputs))
            moving.update(filter(None, outputs))
    graph = Graph(
        name=f"d {target}",
        inputs=tuple(Value(name, None, None) for name in variables),
        outputs=(Value(target, None, None),),
        nodes=tuple(nodes),
        initializers={},
    )
    return dataclasses.replace(node, attributes={**node.attributes, "differentiated": graph})
