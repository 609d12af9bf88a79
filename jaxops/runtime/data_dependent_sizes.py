"""Rounds up sizes that depend on data, so that few programs serve all of them.

A piece after a cut is compiled for exact sizes at first. Once a size has differed between two calls, the piece is
traced with a symbol for this size, up to the first node that needs the number. It then runs on arrays that are padded
to the next power of two, and its results are cropped. An operation that combines rows, such as a sum, leaves the
surplus rows out (`jaxops.compiler.padded.interpreter`).
"""

import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.compiler.primitives import jaxprs
from jaxops.compiler.row_independence import serves_surplus_rows
from jaxops.dtypes import canonical
from jaxops.errors import JaxopsError, UnsupportedError
from jaxops.graph.interpreter import run_node, scope_of, unwrap
from jaxops.graph.nodes import Graph, Node
from jaxops.jax_internals import evaluated
from jaxops.lazy_sequences import SplitSequence
from jaxops.memory import LIMIT
from jaxops.progress import step
from jaxops.runtime.host_data import Data, widened
from jaxops.runtime.recently_used import RecentlyUsed
from jaxops.static import UNKNOWN, StaticValue, Undecided, is_symbolic, symbolic_shape

# Sizes are rounded up to at least `_ROWS` if the operands then have at most `_FEW` elements: without this, a loop that
# adds one row at a time would need programs for 1, 2, 4 and 8 rows.
_ROWS, _FEW = 16, 1 << 16


@dataclass(frozen=True, eq=False)
class Symbolic:
    """A piece that was traced with symbols for sizes.

    stop: the index of the node where it ends. apart: the index of the first node that combines rows, or `stop`.
    operands, results: types with symbolic shapes. program: computes the results from operands and parameters; None if
    no node combines rows. shapes: the symbolic shapes in the program, with the bytes of an element.
    """

    stop: int
    apart: int
    operands: Sequence[Any]
    results: Mapping[str, Any]
    program: Any
    shapes: frozenset[tuple[tuple[Any, ...], int]]


@dataclass(frozen=True)
class _Shape:
    """The true shape of a result; None for a static one, which keeps its value."""

    sizes: tuple[int, ...] | None


@dataclass(frozen=True)
class Plan:
    """A call of a piece with rounded-up sizes. sizes: symbol → true size. room: symbol → rounded size."""

    symbolic: Symbolic
    sizes: Mapping[str, int]
    room: Mapping[str, int]

    @cached_property
    def mixes(self) -> bool:
        """Returns True if the call runs the program that combines rows.

        It does not if there are no rows, or if a rounded size is smaller than the true one, such as 9 - n.
        """
        symbolic, limit = self.symbolic, LIMIT.get()
        if symbolic.program is None or not all(self.sizes.values()):
            return False
        for shape, itemsize in symbolic.shapes:
            sizes = [(_number(d, self.sizes), _number(d, self.room)) for d in shape]
            if any(true > room for true, room in sizes) or math.prod(room for _, room in sizes) * itemsize > limit:
                return False
        return True

    @property
    def stop(self) -> int:
        """The index of the node where the piece ends."""
        return self.symbolic.stop if self.mixes else self.symbolic.apart

    @cached_property
    def _rooms(self) -> list[tuple[int, ...]]:
        """The rounded shape of each operand."""
        return [tuple(_number(d, self.room) for d in spec.shape) for spec in self.symbolic.operands]

    @cached_property
    def _seen(self) -> dict[str, Any]:
        """The results of `_result` so far: those of nodes that a call does not run may have no size."""
        return {}

    def _result(self, name: str) -> Any:
        """Returns the true shape of a result, or its value if that follows from true sizes."""

        def result(spec: Any) -> Any:
            if not isinstance(spec, np.ndarray):
                return _Shape(tuple(_number(d, self.sizes) for d in spec.shape))
            if spec.dtype != object:
                return _Shape(None)
            return np.array([_number(d, self.sizes) for d in spec.flat], np.int64).reshape(spec.shape)

        if name not in self._seen:
            self._seen[name] = jax.tree.map(result, self.symbolic.results[name])
        return self._seen[name]

    def padded(self, values: Any) -> Any:
        """Returns the operands padded with zeros."""
        arrays, tree = jax.tree.flatten(values)
        return jax.tree.unflatten(tree, list(map(widened, arrays, self._rooms)))

    def cropped(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the results without surplus rows, as data; static sizes become the true ones."""

        def crop(x: Any, result: Any) -> Any:
            if not isinstance(result, _Shape):
                return result.astype(x.dtype, copy=False)
            if result.sizes in (None, x.shape):
                return x
            true = np.asarray(x)[tuple(map(slice, result.sizes))]
            return true if isinstance(x, np.ndarray) else Data(true)

        def cropped(value: Any, result: Any) -> Any:
            # Most values are arrays, for which a walk over a tree takes longer than the crop.
            return crop(value, result) if isinstance(result, _Shape) else jax.tree.map(crop, value, result)

        return {name: cropped(value, self._result(name)) for name, value in values.items()}


@dataclass(eq=False)
class Rounding:
    """Stores, for each piece, the sizes of its first call, the axes whose sizes differed in later calls, and the plans
    of the last calls.
    """

    _first: dict[Any, list[tuple[int, ...]]] = field(default_factory=dict)
    _varying: dict[Any, set[tuple[int, int]]] = field(default_factory=dict)
    _symbolic: RecentlyUsed[Any, Symbolic] = field(default_factory=RecentlyUsed)
    _plans: RecentlyUsed[Any, Plan] = field(default_factory=RecentlyUsed)

    def plan(self, graph: Graph, start: int, values: Mapping[str, Any], params: Mapping[str, Any]) -> Plan | None:
        """Returns the plan for the piece that begins at node `start`; None if it runs with exact sizes."""
        leaves, tree = jax.tree.flatten(values)
        shapes = [x.shape for x in leaves]
        kind = graph, start, tree, tuple((len(x.shape), x.dtype) for x in leaves)
        first = self._first.setdefault(kind, shapes)
        varying = self._varying.setdefault(kind, set())
        varying |= {(k, a) for k, shape in enumerate(shapes) for a, d in enumerate(shape) if d != first[k][a]}
        if not varying:
            return None
        # An axis that has varied stays so, and another one makes another plan.
        key = kind, tuple(shapes), len(varying)
        plan = self._plans.used(key)
        if plan is None:
            plan = self._plans[key] = self._plan(graph, start, kind, values, params)
        return plan

    def _plan(self, graph: Graph, start: int, kind: Any, values: Mapping[str, Any], params: Mapping[str, Any]) -> Plan:
        leaves, tree = jax.tree.flatten(values)
        shapes, first, varying = [x.shape for x in leaves], self._first[kind], self._varying[kind]
        # Axes that have equal sizes in this call and had equal sizes in the first one share a symbol.
        pairs = dict.fromkeys((first[k][a], shapes[k][a]) for k, a in sorted(varying))
        names = {pair: f"n{count}" for count, pair in enumerate(pairs)}
        texts = tuple(
            tuple(names[first[k][a], d] if (k, a) in varying else d for a, d in enumerate(shape))
            for k, shape in enumerate(shapes)
        )
        symbolic = self._symbolic.used((kind, texts))
        if symbolic is None:
            symbols = dict(zip(names.values(), symbolic_shape(", ".join(names.values())), strict=True))
            specs = [
                jax.ShapeDtypeStruct(tuple(symbols.get(d, d) for d in text), x.dtype)
                for text, x in zip(texts, leaves, strict=True)
            ]
            symbolic = _trace(graph, start, jax.tree.unflatten(tree, specs), specs, params)
            self._symbolic[kind, texts] = symbolic
        sizes = {name: now for (_, now), name in names.items()}
        for least in (_ROWS, 2):  # at least two: an axis of size 1 would be broadcast
            room = {name: max(least, 1 << (size - 1).bit_length()) if size else least for name, size in sizes.items()}
            if all(math.prod(_number(d, room) for d in spec.shape) <= _FEW for spec in symbolic.operands):
                break
        return Plan(symbolic, sizes, room)

    def run(self, plan: Plan, values: Any, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the results of a piece that combines rows."""
        true = {name: np.asarray(size, canonical(np.int64)) for name, size in plan.sizes.items()}
        arrays = jax.tree.leaves((plan.padded(values), dict(params)))
        return plan.cropped(unwrap(self._compiled(plan.symbolic, tuple(plan.room.items()), true, arrays)))

    @cached_property
    def _compiled(self) -> Any:
        def piece(symbolic: Symbolic, room: tuple[tuple[str, int], ...], true: Any, arrays: Any) -> Any:
            step("for more sizes")
            program, tree = symbolic.program
            results = run_padded(program, arrays, Capacity(true, dict(room), {}))
            return jax.tree.unflatten(tree, [x.array for x in results])

        return jax.jit(piece, static_argnums=(0, 1))


def _number(size: Any, sizes: Mapping[str, int]) -> int:
    """Returns a size with numbers in place of its symbols."""
    return evaluated(size, sizes) if is_symbolic(size) else int(size)


def _trace(graph: Graph, start: int, operands: Any, specs: Sequence[Any], params: Mapping[str, Any]) -> Symbolic:
    """Traces the piece that begins at node `start`. operands: types with symbolic shapes. specs: their leaves."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), dict(params))
    symbols = sorted({name for spec in specs for d in spec.shape if is_symbolic(d) for name in (str(d),)})
    computed: dict[str, Any] = {}
    values = ChainMap(computed, *scope_of(graph, unwrap(operands), shapes).maps)
    apart = stop = len(graph.nodes)
    for index, node in enumerate(graph.nodes[start:], start):
        node_results = None if node.draws or node.bounded else _outputs(node, values, shapes, symbols)
        if node_results is None:
            stop = index
            break
        outputs, mixes = node_results
        apart = min(apart, index) if mixes else apart
        computed.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)
    apart = min(apart, stop)
    if apart == stop:
        return Symbolic(stop, stop, specs, computed, None, frozenset())

    def piece(operands: Any, params: Mapping[str, Any]) -> dict[str, Any]:
        local = unwrap(operands)
        values = ChainMap(local, *scope_of(graph, {}, params).maps)
        for index, node in enumerate(graph.nodes[start:stop], start):
            outputs = run_node(node, [values[name] if name else None for name in node.inputs], params, None, values)
            local.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)
            for name in graph.dead_after[index]:
                local.pop(name, None)
        return {name: jax.tree.map(_closed, value) for name, value in local.items() if name in computed}

    program, results = jax.make_jaxpr(piece, return_shape=True)(operands, shapes)
    symbolic_results = {
        (v.aval.shape, v.aval.dtype.itemsize)
        for jaxpr in _programs(program.jaxpr)
        for e in jaxpr.eqns
        for v in e.outvars
        if any(map(is_symbolic, v.aval.shape))
    }
    return Symbolic(stop, apart, specs, computed, (program, jax.tree.structure(results)), frozenset(symbolic_results))


def _closed(value: Any) -> Any:
    """Returns a value as a result of a program; zeros replace symbolic sizes, which `Plan.cropped` fills in."""
    if not isinstance(value, np.ndarray):
        return value
    return StaticValue(np.zeros(value.shape, np.int64) if value.dtype == object else value)


def _programs(jaxpr: Any) -> Iterator[Any]:
    """Yields a program and all its inner programs."""
    yield jaxpr
    for eqn in jaxpr.eqns:
        for inner in jaxprs(eqn):
            yield from _programs(inner)


def _outputs(
    node: Node, values: Mapping[str, Any], params: Mapping[str, Any], symbols: Sequence[str]
) -> tuple[list[Any], bool] | None:
    """Returns the types of a node's outputs, and whether it combines rows.

    Returns None if the node needs a value, or if there is no rule for leaving surplus rows out. symbols: of the sizes.
    """
    used = {name: values[name] for name in node.uses() if name in values}
    leaves, tree = jax.tree.flatten(used)
    static = [x if isinstance(x, np.ndarray) else None for x in leaves]
    seen: list[Any] = []

    def call(traced: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
        remaining = iter(traced)
        by_name = jax.tree.unflatten(tree, [next(remaining) if x is None else x for x in static])
        inputs = [by_name[name] if name else None for name in node.inputs]
        results = list(run_node(node, inputs, params, None, ChainMap(by_name)))
        for pieces in results:
            if isinstance(pieces, SplitSequence):  # the number of its arrays is not known for a rounded size
                raise pieces.problem(node.title)
        outputs, shape = jax.tree.flatten(results)
        seen.append((outputs, shape))
        return [x for x in outputs if not isinstance(x, np.ndarray)]

    inner = params if node.body or node.subgraphs else {}
    try:
        traced = [x for x in leaves if not isinstance(x, np.ndarray)]
        program, shapes = jax.make_jaxpr(call, return_shape=True)(traced, inner)
    except (*UNKNOWN, Undecided, JaxopsError):
        return None
    mixes = not serves_surplus_rows(program.jaxpr)
    if mixes and not _has_rules(program, symbols):
        return None
    remaining, (outputs, shape) = iter(shapes), seen[0]
    results = jax.tree.unflatten(shape, [x if isinstance(x, np.ndarray) else next(remaining) for x in outputs])
    return results, mixes


def _has_rules(program: Any, symbols: Sequence[str]) -> bool:
    """Returns True if a program can run on padded arrays."""
    room = dict.fromkeys(symbols, _ROWS)
    true = {name: jax.ShapeDtypeStruct((), canonical(np.int64)) for name in symbols}
    arrays = [
        jax.ShapeDtypeStruct(tuple(_number(d, room) for d in aval.shape), aval.dtype) for aval in program.in_avals
    ]
    try:
        jax.eval_shape(
            lambda true, arrays: [x.array for x in run_padded(program, arrays, Capacity(true, room, {}))], true, arrays
        )
    except UnsupportedError:
        return False
    return True
