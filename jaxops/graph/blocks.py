"""The blocks of a model: modules that repeat, such as the layers of a transformer.

A derivative recomputes the nodes of a block, so that their results need not be stored until then (`remat="block"`).
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jaxops.errors import ArgumentError
from jaxops.graph.nodes import Graph
from jaxops.graph.parameters import is_weight

# The number of a module in its family: `3` of `layer.3`, of `encoder_layer_3`, of `layer3`.
_NUMBER = re.compile(r"\d+$")
_Path = tuple[str, ...]


@dataclass
class _Module:
    """The content of a module: its operators, and the shapes of its weights, in the order of its nodes."""

    operators: list[str] = field(default_factory=list)
    weights: list[tuple[int, ...]] = field(default_factory=list)

    def repeats(self, other: "_Module") -> bool:
        # Of equal layers, the first one has more operators if it makes a mask that all of them read, and a weight more
        # if it makes a bias of positions (T5).
        if self.operators == other.operators:
            return True
        fewer, more = sorted((Counter(self.weights), Counter(other.weights)), key=Counter.total)
        return fewer <= more and 2 * fewer.total() > more.total()


def with_blocks(graph: Graph) -> Graph:
    """Returns the graph with the block of each node.

    Modules whose paths differ only in their last number form a family. They are blocks if two successive ones have the
    same operators or, except for a few, weights of the same shapes; of nested families, the outermost one counts.
    Raises ArgumentError if there are no blocks.
    """
    paths = [tuple(node.scope.split(".")) for node in graph.nodes]
    repeated = _repeated(graph, paths)
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
    """Returns the path of a module without the number at its end; None if no number is there."""
    stem, count = _NUMBER.subn("", path[-1])
    return (*path[:-1], stem) if count else None


def _repeated(graph: Graph, paths: Sequence[_Path]) -> set[_Path]:
    """Returns the families in which a module repeats the one before it."""
    weights = {name: tensor.shape for name, tensor in graph.initializers.items() if is_weight(tensor)}
    families: dict[_Path, dict[_Path, _Module]] = {}
    for node, path in zip(graph.nodes, paths, strict=True):
        for k in range(len(path)):
            if (family := _family(path[: k + 1])) is not None:
                module = families.setdefault(family, {}).setdefault(path[: k + 1], _Module())
                module.operators.append(node.operator.name)
                module.weights += [weights[name] for name in node.inputs if name in weights]
    return {
        family
        for family, modules in families.items()
        if any(module.repeats(before) for before, module in itertools.pairwise(modules.values()))
    }
