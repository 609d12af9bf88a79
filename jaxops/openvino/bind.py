"""Binding: each node of an IR gets the operator that computes it, and its attributes as values."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any

from jaxops.errors import UnsupportedError
from jaxops.frontend.custom_operators import CustomOperator, custom_operators
from jaxops.frontend.integer_types import with_integer_types
from jaxops.frontend.missing_operators import MissingOperators
from jaxops.frontend.norm_gradients import with_safe_norms
from jaxops.frontend.options import Operators
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.graph.node_order import check_subgraph, in_order
from jaxops.graph.nodes import Graph, Node
from jaxops.openvino.registry import Operator, find
from jaxops.openvino.schemas import EVERY_NUMBER, EVERY_TYPE, opset_of, read_attribute
from jaxops.shown_text import clean

# Attributes for other programs, which a file may have on layers of any type.
_SKIPPED = {"old_api_map_element_type", "old_api_map_order"}


def bind(graph: Graph, where: str, operators: Operators | None = None) -> Graph:
    """The graph of an IR, bound. where: the file in messages; operators: functions by (opset or extension, type).

    Raises one UnsupportedError for all operations that are missing; ModelError for an attribute that is not a value of
    its kind; SignatureError for a missing attribute, or for inputs and outputs that the operation does not have.
    Warns once of attributes that are skipped because the operation does not have them.
    """
    binder = _Binder(where, custom_operators(operators or {}))
    bound = binder.graph(graph, frozenset())
    binder.report()
    return with_integer_types(bound)


class TolerantOperator(Operator):
    """An operation with looser types, for files: OpenVINO has checked them, except that two types must be equal.

    exact: whether the file marks it to stay in float32 when the model is narrowed. seeded: whether it is a random
    operation with seeds, from which its numbers follow, so that it needs no random key.
    """

    def __init__(self, operator: Operator, exact: bool, seeded: bool) -> None:
        super().__init__(operator.schema, operator.fn, operator.opset)
        self._flags_of_file = exact, seeded
        self.draws &= not seeded
        if exact:
            self.traits = dataclasses.replace(self.traits, precision="exact")

    def __reduce__(self) -> Any:
        return tolerant, (self.schema.name, self.opset, *self._flags_of_file)

    def taken_types(self, formal: Any) -> frozenset[str]:
        """Returns all types; strings only if the operation permits strings."""
        return EVERY_TYPE if "string" in formal.types else EVERY_NUMBER

    def given_types(self, position: int) -> frozenset[str]:
        """Returns all types."""
        return EVERY_TYPE


class _Binder:
    def __init__(self, where: str, custom: Mapping[tuple[str, str], CustomOperator]) -> None:
        self.where, self.custom = where, custom
        self.missing = MissingOperators()
        self.completed: dict[Any, Mapping[str, Any]] = {}  # by operator and attributes as in the file
        self.skipped: dict[str, None] = {}

    def report(self) -> None:
        self.missing.report(self.where, "layer")
        if self.skipped:
            names = ", ".join(self.skipped)
            warnings.warn(
                clean(f"{self.where}: attributes that the operations do not have are skipped: {names}"), stacklevel=2
            )

    def graph(self, graph: Graph, outer: frozenset[str]) -> Graph:
        graph = in_order(graph, outer)
        names = outer | graph.defined if any(node.subgraphs for node in graph.nodes) else outer
        nodes = []
        for node in graph.nodes:
            try:
                nodes.append(self.node(node, names))
            except Exception as error:
                error.add_note(f"in layer '{node.label}' ({node.operator.name}) of {self.where}")
                raise
        return with_safe_norms(dataclasses.replace(graph, nodes=tuple(nodes)))

    def node(self, node: Node, names: frozenset[str]) -> Node:
        subgraphs = {name: self.graph(graph, names) for name, graph in node.subgraphs.items()}
        if isinstance(node.operator, SignatureOperator):  # the reader has bound it already
            return self.checked(dataclasses.replace(node, attributes={**node.attributes, **subgraphs}))
        op_type, opset_name, is_exact = node.operator
        custom = self.custom.get((opset_name, op_type))
        if custom is not None:
            attributes = {name: _guessed(text) for name, text in node.attributes.items() if name not in subgraphs}
            custom.check_node(node.inputs, {**attributes, **subgraphs})
            return dataclasses.replace(node, operator=custom, attributes={**attributes, **subgraphs})
        try:
            operator = tolerant(op_type, opset_of(opset_name, op_type), exact=is_exact)
        except UnsupportedError as error:
            self.missing.add(str(error), node.label, (opset_name, op_type))
            return node
        operator.check_arity([True] * len(node.inputs), len(node.outputs))
        key = operator, *node.attributes.items()
        if key not in self.completed:  # most layers of a type have the same attributes
            self.completed[key] = operator.complete(self.attributes(node, operator))
        attributes = self.completed[key]
        if operator.draws and (attributes["global_seed"] or attributes["op_seed"]):
            operator = tolerant(op_type, operator.opset, exact=is_exact, seeded=True)
        return self.checked(
            dataclasses.replace(node, operator=operator, attributes=attributes, outputs=_asked(node, operator))
        )

    def attributes(self, node: Node, operator: Operator) -> dict[str, Any]:
        """Returns as values those attributes of a node that the operation has."""
        declared, values = operator.schema.attributes, {}
        for written, text in node.attributes.items():
            name = written.replace("-", "_")
            if name in node.subgraphs:
                continue
            if name in declared:
                values[name] = read_attribute(declared[name], text, f"attribute `{written}`")
            elif name not in _SKIPPED:
                self.skipped[f"{operator.name}.{written}"] = None
        return values

    def checked(self, node: Node) -> Node:
        for name, graph in node.subgraphs.items():
            check_subgraph(node, name, graph)
        return node


@functools.cache
def tolerant(op_type: str, opset: int, exact: bool = False, seeded: bool = False) -> TolerantOperator:
    """Returns the operation with the looser rules for files. Raises what `find` raises."""
    return TolerantOperator(find(op_type, opset), exact, seeded)


def _asked(node: Node, operator: Operator) -> tuple[str, ...]:
    """Returns the outputs of a node without unread ones at the end that the operation may leave out."""
    outputs = list(node.outputs)
    while len(outputs) > 1 and not outputs[-1] and operator.flagged(len(outputs) - 1):
        outputs.pop()
    return tuple(outputs)


def _guessed(text: str) -> Any:
    """Returns an attribute of an unknown operation: a number, a boolean, a text, or a tuple of numbers and texts."""
    parts = [part.strip() for part in text.split(",")]
    values = [_number_or_text(part) for part in parts]
    if len(values) > 1:
        return tuple(values)
    return {"true": True, "false": False}.get(text.strip().lower(), values[0])


def _number_or_text(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
