"""A table of the parameters of a model: what each is for, and where it is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jaxops.graph.nodes import Graph
from jaxops.graph.parameter_roles import parameter_roles
from jaxops.shown_text import clean
from jaxops.tools.convert.sharding_rules import Placement


class Row(NamedTuple):
    """A parameter of a table.

    role: what it is for, as in `jaxops.graph.parameter_roles.Role`. spec: how the mesh splits it; None for an array on
    no mesh. bytes: on one device. reason: why it is there. type: its shape, dtype and sharding, for `jax.jit(…).lower`.
    """

    name: str
    role: str
    spec: PartitionSpec | None
    bytes: int
    reason: str
    type: jax.ShapeDtypeStruct


@dataclass(frozen=True)
class PlacementTable:
    """The parameters of a model in their order. `print` shows it. total: the bytes of all parameters."""

    rows: tuple[Row, ...]
    total: int

    @property
    def bytes(self) -> int:
        """The bytes of all parameters on one device."""
        return sum(row.bytes for row in self.rows)

    def __str__(self) -> str:
        head = ("parameter", "role", "spec", "bytes a device", "reason")
        cells = [
            (clean(r.name), r.role, "no mesh" if r.spec is None else str(r.spec), f"{r.bytes:,}", clean(r.reason))
            for r in self.rows
        ]
        widths = [max(len(row[k]) for row in (head, *cells)) for k in range(len(head))]
        lines = [
            "  ".join(f"{x:>{w}}" if k == 3 else f"{x:<{w}}" for k, (x, w) in enumerate(zip(row, widths, strict=True)))
            for row in (head, *cells)
        ]
        return "\n".join([*(line.rstrip() for line in lines), f"a device has {self.bytes:,} of {self.total:,} bytes"])


def placement_table(graph: Graph, types: Mapping[str, Any], placements: Mapping[str, Placement]) -> PlacementTable:
    """Returns the table of parameters.

    graph: prepared. types: the parameters by name, or what has their shapes, dtypes and shardings. placements: what a
    rule chose at load.
    """
    roles = parameter_roles(graph, {name: x.shape for name, x in types.items()})
    rows = tuple(_row(name, x, roles[name].kind, placements.get(name)) for name, x in types.items())
    return PlacementTable(rows, sum(math.prod(x.shape) * x.dtype.itemsize for x in types.values()))


def _row(name: str, x: Any, role: str, chosen: Placement | None) -> Row:
    spec = x.sharding.spec if isinstance(x.sharding, NamedSharding) else None
    shape = x.shape if x.sharding is None else x.sharding.shard_shape(x.shape)
    if chosen is None:
        reason = "loaded without a rule"
    elif x.sharding is not None and x.sharding.is_equivalent_to(chosen.sharding, x.ndim):
        reason = chosen.reason
    else:
        reason = "moved after loading"
    type = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    return Row(name, role, spec, math.prod(shape) * x.dtype.itemsize, reason, type)
