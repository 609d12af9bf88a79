"""Sizes that differ from call to call, rounded up, so that few programs serve all of them.

A size behind a cut is exact at first. Once it has differed between two calls, the piece that it enters is traced with
a symbol in its place, node by node, up to the first node that mixes rows or needs the number itself. What comes before
that runs on as many rows as the next power of two, and the surplus rows are cropped from its results.
"""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import JaxopsError
from jaxops.graph.border import opened
from jaxops.graph.nodes import Graph, Node
from jaxops.graph.rows import row_wise
from jaxops.graph.trace import scope_of, step
from jaxops.sequences import SplitSequence
from jaxops.static import UNKNOWN, Undecided, evaluated, is_symbolic, symbolic_shape


@dataclass(frozen=True)
class Symbolic:
    """How far a piece can be traced with symbols for sizes: the node that it stops at, and the values as shapes."""

    stop: int
    operands: Sequence[Any]
    results: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """A call of a piece on rounded-up sizes. sizes: symbol → true size."""

    symbolic: Symbolic
    sizes: Mapping[str, int]

    @property
    def stop(self) -> int:
        """The node before which the piece ends."""
        return self.symbolic.stop

    def padded(self, values: Any) -> Any:
        """The operands with zeros in the surplus rows."""
        found, tree = jax.tree.flatten(values)
        # At least two: an axis of one element would broadcast.
        room = {name: max(2, 1 << (size - 1).bit_length()) if size else 2 for name, size in self.sizes.items()}

        def pad(x: Any, spec: Any) -> Any:
            more = [(0, _number(d, room) - size) for d, size in zip(spec.shape, x.shape, strict=True)]
            return np.pad(np.asarray(x), more) if any(after for _, after in more) else x

        return jax.tree.unflatten(tree, list(map(pad, found, self.symbolic.operands)))

    def cropped(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The results without the surplus rows, and static sizes as they are."""

        def crop(x: Any, spec: Any) -> Any:
            if isinstance(x, np.ndarray):
                return np.array([_number(d, self.sizes) for d in spec.flat], x.dtype).reshape(x.shape)
            sizes = tuple(_number(d, self.sizes) for d in spec.shape)
            return x if sizes == x.shape else as_traced(np.asarray(x)[tuple(map(slice, sizes))])

        return {name: jax.tree.map(crop, value, self.symbolic.results[name]) for name, value in values.items()}


@dataclass(eq=False)
class Rounding:
    """What is remembered of the sizes with which pieces were called: the first ones, and which axes differed later."""

    _first: dict[Any, list[tuple[int, ...]]] = field(default_factory=dict)
    _varying: dict[Any, set[tuple[int, int]]] = field(default_factory=dict)
    _symbolic: dict[Any, Symbolic] = field(default_factory=dict)

    def plan(self, graph: Graph, start: int, values: Mapping[str, Any], params: Mapping[str, Any]) -> Plan | None:
        """How to run the piece that begins at a node on these values; None: as they are."""
        found, tree = jax.tree.flatten(values)
        shapes = [x.shape for x in found]
        kind = graph, start, tree, tuple((len(x.shape), x.dtype) for x in found)
        first = self._first.setdefault(kind, shapes)
        varying = self._varying.setdefault(kind, set())
        varying |= {(k, a) for k, shape in enumerate(shapes) for a, d in enumerate(shape) if d != first[k][a]}
        if not varying:
            return None
        # Axes of equal sizes, now and at first, have one symbol.
        pairs = dict.fromkeys((first[k][a], shapes[k][a]) for k, a in sorted(varying))
        names = {pair: f"n{count}" for count, pair in enumerate(pairs)}
        texts = tuple(
            tuple(names[first[k][a], d] if (k, a) in varying else d for a, d in enumerate(shape))
            for k, shape in enumerate(shapes)
        )
        if (kind, texts) not in self._symbolic:
            symbols = dict(zip(names.values(), symbolic_shape(", ".join(names.values())), strict=True))
            specs = [
                jax.ShapeDtypeStruct(tuple(symbols.get(d, d) for d in text), x.dtype)
                for text, x in zip(texts, found, strict=True)
            ]
            made, stop = _trace(graph, start, jax.tree.unflatten(tree, specs), params)
            self._symbolic[kind, texts] = Symbolic(stop, specs, made)
        return Plan(self._symbolic[kind, texts], {name: now for (_, now), name in names.items()})


def _number(size: Any, sizes: Mapping[str, int]) -> int:
    """A size with numbers in place of its symbols."""
    return evaluated(size, sizes) if is_symbolic(size) else int(size)


def _trace(graph: Graph, start: int, given: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """(the values that nodes compute row by row, without reading data; the first node that does not)."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), dict(params))
    made: dict[str, Any] = {}
    values = ChainMap(made, *scope_of(graph, opened(given), shapes).maps)
    for index, node in enumerate(graph.nodes[start:], start):
        outputs = None if node.draws else _outputs(node, values, shapes)
        if outputs is None:
            return made, index
        made.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)
    return made, len(graph.nodes)


def _outputs(node: Node, values: Mapping[str, Any], params: Mapping[str, Any]) -> list[Any] | None:
    """The outputs of a node as shapes; None if it mixes rows, or must know a value."""
    used = {name: values[name] for name in node.uses() if name in values}
    leaves, tree = jax.tree.flatten(used)
    static = [x if isinstance(x, np.ndarray) else None for x in leaves]
    found: list[Any] = []

    def call(traced: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
        rest = iter(traced)
        known = jax.tree.unflatten(tree, [next(rest) if x is None else x for x in static])
        inputs = [known[name] if name else None for name in node.inputs]
        made = list(step(node, inputs, params, None, ChainMap(known)))
        for pieces in made:
            if isinstance(pieces, SplitSequence):  # how many there are, rounded sizes do not say
                raise pieces.problem(node.title)
        outputs, shape = jax.tree.flatten(made)
        found.append((outputs, shape))
        return [x for x in outputs if not isinstance(x, np.ndarray)]

    inner = params if node.body or node.subgraphs else {}
    try:
        traced = [x for x in leaves if not isinstance(x, np.ndarray)]
        program, shapes = jax.make_jaxpr(call, return_shape=True)(traced, inner)
    except (*UNKNOWN, Undecided, JaxopsError):
        return None
    if not row_wise(program.jaxpr):
        return None
    rest, (outputs, shape) = iter(shapes), found[0]
    return jax.tree.unflatten(shape, [x if isinstance(x, np.ndarray) else next(rest) for x in outputs])
