"""Finds the shapes and types of the inputs of a node's subgraphs, and of its results."""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jaxops.graph.interpreter import run_graph, run_node
from jaxops.graph.nodes import Graph, Node
from jaxops.tools.python.operands import FAILURES, Operand

# (subgraph → its inputs by name, the results of the node). None is an unknown fact.
Known = tuple[dict[str, dict[str, Any]], Sequence[Any] | None]


def inside(
    node: Node,
    inputs: Sequence[Any],
    values: Mapping[str, Any],
    params: Mapping[str, Any],
    key: Operand | None,
    failed: Callable[[Exception], None],
) -> Known:
    """Traces a node on the shapes and types of its operands, and of the values that its subgraphs capture.

    values: values that may be captured, by name. params: of the model. failed: called with the error if that fails. The
    result is empty if an operand is not known
    well enough.
    """
    captured = {name: values[name] for graph in node.subgraphs.values() for name in graph.captures if name in values}
    operands_and_key = [*inputs, *captured.values(), key]
    operands = [x for x in operands_and_key if isinstance(x, Operand)]
    if not all(x.traceable for x in operands):
        return {}, None
    names = {id(graph): name for name, graph in node.subgraphs.items()}
    seen: dict[str, dict[str, Any]] = {}
    results: list[Any] = []

    def entered(graph: Graph, inputs: Mapping[str, Any], *context: Any) -> list[Any]:
        here = {name: _fact(x) for name, x in inputs.items()}
        before = seen.setdefault(names[id(graph)], here)
        # A loop may be traced again with other shapes.
        before.update({name: None for name, fact in here.items() if str(before[name]) != str(fact)})
        return run_graph(graph, inputs, *context)

    def traced(*xs: Any) -> None:
        following = iter(xs)
        arguments = [next(following) if isinstance(x, Operand) else x for x in operands_and_key]
        scope = dict(zip(captured, arguments[len(inputs) : -1], strict=True))
        outputs = run_node(node, arguments[: len(inputs)], params, arguments[-1], ChainMap(scope), entered)
        results[:] = map(_fact, outputs)

    try:
        jax.eval_shape(traced, *(x.fact for x in operands))
    except FAILURES as error:
        failed(error)
        return {}, None
    return seen, results


def _fact(value: Any) -> Any:
    return jax.ShapeDtypeStruct(value.shape, value.dtype) if isinstance(value, jax.Array) else None
