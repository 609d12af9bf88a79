"""Sizes that a model declares by a name, although it can run with one number only."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxops.errors import JaxopsError, SizeError
from jaxops.graph import declared_sizes as names_of
from jaxops.static import Dim, Undecided, symbolic_shape


def numbers_needed(trace: Callable[[Mapping[str, Dim]], Any], names: Sequence[str]) -> dict[str, int]:
    """The numbers of those `names` for which the model says what they must be, such as the size of a head.

    trace: traces the model with these sizes, numbers or symbolic ones, by name.
    """
    found: dict[str, int] = {}
    symbols = names_of.identifiers(names)
    while len(found) < len(names):
        free = [name for name in names if name not in found]
        sizes = symbolic_shape(", ".join(symbols[name] for name in free))
        try:
            trace({**found, **dict(zip(free, sizes, strict=True))})
            return found
        except SizeError as error:
            left, _, right = error.needs.partition(" == ")
            name = next((name for name in free if symbols[name] == left), "")
            if not (name and right.isdigit()):
                return found
            found[name] = int(right)
        except (JaxopsError, Undecided):  # what is wrong there, the first step says
            return found
    return found
