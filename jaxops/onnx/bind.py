"""Binding: each node of a `Graph` gets the operator, or the function of the model, that does it.

Everything that can be said without running the model is said here: operators that jaxops has not, all in one error;
attributes, inputs and outputs that a version has not; names that nothing defines.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from jaxops.errors import ModelError, SignatureError, UnsupportedError
from jaxops.onnx.graph import Function, Graph, Node, Reference, Source
from jaxops.onnx.read import function
from jaxops.onnx.registry import find, newest_opset


def bind(source: Source) -> Graph:
    """The graph of a model, bound. Raises one UnsupportedError for all operators that are missing."""
    binder = _Binder(source.functions)
    graph = binder.graph(source.graph, source.opsets, frozenset(), {})
    binder.report()
    return graph


def with_body(node: Node) -> Node:
    """A bound node; it gets the body that the standard gives its operator where no function does it."""
    assert node.operator is not None
    proto = node.operator.body
    return node if proto is None else dataclasses.replace(node, body=bind_body(node, proto))


def bind_body(node: Node, proto: Any) -> Graph:
    """The body that the standard's text gives an operator (a FunctionProto), for the attributes of a node.

    It makes the outputs that the node asks for; bodies leave out how to make others.
    """
    # A body may use operators of the standard without importing their opset.
    body = function(proto, (), {}, {})
    body = dataclasses.replace(body, opsets={"": newest_opset(), **body.opsets})
    asked = zip(body.graph.outputs, node.outputs, strict=False)
    outputs = tuple(value if name else dataclasses.replace(value, name="") for value, name in asked)
    body = dataclasses.replace(body, graph=dataclasses.replace(body.graph, outputs=outputs))
    binder = _Binder({})
    bound = binder.function(body, node.attributes)
    binder.report()
    return bound


class _Binder:
    def __init__(self, functions: Mapping[tuple[str, str, str], Function]) -> None:
        self.functions = functions
        self.calls: list[tuple[str, str, str]] = []  # the functions being bound: one inside itself never ends
        self.missing: dict[str, list[str]] = {}

    def report(self) -> None:
        if self.missing:
            lines = [f"  {reason}  (node {_some(nodes)})" for reason, nodes in sorted(self.missing.items())]
            raise UnsupportedError("the model uses operators that jaxops does not have:\n" + "\n".join(lines))

    def graph(
        self, graph: Graph, opsets: Mapping[str, int], outer: frozenset[str], references: Mapping[str, Any]
    ) -> Graph:
        _check_order(graph, outer)
        names = outer | {v.name for v in graph.inputs} | set(graph.initializers)
        names |= {name for node in graph.nodes for name in node.outputs}
        nodes = []
        for node in graph.nodes:
            try:
                nodes.append(self.node(node, opsets, names, references))
            except Exception as error:
                error.add_note(f"in node '{node.label}' ({node.op_type}, opset {opsets.get(node.domain, '?')})")
                raise
        return dataclasses.replace(graph, nodes=tuple(nodes))

    def node(self, node: Node, opsets: Mapping[str, int], names: frozenset[str], references: Mapping[str, Any]) -> Node:
        attributes = {}
        for name, value in node.attributes.items():
            if isinstance(value, Reference):
                if value.name not in references:
                    continue  # an optional attribute that the call left out
                value = references[value.name]
            if isinstance(value, Graph):
                value = self.graph(value, opsets, names, references)
            attributes[name] = value
        key = (node.domain, node.op_type, node.overload)
        if key in self.functions:
            return self.call(node, key, attributes)
        if node.domain not in opsets:
            domain = node.domain or "ai.onnx"
            raise ModelError(f"{node.op_type}: the model does not import an opset of domain '{domain}'")
        opset = opsets[node.domain]
        node = dataclasses.replace(node, attributes=attributes, opset=opset)
        try:
            operator = find(node.op_type, node.domain, opset)
        except UnsupportedError as error:
            self.missing.setdefault(str(error), []).append(node.label)
            return node
        attributes = operator.complete(attributes)
        operator.check_arity([bool(name) for name in node.inputs], len(node.outputs))
        return with_body(dataclasses.replace(node, attributes=attributes, operator=operator))

    def call(self, node: Node, key: tuple[str, str, str], attributes: Mapping[str, Any]) -> Node:
        if key in self.calls:
            raise ModelError(f"the function {node.op_type} calls itself")
        called = self.functions[key]
        unknown = sorted(set(attributes) - set(called.attributes))
        if unknown:
            raise SignatureError(f"{node.op_type}: the function has no attribute `{unknown[0]}`")
        if len(node.inputs) > len(called.graph.inputs) or len(node.outputs) > len(called.graph.outputs):
            raise SignatureError(
                f"{node.op_type}: {len(node.inputs)} inputs and {len(node.outputs)} outputs, but the function has "
                f"{len(called.graph.inputs)} and {len(called.graph.outputs)}"
            )
        self.calls.append(key)
        body = self.function(called, {**called.defaults, **attributes})
        self.calls.pop()
        return dataclasses.replace(node, attributes={}, body=body)

    def function(self, function: Function, attributes: Mapping[str, Any]) -> Graph:
        return self.graph(function.graph, function.opsets, frozenset(), attributes)


def _some(names: list[str]) -> str:
    return ", ".join(f"'{n}'" for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _check_order(graph: Graph, outer: frozenset[str]) -> None:
    """Every name is defined once, and before its first use."""
    defined = set(outer) | {v.name for v in graph.inputs} | set(graph.initializers)
    producers = {name: node for node in graph.nodes for name in node.outputs if name}
    for node in graph.nodes:
        for name in _uses(node):
            if name in defined:
                continue
            if name not in producers:
                raise ModelError(f"node '{node.label}' ({node.op_type}) reads '{name}', which nothing defines")
            what = "the graph has a cycle" if _reaches(producers, name, node) else "the graph is not sorted"
            raise ModelError(
                f"{what}: node '{node.label}' ({node.op_type}) reads '{name}', which the later node "
                f"'{producers[name].label}' ({producers[name].op_type}) makes"
            )
        for name in filter(None, node.outputs):
            if name in defined and name not in outer:
                raise ModelError(f"node '{node.label}' ({node.op_type}) defines '{name}' a second time")
            defined.add(name)
    for value in graph.outputs:
        if value.name and value.name not in defined:
            raise ModelError(f"output '{value.name}' of the graph is made by no node")


def _uses(node: Node) -> Iterable[str]:
    """The names a node reads, those that its subgraphs capture included."""
    yield from filter(None, node.inputs)
    for graph in node.subgraphs.values():
        yield from captured(graph)


def captured(graph: Graph) -> Iterable[str]:
    """The names that a subgraph reads from the graph around it."""
    inside = {v.name for v in graph.inputs} | set(graph.initializers)
    inside |= {name for node in graph.nodes for name in node.outputs}
    for node in graph.nodes:
        yield from (name for name in _uses(node) if name not in inside)
    yield from (value.name for value in graph.outputs if value.name and value.name not in inside)


def _reaches(producers: Mapping[str, Node], name: str, target: Node) -> bool:
    """Whether making `name` needs `target` to have run."""
    seen, todo = set(), [name]
    while todo:
        node = producers.get(todo.pop())
        if node is target:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(_uses(node))
    return False
