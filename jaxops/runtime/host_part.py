"""Computes on the host, before a call, what the program needs of inputs that set sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.sharding import get_abstract_mesh

from jaxops.dtypes import as_traced, is_string
from jaxops.errors import OutOfRangeError
from jaxops.graph.host_part import Divided, divided
from jaxops.graph.interpreter import run_graph
from jaxops.graph.nodes import Graph
from jaxops.runtime.recently_used import RecentlyUsed
from jaxops.runtime.x64 import is_on
from jaxops.static import StaticValue


@dataclass(eq=False)
class HostParts:
    """The divided graphs of a model, and the inputs of the programs in the last calls.

    A call with the same values again should not wait for NumPy.
    """

    _divided: dict[Any, Divided | None] = field(default_factory=dict)
    _inputs: RecentlyUsed[Any, dict[str, Any]] = field(default_factory=RecentlyUsed)

    def divide(self, graph: Graph, inputs: Mapping[str, Any]) -> tuple[Graph, Mapping[str, Any]]:
        """Returns the part of a graph that a program computes, and its inputs. inputs: those of the graph.

        The graph stays whole if the program needs all of its static inputs, or cannot hold one of them while x64 is
        off.
        """
        static = tuple([(k, x) for k, x in inputs.items() if type(x) is StaticValue and not is_string(x.value)])
        if not static:
            return graph, inputs
        names = tuple([name for name, _ in static])
        if (graph, names) not in self._divided:
            self._divided[graph, names] = divided(graph, names)
        parts = self._divided[graph, names]
        if parts is None:
            return graph, inputs
        settings = is_on(), get_abstract_mesh()  # under which JAX arrays are made
        key = graph, settings, static, *[inputs[name].shape for name in parts.sized]
        changed = self._inputs.used(key)
        if changed is None:
            try:
                changed = self._inputs[key] = _program_inputs(parts, dict(static), inputs)
            except OutOfRangeError:
                return graph, inputs
        return parts.program, {**inputs, **changed}


def _program_inputs(parts: Divided, static: Mapping[str, StaticValue], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs of the program that differ from those of the graph."""
    changed: dict[str, Any] = {name: as_traced(static[name].value) for name in parts.traced}
    operands = {name: np.broadcast_to(np.zeros((), bool), inputs[name].shape) for name in parts.sized}
    operands |= {value.name: static[value.name].value for value in parts.host.inputs if value.name in static}
    for name, x in zip(parts.host.output_names, run_graph(parts.host, operands, {}, None), strict=True):
        changed[name] = StaticValue(x) if name in parts.known else as_traced(x)
    return changed
