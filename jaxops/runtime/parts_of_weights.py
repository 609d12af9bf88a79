"""Weights in parts on a mesh: a device has its heads of the queries, of the keys and of the values of one weight.

One `NamedSharding` cannot split such a weight by heads. So where weights are prepared, a program reads its parts, each
with a place of its own. `model.apply` reads the weight as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec

from jaxops.compiler.partition.fused_weights import Part, cut_weights, part_of
from jaxops.meshes import moved_to
from jaxops.runtime.auto_axes import auto_axes, under_auto_axes


@dataclass(frozen=True)
class Piece:
    """A weight that a program reads, or a part of one. kept: the place of a part on a mesh; None for a whole weight."""

    weight: str
    axis: int = 0
    start: int = 0
    stop: int = 0
    kept: NamedSharding | None = None

    @property
    def is_part(self) -> bool:
        """True for a part."""
        return self.kept is not None

    @property
    def name(self) -> str:
        """The name of the weight, with the entries of a part."""
        return f"{self.weight}[{self.start}:{self.stop}]" if self.is_part else self.weight

    @property
    def key(self) -> str:
        """A text that no other piece of the model has."""
        return f"{self.name} {self.kept and self.kept.spec}"

    def of(self, weight: Any) -> Any:
        """Returns the piece of a weight; it stays on the devices of the weight if these are not those of the mesh."""
        if self.kept is None:
            return weight
        return moved_to(self.kept, under_auto_axes(part_of, weight, self.axis, self.start, self.stop))


def in_pieces(closed: Any, names: Sequence[str], places: Mapping[str, NamedSharding]) -> tuple[Any, list[Piece]]:
    """Returns a program that reads weights in parts, and the pieces that are its first inputs.

    closed: a closed jaxpr. names: of the weights, its first inputs. places: name of a weight that may have parts → how
    a mesh splits one.
    """
    axes = {k: _split_axis(places[name]) for k, name in enumerate(names) if name in places}
    with auto_axes():
        changed, parts = cut_weights(closed, len(names), axes)
    pieces, is_split = list[Piece](), False
    for k, name in enumerate(names):
        for part in parts.get(k, ()):
            kept = _place(places[name], axes[k], part)
            is_split |= kept.spec != PartitionSpec()
            pieces.append(Piece(name, axes[k], part.start, part.stop, kept))
        if k not in parts:
            pieces.append(Piece(name))
    return (changed, pieces) if is_split else (closed, list(map(Piece, names)))


def _split_axis(place: NamedSharding) -> int:
    return next(k for k, entry in enumerate(place.spec) if entry is not None)


def _place(place: NamedSharding, axis: int, part: Part) -> NamedSharding:
    """Returns the place of a part: on each device, if its features or its heads do not divide."""
    devices = place.mesh.shape[place.spec[axis]]
    divides = (part.stop - part.start) % devices == 0 and part.heads % devices == 0
    return place if divides else NamedSharding(place.mesh, PartitionSpec())
