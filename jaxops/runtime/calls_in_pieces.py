"""Runs calls of `model(…)` on a mesh whose weights are read in parts: these are made once, and kept for later calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding

from jaxops.jax_internals import jaxpr_as_fun
from jaxops.lazy_array import arrays, current, type_of
from jaxops.runtime.auto_axes import under_auto_axes
from jaxops.runtime.parts_of_weights import Piece, in_pieces
from jaxops.runtime.recently_used import RecentlyUsed
from jaxops.runtime.repeated_calls import CallCache
from jaxops.runtime.specialized_calls import ReadsTracers, settings_now


class _Program(NamedTuple):
    """A compiled function of (weights in pieces, leaves of the inputs). tree: of its results."""

    pieces: list[Piece]
    run: Callable[[Sequence[Any], Sequence[Any]], Any]
    tree: Any


@dataclass(eq=False)
class CallsInPieces:
    """The programs of one model that read weights in parts, one for each signature.

    compiled: as of `SpecializedCalls`. places: as of `in_pieces`.
    """

    compiled: Any
    places: Mapping[str, NamedSharding]
    programs: RecentlyUsed[Any, _Program] = field(default_factory=RecentlyUsed)

    def call(
        self, cache: CallCache, static: tuple[Any, ...], inputs: Any, rng: Any, leaves: Sequence[Any], tree: Any
    ) -> Any:
        """Returns the result of `compiled`. leaves, tree: of (inputs, rng), without tracers. Raises ReadsTracers."""
        signature = static, tree, settings_now(), *((x.shape, x.dtype) for x in leaves)
        program = self.programs.used(signature)
        if program is None:
            program = self.programs[signature] = self._traced(cache, static, inputs, rng)
        missing: dict[str, list[Piece]] = {}
        for piece in program.pieces:
            if piece.is_part and piece.key not in cache.prepared:
                missing.setdefault(piece.weight, []).append(piece)
        for name, pieces in missing.items():
            weight = current(cache.params[name])  # is not kept unless the caller has it, too
            cache.prepared.update((piece.key, piece.of(weight)) for piece in pieces)
        whole = iter(arrays([cache.params[piece.weight] for piece in program.pieces if not piece.is_part]))
        weights = [cache.prepared[piece.key] if piece.is_part else next(whole) for piece in program.pieces]
        return jax.tree.unflatten(program.tree, program.run(weights, leaves))

    def _traced(self, cache: CallCache, static: tuple[Any, ...], inputs: Any, rng: Any) -> _Program:
        types = {name: _type(type_of(x)) for name, x in cache.params.items()}
        given = jax.tree.map(_type, (inputs, rng))
        traced = self.compiled.trace(*static, types, *given)
        if len(traced.jaxpr.in_avals) > len(jax.tree.leaves((types, given))):
            raise ReadsTracers
        closed, pieces = in_pieces(traced.jaxpr, sorted(types), self.places)
        function = jaxpr_as_fun(closed)

        def run(weights: Sequence[Any], leaves: Sequence[Any]) -> Any:
            return under_auto_axes(function, *weights, *leaves, like=leaves)

        return _Program(pieces, jax.jit(run), jax.tree.structure(traced.out_info))


def _type(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
