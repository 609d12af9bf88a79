"""Lists the operators of a model, and which of them jaxops has, before anything is loaded."""

import dataclasses
from collections import Counter
from collections.abc import Mapping

import numpy as np

from jaxops.errors import DTypeError, JaxopsError, UnsupportedError
from jaxops.frontend.operator_check import Check, Row, Status
from jaxops.frontend.schema import formal_of
from jaxops.graph.nodes import Graph, Node
from jaxops.onnx.bind import with_body
from jaxops.onnx.lenient import TolerantOperator, opset_of, tolerant
from jaxops.onnx.open import Readable
from jaxops.onnx.read import function, read
from jaxops.onnx.registry import NOT_STANDARD
from jaxops.onnx.schemas import newest_opset
from jaxops.onnx.unbound import Function, OperatorName, Reference, Source


def check(model: Readable) -> Check:
    """Lists the operators of a model and whether jaxops has them, without loading it. Weights are not needed.

    model: as for `load`. Each node in a subgraph or in a function of the model is counted once. If jaxops runs an
    operator by the function body of the standard, operators that are missing for that body are listed, too. Other
    errors, such as an attribute out of range, are left to `load`.
    Raises FileNotFoundError; ModelError for a file that is damaged or not an ONNX model.

    >>> from jaxops.onnx import carried
    >>> print(check(carried("light_squeezenet")))  # doctest: +ELLIPSIS
    operator           domain   version  count  status
    Concat             ai.onnx  4        8      supported
    ...
    squeezenet_old: 8 operators, 105 nodes; jaxops has them all
    """
    source = read(model, weights=False)
    return Check.of(source.graph.name or "(unnamed)", _Counting(source).counts)


class _Counting:
    def __init__(self, source: Source) -> None:
        self.functions = source.functions
        self.counts: Counter[Row] = Counter()  # how often each row occurs; `Check.of` writes it into the row
        self.walked: set[OperatorName] = set()
        self.graph(source.graph, source.opsets, {})

    def graph(self, graph: Graph, opsets: Mapping[str, int], outer: Mapping[str, np.dtype]) -> None:
        """outer: the known element types of tensors that the graph may capture."""
        declared = {value.name: value.dtype for value in graph.inputs if value.kind == "tensor"}
        declared |= {name: tensor.dtype for name, tensor in graph.initializers.items()}
        types = {name: dtype for name, dtype in outer.items() if name not in graph.defined}
        types |= {name: dtype for name, dtype in declared.items() if dtype is not None}
        for node in graph.nodes:
            self.node(node, opsets, types)
            for inner in node.subgraphs.values():
                self.graph(inner, opsets, types)

    def node(self, node: Node, opsets: Mapping[str, int], types: dict[str, np.dtype]) -> None:
        asked: OperatorName = node.operator
        if asked in self.functions:
            self.add(asked, None, "local")
            self.function(asked, self.functions[asked])
            return
        if (asked.domain, asked.name) in NOT_STANDARD:
            self.add(asked, None, "function")
            return
        try:
            operator = tolerant(asked.name, asked.domain, opset_of(asked.domain, asked.name, opsets))
        except UnsupportedError as error:
            self.add(asked, None, "missing", _first(error, asked))
            return
        version, items = operator.schema.since, node.attributes.items()
        attributes = {name: value for name, value in items if not isinstance(value, Reference)}
        status: Status = "body" if operator.fn is None else "function"
        hint = ""
        try:
            attributes = operator.complete(attributes)
            bound = dataclasses.replace(node, operator=operator, attributes=attributes)
            with_body(bound)
            _check_types(bound, types)
        except (UnsupportedError, DTypeError) as error:
            status, hint = "missing", _first(error, asked).removeprefix(f"{operator.version}: ")
        except JaxopsError:
            pass  # the node has another fault, which `load` reports
        if status == "missing" and operator.proto is not None:
            absent = self.behind(operator)
            hint = f"its function body needs {', '.join(absent)}" if absent else hint
        self.add(asked, version, status, hint)

    def behind(self, operator: TolerantOperator) -> list[str]:
        """Returns the operators that are missing in the standard's function body of an operator; counts their nodes."""
        missing: dict[str, None] = {}
        body = function(operator.proto, (), {}, {})
        opsets = {"": newest_opset(), **body.opsets}
        for node in body.graph.nodes:
            asked: OperatorName = node.operator
            try:
                inner = tolerant(asked.name, asked.domain, opset_of(asked.domain, asked.name, opsets))
            except UnsupportedError as error:
                missing[asked.name] = None
                self.add(asked, None, "missing", f"{_first(error, asked)}; in the function body of {operator.version}")
            else:
                if inner.fn is None and inner.proto is not None:
                    missing |= dict.fromkeys(self.behind(inner))
        return list(missing)

    def function(self, name: OperatorName, called: Function) -> None:
        if name not in self.walked:
            self.walked.add(name)
            self.graph(called.graph, called.opsets, {})

    def add(self, asked: OperatorName, version: int | None, status: Status, hint: str = "") -> None:
        self.counts[Row(asked.name, asked.domain or "ai.onnx", version, 0, status, hint)] += 1


@dataclasses.dataclass(frozen=True)
class _Typed:
    """A tensor of which only the element type is known."""

    dtype: np.dtype
    shape: tuple[str, ...] = ("…",)


def _check_types(node: Node, types: dict[str, np.dtype]) -> None:
    """Adds the element types of a node's outputs. Raises DTypeError for inputs of a type that the operator lacks."""
    operator: TolerantOperator = node.operator
    known = [types.get(name) for name in node.inputs]
    if all(dtype is not None or not name for name, dtype in zip(node.inputs, known, strict=True)):
        operator.check([None if dtype is None else _Typed(dtype) for dtype in known])
    schema = operator.schema
    # If the schema leaves the type of an output open, `output_types` gives the likely one, which does not do here.
    certain = {formal_of(schema.inputs, k).kind for k, dtype in enumerate(known) if dtype is not None}
    stated = bool(list(schema.stated_types(node.attributes)))
    outputs = zip(node.outputs, schema.outputs, operator.output_types(node, known), strict=False)
    for name, formal, dtype in outputs:
        is_certain = formal.kind in certain or stated or len(schema.element_types(formal.types)) == 1
        if name and is_certain and dtype is not None and all(kind.startswith("tensor(") for kind in formal.types):
            types[name] = dtype


def _first(error: Exception, asked: OperatorName) -> str:
    """The text of an error, without the name of the operator."""
    return str(error).removeprefix(f"{asked.name}: ")
