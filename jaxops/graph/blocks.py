"""The blocks of a model: modules that repeat, such as the layers of a transformer.

A derivative recomputes the nodes of a block, so that their results need not be stored until then (`remat="block"`).
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from jaxops.errors import ArgumentError
from jaxops.graph.nodes import Graph, Node

# The number of a module in its family: `3` of `layer.3`, of `encoder_layer_3`, of `layer3`.
_NUMBER = re.compile(r"\d+$")
_Path = tuple[str, ...]


def with_blocks(graph: Graph) -> Graph:
    """Returns the graph with the block of each node.

    Modules whose paths differ only in their last number form a family. They are blocks if two successive ones consist
    of the same operators; of nested families, the outermost one counts. Raises ArgumentError if there are no blocks.
    """
    paths = [tuple(node.scope.split(".")) for node in graph.nodes]
    repeated = _repeated(graph.nodes, paths)
    if not repeated:
        raise ArgumentError(
            "remat='block': no module of the model repeats, by the names of its nodes or their metadata; use "
            "jax.checkpoint on the function that calls the model"
        )
    nodes = []
    for node, path in zip(graph.nodes, paths, strict=True):
        blocks = (path[: k + 1] for k in range(len(path)) if _family(path[: k + 1]) in repeated)
        nodes.append(replace(node, block=".".join(next(blocks, ()))))
    return replace(graph, nodes=tuple(nodes))


def _family(path: _Path) -> _Path | None:
    """Returns the path of a module without the number at its end; None where no number is there."""
    stem, count = _NUMBER.subn("", path[-1])
    return (*path[:-1], stem) if count else None


def _repeated(nodes: Sequence[Node], paths: Sequence[_Path]) -> set[_Path]:
    """Returns the families in which two successive modules consist of the same operators."""
    families: dict[_Path, dict[_Path, list[str]]] = {}
    for node, path in zip(nodes, paths, strict=True):
        for k in range(len(path)):
            module = path[: k + 1]
            if (family := _family(module)) is not None:
                families.setdefault(family, {}).setdefault(module, []).append(node.operator.name)
    return {
        family
        for family, modules in families.items()
        if any(a == b for a, b in zip(list(modules.values()), list(modules.values())[1:], strict=False))
    }
