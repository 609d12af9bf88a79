"""The result of `check`: a table of the operators in a model, with whether jaxops has each of them."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

from jaxops.errors import amount
from jaxops.shown_text import clean

Status = Literal["function", "body", "local", "missing"]
_SHOWN: dict[Status, str] = {
    "function": "supported",
    "body": "supported, by the standard's function body",
    "local": "a function of the model",
    "missing": "missing",
}


@dataclass(frozen=True)
class Row:
    """An operator of a model.

    version: the opset in which the operator got its meaning, which may be older than the model's; None if there is
    none. status: "function" if a function of jaxops computes it, "body" if the function body of the standard does,
    "local" for a function of the model itself, whose nodes have their own rows, or "missing". hint: the reason why it
    is missing, and what helps.
    """

    operator: str
    domain: str
    version: int | None
    count: int
    status: Status
    hint: str = ""


@dataclass(frozen=True)
class Check:
    """The operators of a model, a row for each; `print` shows the table.

    >>> import jaxops.onnx
    >>> report = jaxops.onnx.check("notebooks/digits.onnx")
    >>> [row.operator for row in report][:3]
    ['Conv', 'Flatten', 'Gemm']
    """

    title: str
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, title: str, counts: Counter[Row]) -> Self:
        """Returns the table for rows with count 0 and their numbers, sorted by domain and operator.

        >>> Check.of("net", Counter({Row("Relu", "ai.onnx", 14, 0, "function"): 2})).rows[0].count
        2
        """
        rows = (dataclasses.replace(row, count=count) for row, count in counts.items())
        return cls(title, tuple(sorted(rows, key=lambda r: (r.domain, r.operator, r.version or 0, r.hint))))

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def missing(self) -> tuple[Row, ...]:
        """The operators that jaxops does not have; empty if it has all.

        >>> import jaxops.onnx
        >>> jaxops.onnx.check("notebooks/digits.onnx").missing
        ()
        """
        return tuple(row for row in self.rows if row.status == "missing")

    def __str__(self) -> str:
        lines = [("operator", "domain", "version", "count", "status")]
        for row in self.rows:
            status = _SHOWN[row.status] + (f": {row.hint}" if row.hint else "")
            version = "-" if row.version is None else str(row.version)
            lines.append((clean(row.operator), clean(row.domain), version, str(row.count), clean(status)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        total, lost = sum(row.count for row in self.rows), sum(row.count for row in self.missing)
        verdict = "jaxops has them all"
        if lost:
            are = "is" if len(self.missing) == 1 else "are"
            verdict = f"{amount(len(self.missing), 'operator')} with {amount(lost, 'node')} {are} missing"
        text.append(f"{clean(self.title)}: {amount(len(self.rows), 'operator')}, {amount(total, 'node')}; {verdict}")
        return "\n".join(text)
