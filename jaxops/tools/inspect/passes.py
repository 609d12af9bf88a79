"""A row for each pass of the compiler: the operations of a program before and after it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxops.compiler import pipeline
from jaxops.errors import UnsupportedError, amount
from jaxops.tools.inspect.tables import Report, Table


@dataclass(frozen=True, repr=False)
class PassReport(Report):
    """A row for each pass, in the order in which they run, summed over all programs; None for a pass that did not run.

    title: the line above the table.
    """

    title: str
    rows: dict[str, pipeline.Row | None]

    def _table(self) -> Table:
        columns = ("pass", "operations before", "after", "ms")
        return Table([self.title], columns, [_cells(*item) for item in self.rows.items()], right=columns[1:])


def pass_report(call: Callable[[], Any], name: str) -> PassReport:
    """Records the rows of the passes during a call, summed over the programs that are specialized in it.

    Raises UnsupportedError if no program is specialized, as for a model with very many nodes, which runs in sections.
    """
    with pipeline.recorded() as recorded:
        call()
    if not recorded:
        raise UnsupportedError(f"passes: '{name}' runs without a specialized program, so no pass has seen it")
    rows = {entry.name: _sum([row for row in recorded if row.name == entry.name]) for entry in pipeline.LIST}
    seconds = sum(row.seconds or 0 for row in recorded)
    count = sum(row.name == pipeline.LIST[0].name for row in recorded)
    return PassReport(f"{name}: {amount(count, 'program')}, {seconds * 1e3:.1f} ms in passes", rows)


def _sum(rows: list[pipeline.Row]) -> pipeline.Row | None:
    if not rows:
        return None
    timed = [row.seconds for row in rows if row.seconds is not None]
    before, after = sum(row.before for row in rows), sum(row.after for row in rows)
    return pipeline.Row(rows[0].name, before, after, sum(timed) if timed else None)


def _cells(name: str, row: pipeline.Row | None) -> tuple[str, ...]:
    if row is None:
        return name, "–", "–", "–"
    return name, str(row.before), str(row.after), "–" if row.seconds is None else f"{row.seconds * 1e3:.1f}"
