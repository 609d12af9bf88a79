"""Finds sizes that a model declares by a name, although it can only run with one number for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxops.errors import SizeError
from jaxops.graph import declared_sizes as names_of
from jaxops.static import Dim, Undecided, symbolic_shape


def numbers_needed(trace: Callable[[Mapping[str, Dim]], Any], names: Sequence[str]) -> dict[str, int]:
    """Returns name → number for those `names` that must be a certain number, such as the size of a head.

    trace: traces the model with these sizes, numbers or symbolic ones, by name. Other errors of the model pass.
    """
    numbers: dict[str, int] = {}
    symbols = names_of.identifiers(names)
    while len(numbers) < len(names):
        free = [name for name in names if name not in numbers]
        sizes = symbolic_shape(", ".join(symbols[name] for name in free))
        try:
            trace({**numbers, **dict(zip(free, sizes, strict=True))})
            return numbers
        except SizeError as error:
            left, _, right = error.needs.partition(" == ")
            name = next((name for name in free if symbols[name] == left), "")
            if not (name and right.isdigit()):
                return numbers
            numbers[name] = int(right)
        except Undecided:
            return numbers
    return numbers
