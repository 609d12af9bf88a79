"""Tables as text, as HTML in a notebook, or drawn by `rich` in a terminal. Programs use the `rows` of a report."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from jaxops.shown_text import one_line

# The largest number of characters in a cell, since names from files may be long.
_LONGEST = 200


@dataclass(frozen=True)
class Table:
    """Rows of cells under one or two lines of title. right: the columns of numbers."""

    title: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()

    @property
    def heading(self) -> str:
        """The title, shortened for display."""
        return "\n".join(_shown(self.title))

    @property
    def cells(self) -> list[list[str]]:
        """The rows, shortened for display."""
        return list(map(_shown, self.rows))

    def __str__(self) -> str:
        lines = [list(self.columns), *self.cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        align = [str.rjust if column in self.right else str.ljust for column in self.columns]
        texts = [
            "   ".join(pad(cell, width) for pad, cell, width in zip(align, line, widths, strict=True)) for line in lines
        ]
        texts.insert(1, "─" * len(texts[0]))
        return "\n".join([self.heading, "", *(f" {text}".rstrip() for text in texts)])

    def __rich__(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in self.columns:
            grid.add_column(column, justify="right" if column in self.right else "left", overflow="fold")
        for row in self.cells:
            grid.add_row(*map(Text, row))
        return Group(Text(self.heading, overflow="fold"), grid)

    def _repr_html_(self) -> str:
        # Colours and fonts are those of the page, which may be light or dark.
        styles = [f"text-align: {'right' if column in self.right else 'left'}" for column in self.columns]

        def html(tag: str, cells: Sequence[str]) -> str:
            pairs = zip(styles, cells, strict=True)
            inner = "".join(f'<{tag} style="{style}; white-space: pre-wrap">{escape(x)}</{tag}>' for style, x in pairs)
            return f"<tr>{inner}</tr>"

        head, body = html("th", self.columns), "\n".join(html("td", row) for row in self.cells)
        title = f'<div style="white-space: pre-wrap">{escape(self.heading)}</div>'
        return f"{title}\n<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _shown(texts: Sequence[str]) -> list[str]:
    return [one_line(text, _LONGEST) for text in texts]


class Report:
    """A value that is shown as a table, which a subclass makes in `_table`."""

    def _table(self) -> Table:
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self._table())

    def __repr__(self) -> str:
        return str(self._table())

    def __rich__(self) -> Any:
        return self._table().__rich__()

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()


def count_text(number: float | None) -> str:
    """A count with a unit prefix.

    >>> [count_text(n) for n in (None, 0, 950, 12_345, 4.1e9)]
    ['–', '0', '950', '12.3 k', '4.1 G']
    """
    if number is None:
        return "–"
    for unit in ("", " k", " M", " G", " T"):
        if number < 1000 or unit == " T":
            break
        number /= 1000
    return f"{number:.0f}{unit}" if not unit else f"{number:.3g}{unit}"
