"""Lists the operators of a model, and which of them jaxops has, before anything is loaded."""

import dataclasses
from collections import Counter
from collections.abc import Mapping

from jaxops.errors import JaxopsError, UnsupportedError
from jaxops.frontend.operator_check import Check, Row, Status
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
        self.graph(source.graph, source.opsets)

    def graph(self, graph: Graph, opsets: Mapping[str, int]) -> None:
        for node in graph.nodes:
            self.node(node, opsets)
            for inner in node.subgraphs.values():
                self.graph(inner, opsets)

    def node(self, node: Node, opsets: Mapping[str, int]) -> None:
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
            with_body(dataclasses.replace(node, operator=operator, attributes=attributes))
        except UnsupportedError as error:
            status, hint = "missing", _first(error, asked)
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
            self.graph(called.graph, called.opsets)

    def add(self, asked: OperatorName, version: int | None, status: Status, hint: str = "") -> None:
        self.counts[Row(asked.name, asked.domain or "ai.onnx", version, 0, status, hint)] += 1


def _first(error: Exception, asked: OperatorName) -> str:
    """The text of an error, without the name of the operator."""
    return str(error).removeprefix(f"{asked.name}: ")
