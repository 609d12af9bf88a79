"""A program in parts that run one after the other, some of them equal."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax

from jaxops.compiler.ir import evaluate
from jaxops.compiler.partition.repeated_layers import Part, at_once
from jaxops.compiler.passes import block_attention, lazy_moves, sink_transposes
from jaxops.static import Sizes

# Values cross from one part to the next in the layout that they have.
jax.tree_util.register_dataclass(lazy_moves.Moved, ["array"], ["perm"])
jax.tree_util.register_dataclass(lazy_moves.Reshaped, ["moved"], ["shape"])
jax.tree_util.register_dataclass(lazy_moves.Spread, ["array"], ["shape", "axes"])


@dataclass(frozen=True)
class Link:
    """A part. run: what runs it, the same for equal parts. operands, results: the numbers of values.

    done: those that nothing reads after it.
    """

    run: Any
    operands: tuple[int, ...]
    results: tuple[int, ...]
    done: tuple[int, ...]


@dataclass(frozen=True)
class Chain:
    """A function of lists of values, as `jax.jit` makes one of a whole program. inputs: the numbers of these values.

    at_once: how many of its parts XLA compiles at once, as it needs much memory for each.
    """

    links: tuple[Link, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    at_once: int

    def __call__(self, *given: Iterable[Any]) -> list[Any]:
        known = dict(zip(self.inputs, (x for values in given for x in values), strict=True))
        for link in self.links:
            found = link.run(*[known[v] for v in link.operands])
            known.update(zip(link.results, found, strict=True))
            for v in link.done:
                del known[v]
        return [lazy_moves.settled(known[v]) for v in self.outputs]

    def lowered(self, *given: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """For each link the place of its part, which equal ones share, and the part, for operands of these types."""
        known = dict(zip(self.inputs, (x for values in given for x in values), strict=True))
        found: dict[Any, tuple[int, Any]] = {}
        for link in self.links:
            operands = [known[v] for v in link.operands]
            leaves, tree = jax.tree.flatten(operands)
            key = link.run, tree, tuple((x.shape, x.dtype) for x in leaves)
            if key not in found:
                found[key] = len(found), link.run.lower(*operands)
            yield found[key]
            known.update(zip(link.results, found[key][1].out_info, strict=True))

    def lower(self, *given: Iterable[Any]) -> "LoweredChain":
        """Each part for operands of these types, equal ones once."""
        places, parts = zip(*self.lowered(*given), strict=True)
        return LoweredChain(self.with_runs(places), tuple(dict(zip(places, parts, strict=True)).values()))

    def with_runs(self, runs: Sequence[Any]) -> "Chain":
        """The same, where each link has the function of its place."""
        links = (dataclasses.replace(link, run=run) for link, run in zip(self.links, runs, strict=True))
        return dataclasses.replace(self, links=tuple(links))


@dataclass(frozen=True)
class LoweredChain:
    """A chain whose parts are lowered. wiring: the chain, in which each link has the place of its part."""

    wiring: Chain
    parts: tuple[Any, ...]

    def as_text(self) -> str:
        """The text of all parts."""
        return "\n".join(part.as_text() for part in self.parts)

    def compile(self) -> list[Any]:
        """Each part compiled."""
        with ThreadPoolExecutor(self.wiring.at_once) as executor:
            return list(executor.map(lambda part: part.compile(), self.parts))


def chained(
    parts: Sequence[Part],
    inputs: Iterable[int],
    outputs: Sequence[Any],
    shapes: Mapping[Any, Sizes],
    jit: Callable[[Callable[..., Any]], Any],
) -> Chain:
    """A function of several parts. jit: what makes a function of one of them, which equal ones share."""
    runs: dict[Any, Any] = {}
    links: list[Link] = []
    needed = set(outputs)
    *before, last = parts
    ends = all(part.form != last.form for part in before)
    for part in reversed(parts):
        if part.form not in runs:
            runs[part.form] = jit(_function(part, shapes, ends and part is last))
        done = {*part.operands, *part.results} - needed
        links.append(Link(runs[part.form], part.operands, part.results, tuple(sorted(done))))
        needed.update(part.operands)
    return Chain(tuple(reversed(links)), tuple(inputs), tuple(outputs), at_once(parts))


def _function(part: Part, shapes: Mapping[Any, Sizes], ends: bool) -> Callable[..., Any]:
    """What computes the results of a part. ends: whether no part reads them in the layout that they have."""
    operations = block_attention.looped(part.operations, shapes, part.results)

    def run(*operands: Any) -> list[Any]:
        found = evaluate(
            operations, dict(zip(part.operands, operands, strict=True)), part.results, block_attention.bind
        )
        # A weak type would not be told by what a lowered part says of its results.
        return jax.tree.map(sink_transposes.of_strong_type, list(map(lazy_moves.settled, found)) if ends else found)

    return run
