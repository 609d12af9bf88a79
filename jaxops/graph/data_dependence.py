"""Finds the nodes at which `runtime.compiled_pieces` will cut a graph, as far as this is certain before a call, and the
inputs that decide a size.

The cut at an If whose branches differ in sizes, or at a Loop whose state grows, is found only when a call is traced.
"""

from collections.abc import Mapping
from typing import Any

from jaxops.graph.bounds import BoundedValue
from jaxops.graph.nodes import Graph, Node
from jaxops.graph.static_analysis import result_is_static
from jaxops.signature import SHAPE_ONLY, STATIC

# Name → whether the value is static; a name that is not here may be either.
_Facts = dict[str, bool]


def expected_cuts(graph: Graph, facts: Mapping[str, bool]) -> dict[str, str]:
    """For the name of each node that needs the value of a traced array, its operator and the reason.

    facts: for each input, True if it is static.
    """
    reasons: dict[str, str] = {}
    _walk(graph, dict(facts), reasons, {})
    return reasons


def _walk(graph: Graph, facts: _Facts, reasons: dict[str, str], walked: dict[Any, Any]) -> list[bool | None]:
    """Adds to `reasons`; returns for each output whether it is static, None if unknown. walked: results for graphs that
    were visited already.
    """
    key = graph, tuple(sorted(facts.items()))
    if key not in walked:
        walked[key] = _walk_once(graph, facts, reasons, walked)
    return walked[key]


def _walk_once(graph: Graph, facts: _Facts, reasons: dict[str, str], walked: dict[Any, Any]) -> list[bool | None]:
    facts |= dict.fromkeys(graph.params, False) | dict.fromkeys(graph.static, True)
    for node in graph.nodes:
        facts_of_inputs = [facts.get(name) if name else True for name in node.inputs]
        if node.body is not None:
            entering = {
                v.name: fact for v, fact in zip(node.body.inputs, facts_of_inputs, strict=False) if fact is not None
            }
            outputs = _walk(node.body, entering, reasons, walked)
        elif node.subgraphs:
            for inner in node.subgraphs.values():
                _walk(inner, {name: facts[name] for name in inner.captures if name in facts}, reasons, walked)
            outputs = []
        else:
            reason = _reason(node, facts_of_inputs)
            if reason:
                reasons[node.label] = f"{node.operator.name}: {reason}"
            known = None if isinstance(node.operator, BoundedValue) else result_is_static(node, facts_of_inputs)
            outputs = [known] * len(node.outputs)
        facts |= {name: fact for name, fact in zip(node.outputs, outputs, strict=False) if name and fact is not None}
    return [facts.get(value.name) for value in graph.outputs]


def _reason(node: Node, facts: list[bool | None]) -> str:
    operator = node.operator
    for position, fact in enumerate(facts):
        formal = operator.formals[min(position, len(operator.formals) - 1)] if operator.formals else str(position)
        if fact is False and operator.mark(position) == STATIC:
            return f"`{formal}` must be known, but it depends on data"
        if fact is False and operator.sizes_result(position):
            return f"the size of the result depends on `{formal}`"
    return ""


def reader_of_padding(graph: Graph, facts: Mapping[str, bool]) -> tuple[str, Node] | None:
    """Returns a node that does more than move rows of a result with a bound, and so of its padding, if there is one.

    The first part of the result is the name of the node that makes the padding. facts: as in `expected_cuts`.
    """
    known: _Facts = dict(facts) | dict.fromkeys(graph.params, False) | dict.fromkeys(graph.static, True)
    padded = dict[str, str]()
    for node in graph.nodes:
        made_by = next((padded[name] for name in node.uses() if name in padded), "")
        if made_by and (node.subgraphs or node.body or node.operator.traits.kind not in ("form", "movement")):
            return made_by, node
        for inner in node.nested:
            if (found := reader_of_padding(inner, {})) is not None:
                return found
        inputs = [known.get(name) if name else True for name in node.inputs]
        sizing = [fact for k, fact in enumerate(inputs) if node.operator.sizes_result(k) or node.operator.bounded]
        if node.bounded and (node.subgraphs or node.body or not all(sizing)):
            made_by = node.label
        padded |= dict.fromkeys(node.outputs, made_by) if made_by else {}
        static = None if node.subgraphs or node.body else result_is_static(node, inputs)
        known |= {name: static for name in node.outputs if name and static is not None}
    return None


def inputs_that_size(graph: Graph, name: str) -> list[str]:
    """Returns the names of the inputs from which the size of a node's result is computed. name: that of the node, which
    may be in a subgraph or a function.
    """
    makers = {output: node for node in graph.nodes for output in node.outputs if output}
    inputs = [value.name for value in graph.inputs]
    pending = next((_sizing(node, name) for node in graph.nodes if _holds(node, name)), [])
    read = set[str]()
    while pending:
        if (value := pending.pop()) in read or not value:
            continue
        read.add(value)
        if value in makers:
            node = makers[value]
            sizes = {each for k, each in enumerate(node.inputs) if node.operator.mark(k) == SHAPE_ONLY}
            pending += [each for each in node.uses() if each not in sizes]
    return [each for each in inputs if each in read]


def _holds(node: Node, name: str) -> bool:
    return node.label == name or any(_holds(inner, name) for graph in node.nested for inner in graph.nodes)


def _sizing(node: Node, name: str) -> list[str]:
    """Returns the values that decide the size of a node's result; all that a node reads which holds that node."""
    if node.label != name or node.subgraphs or node.body is not None:
        return list(node.uses())
    return [value for k, value in enumerate(node.inputs) if node.operator.sizes_result(k)]
