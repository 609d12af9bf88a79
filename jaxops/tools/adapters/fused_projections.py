"""Adapters of a product that makes queries, keys and values at once, where a file of peft has one adapter for each."""

from collections.abc import Sequence

import numpy as np

from jaxops.graph.nodes import Piece
from jaxops.tools.adapters.peft_files import Saved
from jaxops.tools.adapters.products import Modules


def pieces_of(modules: Modules, module: str) -> tuple[Piece, ...]:
    """Returns the modules of peft for a module: itself; or those of its queries, keys and values.

    A module has three if an attention takes its result apart, and `qkv` in its name says how theirs are spelled.
    """
    product, name = modules.by_module[module][0], modules.saved_as(module)
    path, dot, leaf = name.rpartition(".")
    if not product.parts or leaf.count("qkv") != 1:
        return (Piece(name, 0, product.sizes[1]),)
    names = [f"{path}{dot}{leaf.replace('qkv', letter)}" for letter in "qkv"]
    starts = np.cumsum([0, *product.parts]).tolist()
    return tuple(map(Piece, names, starts, product.parts))


def names_in(modules: Modules) -> dict[str, tuple[str, Piece]]:
    """Returns the module and the piece that each name of a file stands for."""
    found: dict[str, tuple[str, Piece]] = {}
    whole: dict[str, tuple[str, Piece]] = {}
    for module, products in modules.by_module.items():
        for piece in pieces_of(modules, module):
            found.setdefault(piece.name, (module, piece))
        name = modules.saved_as(module)
        whole[name] = (module, Piece(name, 0, products[0].sizes[1]))
    return found | whole


def named_like(given: Sequence[Piece], own: Sequence[Piece]) -> tuple[Piece, ...]:
    """Returns the pieces of a module with the names of a file. given: those that the file has. own: all of them."""
    whole = [piece for piece in given if piece.size == sum(x.size for x in own)]
    if whole:
        return tuple(whole)
    path, dot, _ = given[0].name.rpartition(".")
    return tuple(piece._replace(name=f"{path}{dot}{piece.name.rpartition('.')[2]}") for piece in own)


def joined(given: Sequence[tuple[Piece, Saved]], outputs: int) -> Saved:
    """Returns one adapter with the outputs of several, and zeros for all other outputs.

    Its rank is the sum of their ranks, but adapters with the same `a` share it, as those do that `write` made of one.
    Their factors alpha / rank may differ; b then takes what is left of a factor.
    """
    (piece, first), *others = given
    if not others and piece.size == outputs:
        return first
    rows: list[tuple[np.ndarray, int]] = []
    for _, one in given:
        if not any(np.array_equal(one.a, a) for a, _ in rows):
            rows.append((one.a, sum(a.shape[0] for a, _ in rows)))
    rank, unit = sum(a.shape[0] for a, _ in rows), next((one for _, one in given if one.alpha), first)
    b = np.zeros((outputs, rank))
    for piece, one in given:
        at = next(start for a, start in rows if np.array_equal(one.a, a))
        share = one.alpha * unit.rank / (unit.alpha * one.rank) if unit.alpha else 1.0
        b[piece.start : piece.start + piece.size, at : at + one.rank] += one.b.astype(np.float64) * share
    return Saved(unit.alpha * rank / unit.rank, np.concatenate([a.astype(np.float64) for a, _ in rows]), b)
