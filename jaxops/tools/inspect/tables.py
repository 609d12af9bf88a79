"""Tables for people: printed as text, drawn by `rich` in a terminal, and found as rows by a program."""

import io
from collections.abc import Sequence
from typing import Any

# Wide enough for long module paths where nobody says how wide the paper is.
_WIDTH = 140


class Report:
    """A value that prints as a table, which a subclass makes in `__rich__`."""

    def __rich__(self) -> Any:
        raise NotImplementedError

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=_WIDTH, color_system=None)
        console.print(self.__rich__(), highlight=False)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in text.splitlines())

    def __repr__(self) -> str:
        return str(self)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> Any:
    """A table of `rich` under a title. right: the columns of numbers."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return Group(Text(title, overflow="fold"), grid)


def count_text(number: float | None) -> str:
    """A count the way people say it.

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
