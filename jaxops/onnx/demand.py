"""Which values must be known while tracing: a walk back from every operand that an operator marks `Static`.

The walk goes through the operators that NumPy computes while their operands are static, stops where only sizes
are asked for, and enters subgraphs and functions. What it reaches among the initializers stays static; what it
reaches among the inputs of the graph must be given as NumPy values.
"""

from collections.abc import Mapping

from jaxops.onnx.graph import Graph, Node
from jaxops.static import SIZED, STATIC


def demand(graph: Graph, wanted: Mapping[str, str] | None = None) -> dict[str, str]:
    """Each name that must be static, with the path to the operand that makes it so.

    wanted: outputs of the graph that must be static, with their paths. Names that a subgraph captures from the
    graph around it are in the result too.
    """
    found: dict[str, str] = dict(wanted or {})
    for node in reversed(graph.nodes):
        paths = {name: found[name] for name in node.outputs if name and name in found}
        for name, path in _of_node(node, paths).items():
            found.setdefault(name, path)
    return found


def _of_node(node: Node, paths: Mapping[str, str]) -> dict[str, str]:
    """What a node needs static, when `paths` are those of its outputs that must be."""
    found: dict[str, str] = {}
    here = f"{node.op_type} '{node.label}'"
    through = f"{here} → {next(iter(paths.values()))}" if paths else ""
    if node.body is not None:
        outer = [value.name for value in node.body.outputs]
        wanted = {formal: paths[name] for formal, name in zip(outer, node.outputs, strict=False) if name in paths}
        inner = demand(node.body, wanted)
        formals = zip(node.body.inputs, node.inputs, strict=False)
        return {name: inner[formal.name] for formal, name in formals if name and formal.name in inner}
    assert node.operator is not None
    for position, name in enumerate(node.inputs):
        mark = node.operator.mark(position)
        if not name or mark == SIZED:
            continue
        if mark == STATIC:
            formals = node.operator.schema.inputs
            found[name] = f"{here} `{formals[min(position, len(formals) - 1)].name}`"
        elif paths and (node.operator.structural or node.op_type == "If"):
            found[name] = through
    for graph in node.subgraphs.values():
        wanted = {}
        if node.op_type == "If":  # the outputs of a branch are those of the node, one by one
            pairs = zip(graph.outputs, node.outputs, strict=False)
            wanted = {value.name: paths[name] for value, name in pairs if name in paths}
        inside = {v.name for v in graph.inputs} | {name for n in graph.nodes for name in n.outputs}
        inner = demand(graph, wanted)
        found |= {name: path for name, path in inner.items() if name not in inside and name not in found}
    return found
