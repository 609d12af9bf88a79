"""Merges adapters into the weights that they adapt."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from jaxops.errors import UnsupportedError
from jaxops.graph.nodes import Adapter, Graph
from jaxops.graph.parameters import Params

# Adds adapters to a prepared graph and its parameters.
Adapting: TypeAlias = Callable[[Graph, Params], tuple[Graph, Params]]


def merged(adapters: Sequence[Adapter], params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters without adapters: their products are added to the weights.

    Raises UnsupportedError for an adapter other than zero whose weight is no parameter of floats of its own.
    """
    found = dict(params)
    for adapter in adapters:
        a, b = (np.asarray(found.pop(name)) for name in (adapter.a, adapter.b))
        wide = np.result_type(a.dtype, np.float32)
        added = b.astype(wide) @ a.astype(wide)
        if not added.any():
            continue
        if not adapter.weight:
            raise UnsupportedError(
                f"save: the adapter of '{adapter.module}' cannot be merged, since the file has its weight as "
                "integers, or other nodes read it, too\n"
                "  hint    model.save_adapters writes the adapters alone"
            )
        added = added * (adapter.alpha / adapter.rank / adapter.factor)
        weight = np.asarray(found[adapter.weight])
        wide = np.result_type(weight.dtype, wide)
        found[adapter.weight] = weight.astype(wide) + (added if adapter.by_rows else added.T)
    return found
