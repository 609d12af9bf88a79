"""Compares the results of two engines for one model, tensor by tensor, and finds the first difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.errors import amount
from jaxops.graph.nodes import Graph, Node
from jaxops.tools.inspect.tables import Report, Table

# The number of rows that a printed report shows around the first difference, and of the largest ones if there is none.
_BEFORE, _AFTER, _LARGEST = 3, 4, 8


@dataclass(frozen=True)
class Row:
    """A tensor. absolute, relative: the largest differences; NaN if only one of two values is NaN.

    note: the reason why the tensor was not compared, or a difference in shape or type.
    """

    node: str
    operator: str
    output: str
    absolute: float
    relative: float
    agrees: bool
    note: str = ""


@dataclass(frozen=True, repr=False)
class Comparison(Report):
    """The tensors of a model in the order of its nodes, a row for each; `print` shows where they begin to differ.

    >>> row = Row("fc", "MatMul", "y", absolute=1e-7, relative=1e-6, agrees=True)
    >>> print(Comparison((row,), rtol=1e-3, atol=1e-5))
    the one tensor agrees (rtol 0.001, atol 1e-05); the largest differences:
    <BLANKLINE>
        operator   node   output   absolute   relative   note
     ────────────────────────────────────────────────────────
        MatMul     fc     y           1e-07      1e-06
    """

    rows: tuple[Row, ...]
    rtol: float
    atol: float

    @property
    def first(self) -> Row | None:
        """The first tensor that differs by more than the tolerance: look at its node. None if all agree.

        >>> row = Row("fc", "MatMul", "y", absolute=0.5, relative=0.1, agrees=False)
        >>> Comparison((row,), rtol=1e-3, atol=1e-5).first.node
        'fc'
        """
        return next((row for row in self.rows if not row.agrees), None)

    @property
    def agrees(self) -> bool:
        """True if all tensors agree.

        >>> row = Row("fc", "MatMul", "y", absolute=1e-7, relative=1e-6, agrees=True)
        >>> Comparison((row,), rtol=1e-3, atol=1e-5).agrees
        True
        """
        return self.first is None

    def _table(self) -> Table:
        tolerance = f"rtol {self.rtol:g}, atol {self.atol:g}"
        first = self.first
        if first is None:
            every = "the one tensor agrees" if len(self.rows) == 1 else f"all {len(self.rows)} tensors agree"
            worst = sorted(self.rows, key=lambda row: -row.absolute)
            shown, title = (
                worst[:_LARGEST],
                f"{every} ({tolerance}); the largest differences:",
            )
        else:
            index = self.rows.index(first)
            shown = self.rows[max(0, index - _BEFORE) : index + _AFTER]
            differ = sum(not row.agrees for row in self.rows)
            title = (
                f"{first.operator} '{first.node}' is the first node that differs ({tolerance}); "
                f"{differ} of {amount(len(self.rows), 'tensor')} {'does' if differ == 1 else 'do'}"
            )
        lines = [
            (
                "→" if row is first else "" if row.agrees else "≠",
                row.operator,
                row.node,
                "" if row.output in (row.node, f"{row.node}_output_0") else row.output,
                f"{row.absolute:.2g}",
                f"{row.relative:.2g}",
                row.note,
            )
            for row in shown
        ]
        columns = ("", "operator", "node", "output", "absolute", "relative", "note")
        return Table([title], columns, lines, right=("absolute", "relative"))


def names_of(graph: Graph) -> list[str]:
    """The tensors of a graph that can be compared: the outputs of its nodes."""
    return [name for node in graph.nodes for name in node.outputs if name]


def compare(
    graph: Graph, ours: Mapping[str, Any], theirs: Mapping[str, Any], *, rtol: float = 1e-3, atol: float = 1e-5
) -> Comparison:
    """Compares the results of two engines, by name. NaN agrees with NaN at the same position, an infinity with itself.

    ours, theirs: arrays, or sequences of them; a tensor that only one of them has is left out. Tensors after a node
    that draws random numbers, or whose size is fixed by `bounds` of load, count as equal, with a note.
    """
    rows, notes = [], dict[str, str]()  # tensors that are not compared → the reason
    for node in graph.nodes:
        origin = "random" if node.draws else "bounded" if node.bounded else ""
        note = origin or next((notes[name] for name in node.uses() if name in notes), "")
        notes.update(dict.fromkeys(node.outputs, note) if note else {})
        for name in node.outputs:
            if name in notes:
                rows.append(Row(node.label, node.operator.name, name, 0.0, 0.0, True, notes[name]))
            elif name in ours and name in theirs:
                rows.append(_row(node, name, _leaves(ours[name]), _leaves(theirs[name]), rtol, atol))
    return Comparison(tuple(rows), rtol, atol)


def _leaves(value: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(value)]


def _row(
    node: Node, name: str, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], rtol: float, atol: float
) -> Row:
    def row(absolute: float, relative: float, agrees: bool, note: str = "") -> Row:
        return Row(node.label, node.operator.name, name, absolute, relative, agrees, note)

    shapes = [[y.shape for y in ours], [y.shape for y in theirs]]
    if shapes[0] != shapes[1]:
        left, right = (shape[0] if len(shape) == 1 else shape for shape in shapes)
        return row(np.nan, np.nan, False, f"shape {left}, expected {right}")
    absolute = relative = 0.0
    agrees, note = True, ""
    for y, expected in zip(ours, theirs, strict=True):
        if y.dtype.kind in "OUST" or expected.dtype.kind in "OUST":
            if y.astype(str).tolist() != expected.astype(str).tolist():
                agrees, note = False, "strings differ"
            continue
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (y, expected))
        lost = np.isnan(a) != np.isnan(b)
        if lost.any():
            agrees, absolute, relative = False, np.nan, np.nan
            note = f"NaN in one of them at {lost.sum()} of {amount(lost.size, 'place')}"
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.where((a == b) | np.isnan(a), 0.0, np.abs(a - b))
            scale = np.where(apart == 0, 1.0, np.maximum(np.abs(a), np.abs(b)))
            ratio = np.where(np.isinf(scale), np.inf, apart / scale)
            close = (apart <= atol + rtol * np.abs(b)) & ~np.isinf(apart)
        absolute = max(absolute, float(apart.max(initial=0.0)))
        relative = max(relative, float(ratio.max(initial=0.0)))
        agrees = agrees and bool((close | (apart == 0)).all())
    if not agrees and not note and node.attributes.get("accuracy_level") == 4:
        note = "onnxruntime rounds the operand to 8 bits here (accuracy_level 4)"
    return row(absolute, relative, agrees, note)
