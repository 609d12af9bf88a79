"""Binding: each node of a `Graph` gets the operator, or the function of the model, that computes it.

All errors that show without running the model are raised here: operators that jaxops does not have, in one list;
attributes, inputs and outputs that a version does not have; names that nothing defines.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from jaxops.errors import ModelError, SignatureError, UnsupportedError, amount
from jaxops.frontend.custom_operators import CustomOperator, custom_operators
from jaxops.frontend.integer_types import with_integer_types
from jaxops.frontend.missing_operators import MissingOperators
from jaxops.frontend.norm_gradients import with_safe_norms
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.graph.inline_functions import inline_deep_calls
from jaxops.graph.interpreter import PER_NODE
from jaxops.graph.node_order import check_subgraph, in_order
from jaxops.graph.nodes import Graph, Node
from jaxops.onnx.disputed import warn_of_disputed
from jaxops.onnx.functions import calls, resolved
from jaxops.onnx.gradient_node import with_differentiated
from jaxops.onnx.lenient import opset_of, tolerant
from jaxops.onnx.read import function
from jaxops.onnx.registry import NOT_STANDARD, Operator, find
from jaxops.onnx.schemas import newest_opset
from jaxops.onnx.unbound import Function, OperatorName, Source
from jaxops.onnx.validate import domain_of
from jaxops.static import is_symbolic

# The largest number of callers that an error inside a function names.
_MOST_NOTES = 16
# The largest number of nodes in bound bodies of functions, beside PER_NODE for each node of the graph.
_MOST_BOUND = 1 << 12


def bind(source: Source, operators: Mapping[tuple[str, str], Callable[..., Any]] | None = None) -> Graph:
    """The graph of a model, bound. Raises one UnsupportedError for all operators that are missing.

    operators: functions by (domain, name), which go before those of jaxops.
    """
    custom = custom_operators(operators or {})
    binder = _Binder(source.functions, {(domain_of(domain), name): fn for (domain, name), fn in custom.items()})
    binder.room += PER_NODE * len(source.graph.nodes)
    graph = binder.graph(source.graph, source.opsets, frozenset(), None)
    binder.missing.report()
    warn_of_disputed(graph)
    return with_integer_types(graph)


def with_body(node: Node) -> Node:
    """Returns a bound node with the standard's function body, if no function of jaxops computes its operator."""
    binder = _Binder({})
    bound = binder.with_body(node)
    binder.missing.report()
    return bound


class FunctionCall(SignatureOperator):
    """The operator of a node that calls a function of the model; the `body` of the node defines the computation."""

    def __init__(self, name: str, formals: Sequence[str]) -> None:
        super().__init__(name, None, formals)

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.formals)

    @property
    def label(self) -> str:
        """The function as the note on an error names it."""
        return f"{self.name}, a function of the model"


class TypedOperator(Operator):
    """An operator that the standard defines by a function body that depends on the types of the inputs."""

    def body(self, node: Node, inputs: Sequence[Any]) -> Graph:
        """The function body of a node, bound, for inputs of these types and shapes."""
        schema = self.schema.proto
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= self.opset]
        attributes = {name: value for name, value in node.attributes.items() if value is not None}
        proto = helper.make_node(self.name, node.inputs, node.outputs, node.name, domain=schema.domain, **attributes)
        types = [_type(value).SerializeToString() for value in inputs]
        data = schema.get_context_dependent_function_with_opset_version(max(versions), proto.SerializeToString(), types)
        binder = _Binder({})
        body = binder.standard_body(node, onnx.FunctionProto.FromString(data))
        binder.missing.report()
        return body


def _type(value: Any) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list | tuple):
        return helper.make_sequence_type_proto(_type(value[0]))
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64 if is_symbolic(value) else value.dtype))
    return helper.make_tensor_type_proto(dtype, [d if isinstance(d, int) else None for d in value.shape])


class _Binder:
    def __init__(
        self, functions: Mapping[OperatorName, Function], custom: Mapping[tuple[str, str], CustomOperator] | None = None
    ) -> None:
        self.functions = functions
        self.custom = custom or {}
        self.calls: set[OperatorName] = set()  # the functions being bound; a call of one of them is a recursion
        self.room = _MOST_BOUND  # the number of nodes that bodies of functions may still add
        self.missing = MissingOperators()
        self.bodies: dict[Any, Graph] = {}  # a function is bound once for each way to call it

    def graph(
        self, graph: Graph, opsets: Mapping[str, int], outer: frozenset[str], references: Mapping[str, Any] | None
    ) -> Graph:
        """references: the attributes of the call, if the graph is the body of a function; else None."""
        graph = in_order(graph, outer)
        names = outer | graph.defined if any(node.subgraphs for node in graph.nodes) else outer
        nodes = []
        for node in graph.nodes:
            try:
                nodes.append(with_differentiated(self.node(node, opsets, names, references), nodes))
            except Exception as error:
                opset = opsets.get(node.operator.domain, "?")
                error.add_note(f"in node '{node.label}' ({node.operator.name}, opset {opset})")
                raise
        return with_safe_norms(dataclasses.replace(graph, nodes=tuple(nodes)))

    def node(
        self, node: Node, opsets: Mapping[str, int], names: frozenset[str], references: Mapping[str, Any] | None
    ) -> Node:
        attributes = {
            name: self.graph(value, opsets, names, references) if isinstance(value, Graph) else value
            for name, value in resolved(node, references).items()
        }
        asked: OperatorName = node.operator
        if (asked.domain, asked.name) in self.custom:
            return _calling(node, self.custom[asked.domain, asked.name], attributes)
        if asked in self.functions:
            return self.call(node, asked, attributes)
        if (asked.domain, asked.name) in NOT_STANDARD:
            return _calling(node, NOT_STANDARD[asked.domain, asked.name], attributes)
        try:
            operator = tolerant(asked.name, asked.domain, opset_of(asked.domain, asked.name, opsets))
            operator.check_arity([bool(name) for name in node.inputs], len(node.outputs))
            attributes = operator.complete(attributes)
        except UnsupportedError as error:
            self.missing.add(str(error), node.label, (asked.domain, asked.name))
            return node
        bound = dataclasses.replace(node, operator=operator, attributes=attributes)
        for name, graph in bound.subgraphs.items():
            check_subgraph(bound, name, graph)
        return self.with_body(bound)

    def call(self, node: Node, asked: OperatorName, attributes: Mapping[str, Any]) -> Node:
        called = self.functions[asked]
        unknown = sorted(set(attributes) - set(called.attributes))
        if unknown:
            raise SignatureError(f"{asked.name}: the function has no attribute `{unknown[0]}`")
        graph = called.graph
        if len(node.inputs) > len(graph.inputs) or len(node.outputs) > len(graph.outputs):
            raise SignatureError(
                f"{asked.name}: {amount(len(node.inputs), 'input')} and {amount(len(node.outputs), 'output')}, but the "
                f"function has {len(graph.inputs)} and {len(graph.outputs)}"
            )
        key = asked, _frozen(attributes)
        if key not in self.bodies:
            self.bind_functions(asked, node, attributes)
        operator = FunctionCall(asked.name, tuple(value.name for value in graph.inputs))
        return dataclasses.replace(node, operator=operator, attributes={}, body=self.bodies[key])

    def bind_functions(self, asked: OperatorName, node: Node, attributes: Mapping[str, Any]) -> None:
        """Binds the bodies of the functions that a function calls, then its own, for these attributes."""
        path = [self._entered(asked, node, attributes)]
        try:
            while path:
                asked, node, attributes, inner = path[-1]
                for call, call_attributes in inner:
                    name = call.operator
                    is_function = name in self.functions and (name.domain, name.name) not in self.custom
                    if is_function and (name, _frozen(call_attributes)) not in self.bodies:
                        path.append(self._entered(name, call, call_attributes))
                        break
                else:
                    called = self.functions[asked]
                    body = self.function(called, {**called.defaults, **attributes})
                    identity = find("Identity", "", newest_opset())
                    self.bodies[asked, _frozen(attributes)] = inline_deep_calls(asked.name, body, identity)
                    self.calls.remove(asked)
                    path.pop()
        except Exception as error:
            for asked, node, *_ in path[:0:-1][:_MOST_NOTES]:
                error.add_note(f"in node '{node.label}' ({asked.name}, a function of the model)")
            raise

    def _entered(self, asked: OperatorName, node: Node, attributes: Mapping[str, Any]) -> Any:
        """Enters a function on the path to the one being bound; returns it with its calls."""
        if asked in self.calls:
            raise ModelError(f"the function {asked.name} calls itself")
        self.calls.add(asked)
        function = self.functions[asked]
        self.room -= len(function.graph.nodes)
        if self.room < 0:
            raise UnsupportedError(
                f"{asked.name}: functions call each other with too many different attributes; each needs its own body"
            )
        return asked, node, attributes, calls(function, attributes)

    def function(self, function: Function, attributes: Mapping[str, Any]) -> Graph:
        return self.graph(function.graph, function.opsets, frozenset(), attributes)

    def with_body(self, node: Node) -> Node:
        """Returns a bound node with the standard's function body, if no function of jaxops computes its operator."""
        operator: Operator = node.operator
        if operator.fn is not None:
            return node
        if operator.proto is None:
            graphs = sorted(node.subgraphs)
            if graphs:
                raise UnsupportedError(f"{operator.name}: jaxops does not implement the attribute `{graphs[0]}`")
            typed = TypedOperator(operator.schema, None, operator.opset)
            return dataclasses.replace(node, operator=typed)
        key = operator, _frozen(node.attributes), tuple(bool(name) for name in node.outputs)
        if key not in self.bodies:
            self.bodies[key] = self.standard_body(node, operator.proto)
        return dataclasses.replace(node, body=self.bodies[key])

    def standard_body(self, node: Node, proto: Any) -> Graph:
        """Binds the standard's function body of an operator (a FunctionProto) for the attributes of a node.

        The result has only the outputs that the node asks for; a body may leave the remaining ones undefined.
        """
        # A body may use operators of the standard without importing their opset.
        body = function(proto, (), {}, {})
        body = dataclasses.replace(body, opsets={"": newest_opset(), **body.opsets})
        asked = zip(body.graph.outputs, node.outputs, strict=False)
        outputs = tuple(value if name else dataclasses.replace(value, name="") for value, name in asked)
        binder = _Binder({})
        graph = dataclasses.replace(body.graph, outputs=outputs)
        bound = binder.function(dataclasses.replace(body, graph=graph), node.attributes)
        for reason in binder.missing.reasons:
            self.missing.add(f"{reason}, in the body of {node.operator.version}", node.label)
        return bound


def _calling(node: Node, operator: CustomOperator, attributes: Mapping[str, Any]) -> Node:
    """A node bound to a function of which only the signature is known."""
    operator.check_node(node.inputs, attributes)
    return dataclasses.replace(node, operator=operator, attributes=attributes)


def _frozen(value: Any) -> Any:
    """Returns an attribute, or a dictionary of attributes, in a hashable form."""
    if isinstance(value, Mapping):
        return tuple((name, _frozen(value[name])) for name in sorted(value))
    if isinstance(value, np.ndarray):
        content = tuple(value.flat) if value.dtype == object else value.tobytes()
        return value.dtype.name, value.shape, content
    return (type(value), value)  # 1 == 1.0 in Python, but they are different attributes
