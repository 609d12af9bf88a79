"""Adapters of a product that a file of peft takes apart, as queries, keys and values, or that it joins with others."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jaxops.graph.nodes import Piece
from jaxops.tools.adapters.products import Modules

# Modules of transformers that join several, whose products onnxruntime-genai's builder writes apart.
_JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


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


def names_in(modules: Modules) -> dict[str, tuple[tuple[str, Piece], ...]]:
    """Returns the modules and their pieces that each name of a file stands for.

    Several ones where transformers joins what a file has apart, as for Phi-3.
    """
    found: dict[str, tuple[str, Piece]] = {}
    whole: dict[str, tuple[str, Piece]] = {}
    for module, products in modules.by_module.items():
        for piece in pieces_of(modules, module):
            found.setdefault(piece.name, (module, piece))
        name = modules.saved_as(module)
        whole[name] = (module, Piece(name, 0, products[0].sizes[1]))
    alone = {name: (target,) for name, target in (found | whole).items()}
    return dict(_joining(found)) | alone


def _joining(found: Mapping[str, tuple[str, Piece]]) -> Iterator[tuple[str, tuple[tuple[str, Piece], ...]]]:
    """Yields the modules of transformers that join some of `found`, all of which are there."""
    for path in {name.rpartition(".")[0] for name in found}:
        for leaf, parts in _JOINED.items():
            names = [f"{path}.{part}" for part in parts]
            if all(name in found for name in names):
                firsts = np.cumsum([0, *(found[name][1].size for name in names)]).tolist()
                total = firsts.pop()
                yield (
                    f"{path}.{leaf}",
                    tuple(
                        (module, piece._replace(first=first, total=total))
                        for first, (module, piece) in zip(firsts, (found[name] for name in names), strict=True)
                    ),
                )


def joined_pieces(modules: Modules, module: str) -> tuple[Piece, ...]:
    """Returns the pieces of a module by the names of transformers' Phi-3, which joins products."""
    for name, targets in names_in(modules).items():
        if name.rpartition(".")[2] in _JOINED:
            for target, piece in targets:
                if target == module:
                    return (piece._replace(name=name),)
    return pieces_of(modules, module)


def named_like(given: Sequence[Piece], own: Sequence[Piece]) -> tuple[Piece, ...]:
    """Returns the pieces of a module with the names of a file. given: those that the file has. own: all of them."""
    whole = [piece for piece in given if piece.size == sum(x.size for x in own)]
    if whole:
        return (whole[0],)
    path, dot, _ = given[0].name.rpartition(".")
    return tuple(piece._replace(name=f"{path}{dot}{piece.name.rpartition('.')[2]}") for piece in own)
