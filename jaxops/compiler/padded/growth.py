"""Checks that arrays with room for the largest sizes of the inputs have room for all sizes in a program."""

from collections.abc import Mapping
from typing import Any

from jaxops.compiler.primitives import symbolic_sizes
from jaxops.errors import UnsupportedError
from jaxops.symbolic import numbers_of


def check_growth(program: Any, ranges: Mapping[str, range]) -> None:
    """Raises UnsupportedError for a size in a closed jaxpr that is not largest for the largest sizes of the inputs.

    ranges: symbol → the sizes that it stands for.
    """
    largest = {symbol: range(numbers.stop - 1, numbers.stop) for symbol, numbers in ranges.items()}
    for size in symbolic_sizes(program.jaxpr):
        numbers, room = numbers_of(size, ranges), numbers_of(size, largest)
        if numbers is None or room is None or numbers.max() > room.max():
            raise UnsupportedError(f"the size {size} may be larger for smaller inputs, so it cannot be rounded up")
