"""Finds the nodes at which NaNs and infinities begin."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import is_inexact
from jaxops.errors import amount
from jaxops.graph.interpreter import run_graph, run_node
from jaxops.graph.nodes import Graph, Node
from jaxops.static import Tracer
from jaxops.tools.inspect.tables import Report, Table


@dataclass(frozen=True)
class Row:
    """A tensor at which NaNs or infinities begin.

    node: its label; "" for an input or a parameter. nans, infinities: their numbers. index: of the first of them.
    operands: name → (smallest, largest) element of each operand of numbers.
    """

    node: str
    operator: str
    output: str
    nans: int
    infinities: int
    index: tuple[int, ...]
    operands: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, repr=False)
class NonFinite(Report):
    """The tensors at which NaNs and infinities begin, in the order in which they were computed.

    >>> print(NonFinite((Row("ratio", "Div", "y", 1, 0, (0, 2), {"x": (0.0, 3.0)}),)))
    NaNs or infinities begin at 1 tensor
    <BLANKLINE>
     operator   node    output   NaN   infinite   first at   operands
     ─────────────────────────────────────────────────────────────────
     Div        ratio   y          1          0   [0, 2]     x: 0 to 3
    """

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row | None:
        """The first of the tensors; None if every number is finite.

        >>> NonFinite(()).first
        """
        return self.rows[0] if self.rows else None

    def _table(self) -> Table:
        title = f"NaNs or infinities begin at {amount(len(self.rows), 'tensor')}" if self.rows else "all are finite"
        columns = ("operator", "node", "output", "NaN", "infinite", "first at", "operands")
        lines = [
            (
                row.operator,
                row.node,
                row.output,
                str(row.nans),
                str(row.infinities),
                str(list(row.index)),
                ", ".join(f"{name}: {low:.4g} to {high:.4g}" for name, (low, high) in row.operands.items()),
            )
            for row in self.rows
        ]
        return Table([title], columns, lines, right=("NaN", "infinite"))


def find_nonfinite(graph: Graph, inputs: Mapping[str, Any], params: Mapping[str, Any], rng: Any) -> NonFinite:
    """Runs the nodes one by one, and those of branches and functions, too; a loop counts as one node.

    inputs, params: by name. rng: a key, or None.
    """
    search = _Search()
    for kind, values in (("input", inputs), ("parameter", params)):
        for name, value in values.items():
            search.rows.extend(_rows("", kind, name, value, {}))
    search.run(graph, inputs, params, rng)
    return NonFinite(tuple(search.rows))


class _Search:
    def __init__(self) -> None:
        self.rows: list[Row] = []

    def run(self, *arguments: Any) -> list[Any]:
        """Returns the outputs of a graph, as `run_graph`."""
        return run_graph(*arguments, run=self.node)

    def node(self, node: Node, inputs: Sequence[Any], params: Any, rng: Any, values: Any) -> Sequence[Any]:
        """Returns the outputs of a node, as `run_node`."""
        known = len(self.rows)
        outputs = run_node(node, inputs, params, rng, values, self.run)
        if len(self.rows) == known:  # otherwise a node inside has made them
            operands = {name: x for name, x in zip(node.inputs, inputs, strict=True) if name}
            results = {name: y for name, y in zip(node.outputs, outputs, strict=False) if name}
            self.rows.extend(_made(node, operands, results))
        return outputs


def _made(node: Node, operands: Mapping[str, Any], results: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of a node: NaNs of operands without one, and infinities of finite operands."""
    nans, infinities = sum((_count(x) for value in operands.values() for x in _numbers(value)), np.zeros(2))
    extent = {name: (float(np.min(x)), float(np.max(x))) for name, v in operands.items() for x in _numbers(v) if x.size}
    for name, value in results.items():
        for row in _rows(node.label, node.operator.name, name, value, extent):
            if not nans and (row.nans or not infinities):
                yield row


def _rows(
    node: str, operator: str, name: str, value: Any, operands: Mapping[str, tuple[float, float]]
) -> Iterator[Row]:
    for x in _numbers(value):
        nans, infinities = map(int, _count(x))
        if nans + infinities:
            index = tuple(map(int, np.argwhere(~np.isfinite(x))[0]))
            yield Row(node, operator, name, nans, infinities, index, operands)


def _numbers(value: Any) -> list[np.ndarray]:
    """The arrays of floating-point numbers in a value whose elements are known, real and imaginary parts apart."""
    leaves = [x for x in jax.tree.leaves(value) if hasattr(x, "dtype") and not isinstance(x, Tracer)]
    arrays: list[Any] = [np.asarray(x) for x in leaves if is_inexact(x.dtype)]
    wide = (x.astype(np.float32) if x.dtype.itemsize < 4 else x for x in arrays)
    return [part for x in wide for part in ((x.real, x.imag) if x.dtype.kind == "c" else (x,))]


def _count(x: np.ndarray) -> np.ndarray:
    return np.array([np.isnan(x).sum(), np.isinf(x).sum()])
