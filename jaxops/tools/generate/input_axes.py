"""Finds the axes that an input of a decoder shares with its tokens (B, n): its rows, and its places."""

from collections.abc import Callable
from typing import Any

from jaxops.errors import UnsupportedError
from jaxops.graph.nodes import Value

# Sizes of a trial: of the tokens, and another one. None is a multiple of another one, so that nothing is broadcast.
BATCH, COUNT, OTHER = 2, 3, 5


class InputAxes:
    """The axes that inputs share with the tokens.

    Axes of one name are shared. Other names, or none, say less, since exporters may name each axis of each input:
    there, the model is tried with sizes of its tokens, and with others.
    tokens: the input of the tokens. fits: tells whether the model takes a prompt of `COUNT` tokens for each of `BATCH`
    rows, if an input has these first sizes.
    """

    def __init__(self, tokens: Value, fits: Callable[[Value, tuple[int, ...]], bool]) -> None:
        self._batch, self._count = tokens.shape or (None, None)
        self._fits = fits
        self._found: dict[tuple[str, int], bool] = {}

    def has_rows(self, value: Value) -> bool:
        """Tells whether the first axis has a row for each row of the tokens, as far as names say it."""
        size = _size(value, 0)
        return not isinstance(size, int) and (size is None or size == self._batch or size != self._count)

    def check_rows(self, value: Value) -> None:
        """Raises UnsupportedError for a first axis whose name is not that of the batch, if the model takes any size.

        It may pick its rows of an array that has more of them, or read all of a table.
        """
        size = _size(value, 0)
        is_named = isinstance(size, str) and not size.startswith((f"{value.name}_", "unk__"))  # by a file's author
        if not is_named or not isinstance(self._batch, str) or size in (self._batch, self._count):
            return
        if self._once(value, 0, lambda: self._fits(value, (OTHER,))):
            raise UnsupportedError(
                f"the model does not say whether '{value.name}' has a row for each prompt: its first axis is "
                f"'{size}', but that of the tokens is '{self._batch}'\n"
                f"  hint    load(…, sizes={{'{size}': …}}) if all prompts take one array; otherwise rename the axis"
            )

    def has_tokens(self, value: Value) -> bool:
        """Tells whether an input is (B, n, …)."""
        size = _size(value, 1)
        if not self.has_rows(value):
            return False
        if isinstance(size, int) or (size is not None and size in (self._batch, self._count)):
            return size == self._count
        return self._once(value, 1, lambda: not self._fits(value, (BATCH, OTHER)) and self._fits(value, (BATCH, COUNT)))

    def _once(self, value: Value, axis: int, ask: Callable[[], bool]) -> bool:
        if (value.name, axis) not in self._found:
            self._found[value.name, axis] = ask()
        return self._found[value.name, axis]


def _size(value: Value, axis: int) -> Any:
    """Returns the size of an axis: a number, a name, or None; 0 if there is no such axis."""
    return ((*(value.shape or ()), 0, 0))[axis]
