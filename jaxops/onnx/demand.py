"""Which values must be known while tracing: a walk back from every operand that an operator marks `Static`.

The walk goes through the operators that NumPy computes while their operands are static, stops where only sizes
are asked for, and enters subgraphs and functions. What it reaches among the initializers stays static; what it
reaches among the inputs of the graph must be given as NumPy values.
"""

from collections.abc import Mapping

from jaxops.onnx.graph import Graph, Node
from jaxops.static import SHAPE_ONLY, STATIC


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
        if not name or mark == SHAPE_ONLY:
            continue
        if mark == STATIC:
            formals = node.operator.schema.inputs
            found[name] = f"{here} `{formals[min(position, len(formals) - 1)].name}`"
        elif paths and node.operator.foldable:
            found[name] = through
    for graph in node.subgraphs.values():
        for name, path in _of_subgraph(node, graph, paths).items():
            found.setdefault(name, path)
    return found


def _of_subgraph(node: Node, graph: Graph, paths: Mapping[str, str]) -> dict[str, str]:
    """What a subgraph needs static, among the inputs of its node and the names that it captures."""
    op, here = node.op_type, f"{node.op_type} '{node.label}'"
    looped = op == "Loop"  # whose body gives its condition before the outputs of the node
    operands = node.inputs[op == "Scan" and node.opset < 9 :]  # behind the lengths of the sequences
    given = dict(zip((value.name for value in graph.inputs), operands, strict=False))
    made = zip(node.outputs, graph.outputs[looped:], strict=False)
    wanted = {value.name: paths[name] for name, value in made if name in paths}
    # The state goes round: an input of body that must be static makes the output static that becomes it.
    states = {"Loop": len(operands) - 1, "Scan": len(operands) - node.attributes.get("num_scan_inputs", 0)}.get(op, 0)
    back = list(zip(graph.inputs[looped:], graph.outputs[:states], strict=False))
    # Sequences and optionals have no place in a compiled choice or loop.
    unrolled = next((v.name for v in (*graph.inputs, *graph.outputs) if v.kind != "tensor"), "")
    while True:
        inner = demand(graph, wanted)
        more = {output.name: inner[value.name] for value, output in back if value.name in inner}
        if looped and (unrolled or wanted or more or graph.inputs[0].name in inner):
            unrolled = unrolled or next(iter((*wanted, *more, graph.inputs[0].name)))
            more[graph.outputs[0].name] = f"{here} makes '{unrolled}'"
        if more.keys() <= wanted.keys():
            break
        wanted = more | wanted
    # Initializers of the subgraph are named too: the others among them are parameters of the model.
    inside = {name for n in graph.nodes for name in n.outputs}
    found = {given.get(name, name): path for name, path in inner.items() if name not in inside}
    decides = {"If": node.inputs[:1], "Loop": node.inputs[:2]}.get(op, ())
    if unrolled or wanted or (looped and len(graph.outputs) > states):
        formals = ("M", "cond") if looped else ("cond",)
        found |= {name: f"{here} `{formal}`" for name, formal in zip(decides, formals, strict=False)}
    return {name: path for name, path in found.items() if name}
