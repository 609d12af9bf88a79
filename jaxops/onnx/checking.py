"""The operators that a model asks for, and those of them that jaxops has: a table, made before anything is loaded."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from jaxops.errors import JaxopsError, ModelError, UnsupportedError
from jaxops.graph.nodes import Graph, Node
from jaxops.onnx.bind import with_body
from jaxops.onnx.lenient import TolerantOperator, opset_of, tolerant
from jaxops.onnx.open import Readable
from jaxops.onnx.read import function, read
from jaxops.onnx.schemas import newest_opset
from jaxops.onnx.unbound import Function, OperatorName, Reference, Source

Status = Literal["function", "body", "local", "missing"]
_SHOWN: dict[Status, str] = {
    "function": "supported",
    "body": "supported, by the standard's function body",
    "local": "a function of the model",
    "missing": "missing",
}


@dataclass(frozen=True)
class Row:
    """An operator of a model. version: of its meaning, not the model's opset; None where there is none.

    status: done by a "function" of jaxops, by the "body" that the standard gives it, or "missing"; "local" is a
    function of the model itself, whose nodes have rows of their own. hint: why it is missing, and what helps.
    """

    operator: str
    domain: str
    version: int | None
    count: int
    status: Status
    hint: str = ""


@dataclass(frozen=True)
class Check:
    """The operators of a model, a row each; `print` shows the table."""

    title: str
    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def missing(self) -> tuple[Row, ...]:
        """The operators that jaxops does not have; empty where the model can be loaded, as far as operators go."""
        return tuple(row for row in self.rows if row.status == "missing")

    def __str__(self) -> str:
        lines = [("operator", "domain", "version", "count", "status")]
        for row in self.rows:
            status = _SHOWN[row.status] + (f": {row.hint}" if row.hint else "")
            version = "-" if row.version is None else str(row.version)
            lines.append((row.operator, row.domain, version, str(row.count), status))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        total, lost = sum(row.count for row in self.rows), sum(row.count for row in self.missing)
        verdict = f"{len(self.missing)} operators with {lost} nodes are missing" if lost else "jaxops has them all"
        text.append(f"{self.title}: {len(self.rows)} operators, {total} nodes; {verdict}")
        return "\n".join(text)


def check(model: Readable) -> Check:
    """The operators of a model and whether jaxops has them, without loading it; weights are not needed.

    model: as for `load`. Nodes in subgraphs and in the model's functions are counted once, as the file has them, and
    so are those behind the standard's function bodies that jaxops misses. Errors other than a missing operator, such
    as an attribute out of range, are left to `load`.
    Raises FileNotFoundError; ModelError for a file that is damaged or not an ONNX model.

    >>> from jaxops.onnx import carried
    >>> print(check(carried("light_squeezenet")))  # doctest: +ELLIPSIS
    operator           domain   version  count  status
    Concat             ai.onnx  4        8      supported
    ...
    squeezenet_old: 8 operators, 105 nodes; jaxops has them all
    """
    source = read(model, weights=False)
    return Check(source.graph.name or "(unnamed)", _Counting(source).rows())


class _Counting:
    def __init__(self, source: Source) -> None:
        self.functions = source.functions
        self.counts: Counter[Row] = Counter()  # rows with a count of 0
        self.walked: set[OperatorName] = set()
        self.graph(source.graph, source.opsets)

    def rows(self) -> tuple[Row, ...]:
        """The rows, by domain and operator."""
        counted = [dataclasses.replace(row, count=count) for row, count in self.counts.items()]
        return tuple(sorted(counted, key=lambda r: (r.domain, r.operator, r.version or 0, r.hint)))

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
        try:
            operator = tolerant(asked.name, asked.domain, opset_of(asked.domain, asked.name, opsets))
        except (UnsupportedError, ModelError) as error:
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
            pass  # the node has another fault, which `load` tells
        if status == "missing" and operator.proto is not None:
            absent = self.behind(operator)
            hint = f"its function body needs {', '.join(absent)}" if absent else hint
        self.add(asked, version, status, hint)

    def behind(self, operator: TolerantOperator) -> list[str]:
        """The operators that are missing behind a standard's function body; each of their nodes is counted."""
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
