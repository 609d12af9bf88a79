"""A model or a decoder in a few lines, however large it is: its inputs and outputs."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from jaxops.errors import amount
from jaxops.graph.nodes import Graph, Tensor, Value
from jaxops.shown_text import clean, one_line
from jaxops.tools.inspect.tables import Table

# The largest number of lines of inputs, and of outputs, and of characters in a line.
_MOST, _WIDTH = 8, 100


class Row(NamedTuple):
    """A value, or a node. kind: its role. note: further text."""

    kind: str
    name: str
    type: str
    note: str = ""

    def __str__(self) -> str:
        text = f"  {self.kind:<4} {self.name}" + (f": {self.type}" if self.type else "")
        return f"{text}  {self.note}" if self.note else text


@dataclass(frozen=True)
class Overview(Table):
    """A table of rows; as text, one line for each. brief: a shorter text, used if it fits into one line."""

    brief: str = ""

    def __str__(self) -> str:
        if self.brief and len(self.brief) <= _WIDTH:
            return one_line(self.brief, _WIDTH)
        return "\n".join(one_line(line, _WIDTH) for line in (*self.title, *(str(Row(*row)) for row in self.rows)))


def overview(title: Sequence[str], rows: Sequence[Row], brief: str = "") -> Overview:
    """The overview of some rows. Many rows of one kind whose names differ only in numbers are folded into one."""
    return Overview(title, ("", "name", "type", ""), _folded(rows), brief=brief)


def model_overview(
    graph: Graph, description: str, inputs: Sequence[Value], params: Mapping[str, Tensor], cuts: Mapping[str, str]
) -> Overview:
    """The overview of a model."""
    formals, results, variables = (", ".join(map(str, values)) for values in _values(graph, inputs))
    state = f", state ({variables})" if variables else ""
    brief = f"<jaxops.Model {graph.name!r}: ({formals}) → ({results}){state}, {amount(len(graph.nodes), 'node')}>"
    return overview(_title(graph, description, params), _rows(graph, inputs, cuts), brief)


def heading(
    graph: Graph,
    description: str,
    inputs: Sequence[Value],
    params: Mapping[str, Tensor],
    cuts: Mapping[str, str],
    *,
    folds: bool,
) -> list[str]:
    """The lines of the overview of a model, not cut. folds: many rows whose names differ only in numbers are one."""
    rows = _rows(graph, inputs, cuts)
    return list(map(clean, [*_title(graph, description, params), *(_folded(rows) if folds else rows)]))


def _title(graph: Graph, description: str, params: Mapping[str, Tensor]) -> list[str]:
    size = sum(math.prod(t.shape) for t in params.values())
    nodes, parameters = amount(len(graph.nodes), "node"), amount(len(params), "parameter")
    count = f"{nodes}, {parameters} with {amount(size, 'element')}"
    return [f"model {graph.name or '(unnamed)'} · {description}", f"  {count}"]


def _values(graph: Graph, inputs: Sequence[Value]) -> tuple[list[Value], list[Value], list[Value]]:
    """The inputs and outputs without those of variables, and the variables."""
    variables = {variable.before: variable.name for variable in graph.variables}
    afters = {variable.after for variable in graph.variables}
    return (
        [value for value in inputs if value.name not in variables],
        [value for value in graph.outputs if value.name not in afters],
        [replace(value, name=variables[value.name]) for value in inputs if value.name in variables],
    )


def _rows(graph: Graph, inputs: Sequence[Value], cuts: Mapping[str, str]) -> list[Row]:
    """The inputs, variables and outputs of a model, and the nodes before which it is cut."""
    formals, results, variables = _values(graph, inputs)
    listed = [Row("in", v.name, v.type_text, f"static: {v.static}" if v.static else "") for v in formals]
    listed += [Row("var", v.name, v.type_text) for v in variables]
    listed += [Row("out", v.name, v.type_text) for v in results]
    return listed + [Row("cut", f"before '{node}'", reason) for node, reason in cuts.items()]


def _folded(rows: Sequence[Row]) -> list[Row]:
    """The rows in the same order; of rows whose names differ only in numbers, the first one stands for all.

    >>> caches = [Row("in", f"past.{k}.{name}", "float32[b, 2]") for k in range(16) for name in ("key", "value")]
    >>> print(*_folded([Row("in", "tokens", "int64[b]"), *caches]), sep="\\n")
      in   tokens: int64[b]
      in   past.0.key … (15 more): float32[b, 2]
      in   past.0.value … (15 more): float32[b, 2]
    """
    result = []
    for kind in dict.fromkeys(row.kind for row in rows):
        groups: dict[object, list[Row]] = {}
        listed = [row for row in rows if row.kind == kind]
        for row in listed:
            groups.setdefault(_pattern(row) if len(listed) > _MOST else row, []).append(row)
        shown = list(groups.values())
        if len(shown) > _MOST:
            shown = shown[: _MOST - 1]
        for first, *similar in shown:
            result.append(first._replace(name=f"{first.name} … ({len(similar)} more)") if similar else first)
        if hidden := len(listed) - sum(map(len, shown)):
            result.append(Row(kind, f"… {hidden} more", ""))
    return result


def _pattern(row: Row) -> tuple[str, ...]:
    """A key that is equal for rows whose names, and names of sizes, differ only in numbers."""
    dtype, _, sizes = row.type.partition("[")
    return *(re.sub(r"\d+", "#", text) for text in (row.name, row.note)), dtype, re.sub(r"(?<=[^\W\d])\d+", "#", sizes)
