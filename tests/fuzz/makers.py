"""The fuzzer's own makers of nodes, beside those of `random_nodes`."""

from collections.abc import Callable
from typing import Any

from random_nodes import FLOATS, Made

Maker = tuple[Callable[[Any, Any], Made], tuple[Any, ...]]
OWN: dict[str, Maker] = {}


def own(names: str, types: tuple[Any, ...] = FLOATS) -> Any:
    """Registers a maker, as `random_nodes.maker`."""

    def register(fn: Any) -> Any:
        OWN.update(dict.fromkeys(names.split(), (fn, types)))
        return fn

    return register
