"""Runs a graph in compiled pieces, for models in which a size depends on data.

A piece is traced node by node. It ends before the first node that needs a value that is traced: NonZero, a TopK of a
computed `k`, an If whose branches have results of different shapes. This node runs on the values that the piece has
computed, and so do the nodes after it that NumPy can compute: compiling a program for each number of boxes would take a
thousand times as long as running it. The next piece begins after them. A model without such a node is one piece. The
cuts are found by tracing alone: an operator that needs a value raises StaticError.
"""

import functools
import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jaxops.compiler.part_of_program import keeping_few_scores
from jaxops.compiler.run.specialized import ProgramCache
from jaxops.errors import ArgumentError, JaxopsError
from jaxops.graph.interpreter import in_sections, run_node, scope_of, unwrap
from jaxops.graph.nodes import Graph, Node
from jaxops.lazy_array import named_arrays
from jaxops.memory import runs_here
from jaxops.progress import explain, step
from jaxops.runtime.auto_axes import under_auto_axes
from jaxops.runtime.buckets import Rounded, cropped, run_rounded
from jaxops.runtime.calls_in_pieces import CallsInPieces
from jaxops.runtime.counted_sizes import exact, padded, run_counted, run_graph_counted, run_node_counted
from jaxops.runtime.data_dependent_sizes import Rounding
from jaxops.runtime.host_data import Data, as_argument, as_data, as_operand, leaves_of, on_host
from jaxops.runtime.host_part import HostParts
from jaxops.runtime.placed_params import Places, placed
from jaxops.runtime.specialized_calls import SpecializedCalls
from jaxops.signature import SHAPE_ONLY
from jaxops.static import CUTTABLE, UNKNOWN, StaticValue, Tracer, tracing

# NumPy computes a node after a cut if its operands have at most this many elements; more are worth compiling.
_MANY = 1 << 20
_Scope = ChainMap[str, Any]


@jax.tree_util.register_static
@dataclass(frozen=True)
class StoppedAt:
    """The index of the node at which a piece ends, as a static result of `jit`."""

    value: int


@dataclass(eq=False)
class GraphRunner:
    """Runs the graphs of a model, and keeps their compiled programs.

    max_bytes: the largest size of a result. precision: of matrix products, as for `jax.default_matmul_precision`; None
    for the caller's. stored: a cache of programs for other processes. buckets: name of an input's size → calls round
    the size up to a multiple of this number. cuts: node → its operator, and why a piece ended there. unserved: the
    buckets without a program. host_parts: what NumPy computes before a program runs. places: where a rule of
    `jaxops.sharding` put the parameters. places_of_parts: where it puts the parts of those that have some.
    """

    max_bytes: int
    precision: str | None = None
    stored: ProgramCache | None = None
    buckets: Mapping[str, int] = field(default_factory=dict)
    cuts: dict[str, str] = field(default_factory=dict)
    unserved: set[Any] = field(default_factory=set)
    host_parts: HostParts = field(default_factory=HostParts)
    places: Places = field(default_factory=dict)
    places_of_parts: Mapping[str, NamedSharding] = field(default_factory=dict)
    _rounding: Rounding = field(default_factory=Rounding)

    def __post_init__(self) -> None:
        try:
            with jax.default_matmul_precision(self.precision):
                pass
        except ValueError as error:
            raise ArgumentError(f"`precision` is {self.precision!r}; jax.default_matmul_precision: {error}") from error

    def __reduce__(self) -> Any:
        # Compiled functions cannot be pickled, and a copy may run other graphs.
        fields = self.max_bytes, self.precision, self.stored, self.buckets, dict(self.cuts)
        return functools.partial(GraphRunner, places=self.places, places_of_parts=self.places_of_parts), fields

    @cached_property
    def compiled(self) -> Any:
        """The jitted function of (graph, first node, end, whether it may be cut, parameters, operands, key) that runs a
        piece: returns the node at which it stopped, and values by name.

        few_scores: whether its gradient should keep no scores of long attention.
        """
        # The function must not refer to self: in a cycle, weights would stay in memory until Python collects garbage.
        cuts, places = self.cuts, self.places

        def piece(
            graph: Graph,
            start: int,
            end: int,
            cut: bool,
            params: Any,
            operands: Any,
            rng: Any,
            few_scores: bool = False,
        ) -> Any:
            def run(params: Any, operands: Any, rng: Any) -> Any:
                return under_auto_axes(_piece, cuts, graph, start, end, cut, params, operands, rng, like=operands)

            with runs_here():
                params = placed(params, places)
                if isinstance(operands, Rounded):
                    return StoppedAt(end), run_rounded(graph, params, operands, rng)
                return keeping_few_scores(run, params, operands, rng) if few_scores else run(params, operands, rng)

        return jax.jit(piece, static_argnums=(0, 1, 2, 3), static_argnames="few_scores")

    @cached_property
    def specialized(self) -> SpecializedCalls:
        """The specialized programs."""
        return SpecializedCalls(self.compiled, self.stored)

    @cached_property
    def in_pieces(self) -> CallsInPieces:
        """The programs that read weights in parts, on a mesh."""
        return CallsInPieces(self.compiled, self.places_of_parts)

    def outputs(
        self, graph: Graph, first: tuple[StoppedAt, Any], inputs: Any, params: Mapping[str, Any], rng: Any
    ) -> list[Any]:
        """Returns the outputs of a graph after its first piece. first: the result of `compiled` from node 0."""
        stop, values = first[0].value, cropped(first[1], inputs)
        if stop < len(graph.nodes):
            local, params = {**unwrap(inputs), **unwrap(values)}, named_arrays(params)
            _forget(graph, 0, stop, local)
            return under_auto_axes(self._run_from, graph, stop, True, local, params, rng, like=inputs)
        # In a complete run, a `Deferred` stays: `to_outputs` makes the list of dictionaries that it stands for.
        local = unwrap(values, deferred=False)
        if missing := [name for name in graph.output_names if name not in local]:
            local |= unwrap({name: inputs[name] for name in missing if name in inputs})
            params = named_arrays(params)
        return _outputs(graph, local, params)

    def run(
        self,
        graph: Graph,
        operands: Mapping[str, Any],
        params: Mapping[str, Any],
        rng: Any,
        outer: _Scope | None = None,
    ) -> list[Any]:
        """Returns the outputs of a subgraph or function that runs after a cut. outer: values that it may capture."""
        local = dict(operands)
        if outer is not None:
            # The number of an iteration is data: if it were static, the body would be compiled for each iteration.
            local = {name: as_data(value) for name, value in operands.items()}
            local |= {name: exact(outer[name]) for name in graph.captures if name in outer}
        if tracing() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(local)):
            return run_graph_counted(graph, operands, params, rng, outer)
        return self._run_from(graph, 0, False, local, params, rng)

    def _run_from(
        self, graph: Graph, start: int, cut: bool, local: dict[str, Any], params: Mapping[str, Any], rng: Any
    ) -> list[Any]:
        """Returns the outputs of a graph, starting at a node. cut: whether this node needs a value."""
        scope = scope_of(graph, local, params)
        while start < len(graph.nodes):
            node = graph.nodes[start]
            if cut:
                explain(graph.name, f"cut before {node.title}", self.cuts.get(node.label, "it needs a value"))
            inputs = [scope[name] if name else None for name in node.inputs]
            light = _is_light(node, inputs)
            if cut or light:
                stop, cut = start + 1, False
                key = _key(rng, graph.number(start), node)
                local.update(_named(node, self._run_eagerly(node, inputs, light, scope, params, key)))
            else:
                known = exact(local) if graph.bounded else local
                stop, values = self._compiled_from(
                    graph, start, {name: as_argument(value) for name, value in known.items()}, params, rng
                )
                cut = True  # a piece ends at a node that needs a value
                local.update(values)
            _forget(graph, start, stop, local)
            start = stop
        return _outputs(graph, local, params)

    def _compiled_from(
        self, graph: Graph, start: int, operands: Mapping[str, Any], params: Mapping[str, Any], rng: Any
    ) -> tuple[int, dict[str, Any]]:
        """Runs a piece after a cut; returns the index of the node where it ends, and the values that it computed."""
        plan = self._rounding.plan(graph, start, operands, params)
        if plan is None:
            stop, values = self.compiled(graph, start, len(graph.nodes), True, params, operands, rng)
            return stop.value, unwrap(values)
        if plan.stop == start:
            return start, {}
        if plan.mixes:
            return plan.stop, self._rounding.run(plan, operands, params)
        stop, values = self.compiled(graph, start, plan.stop, True, params, plan.padded(operands), rng)
        return stop.value, plan.cropped(unwrap(values))

    def _run_eagerly(
        self, node: Node, inputs: Sequence[Any], light: bool, scope: _Scope, params: Mapping[str, Any], rng: Any
    ) -> Sequence[Any]:
        """Returns the outputs of a node whose operands are known. They are data, or static if all operands are.

        light: whether NumPy computes the node.
        """
        inputs = list(map(exact, inputs))
        if node.operator.bounded:
            return run_node_counted(node, list(map(as_operand, inputs)), rng)
        if light:
            try:
                results = run_node(node, list(map(on_host, inputs)), params, rng, scope, self.run)
                return results if _are_static(node, inputs) else list(map(as_data, results))
            except JaxopsError:
                # With x64 off, an int64 operand may be an int32 array, which does not match an int64 array in NumPy. As
                # JAX arrays, below, both are int32.
                pass
        return [as_data(y) for y in run_node(node, [as_operand(x) for x in inputs], params, rng, scope, self.run)]


def _piece(
    cuts: dict[str, str], graph: Graph, start: int, end: int, cut: bool, params: Any, operands: Any, rng: Any
) -> tuple[StoppedAt, dict[str, Any]]:
    """Runs a piece, inside `jit`. Returns the index of the node where it ends, and the values that later nodes need.

    cuts: gets the name of the node where the piece ends, its operator and the reason.
    """
    step(f"from {graph.nodes[start].title}" if start else "")

    def computed(params: Any, operands: Any, rng: Any) -> tuple[StoppedAt, dict[str, Any]]:
        local: dict[str, Any] = {}
        values = ChainMap(local, *scope_of(graph, unwrap(operands), params).maps)

        def walk(start: int, end: int) -> int:
            for index, node in enumerate(graph.nodes[start:end], start):
                inputs = [values[name] if name else None for name in node.inputs]
                token = CUTTABLE.set(cut)
                try:
                    outputs = run_node(node, inputs, params, _key(rng, graph.number(index), node), values)
                except (*UNKNOWN, JaxopsError) as error:
                    if not (cut and _may_need_data(node, error)):
                        raise
                    cuts[node.label] = f"{node.operator.name}: {_reason(error)}"
                    return index
                finally:
                    CUTTABLE.reset(token)
                local.update(_named(node, outputs))
                _forget(graph, index, index + 1, local)
            return end

        return StoppedAt(in_sections(graph, start, end, local, walk)), local

    if not (graph.bounded if cut else graph.sized_by_data):
        stop, local = computed(params, operands, rng)
        return stop, _as_static(local)
    stop, local = run_counted(computed, params, operands, rng, automatic=not cut)
    return stop, padded(local) if stop.value == len(graph.nodes) else local


def _outputs(graph: Graph, local: dict[str, Any], params: Mapping[str, Any]) -> list[Any]:
    scope: Any = local
    if any(name not in local for name in graph.output_names):
        scope = {**scope_of(graph, local, params), "": None}
    return [as_operand(padded(scope[name])) for name in graph.output_names]


def _named(node: Node, outputs: Sequence[Any]) -> dict[str, Any]:
    return {name: value for name, value in zip(node.outputs, outputs, strict=False) if name}


def _forget(graph: Graph, start: int, stop: int, local: dict[str, Any]) -> None:
    """Deletes the values that no node from `stop` on reads."""
    for names in graph.dead_after[start:stop]:
        for name in names:
            local.pop(name, None)


def _reason(error: Exception) -> str:
    """Returns the first line of an error, without the name of the operator."""
    text = str(error).splitlines()[0]
    return text.removeprefix(f"{error.op}: ") if isinstance(error, JaxopsError) else text


def _may_need_data(node: Node, error: Exception) -> bool:
    """Returns True if a node that raised may succeed with known operands: it needs a value, or has an inner graph."""
    return isinstance(error, UNKNOWN) or bool(node.subgraphs or node.body)


def _is_light(node: Node, inputs: Sequence[Any]) -> bool:
    """Returns True if NumPy computes a node in less time than compiling it would take."""
    if not node.operator.foldable or node.operator.bounded or node.body:
        return False
    return sum(map(_size, _read(node, inputs))) <= _MANY


def _are_static(node: Node, inputs: Sequence[Any]) -> bool:
    """Returns True if a foldable node reads nothing but static values."""
    return not any(isinstance(x, jax.Array | Data) for value in _read(node, inputs) for x in leaves_of(value))


def _read(node: Node, inputs: Sequence[Any]) -> list[Any]:
    """Returns the operands of which a node reads more than the sizes."""
    mark = node.operator.mark
    return [x for k, x in enumerate(inputs) if mark(k) != SHAPE_ONLY]


def _size(value: Any) -> int:
    """Returns the number of elements of a value, or of all arrays of a sequence."""
    return sum([math.prod(x.value.shape if type(x) is Data else x.shape) for x in leaves_of(value)])


def _key(rng: Any, number: int, node: Node) -> Any:
    return jax.random.fold_in(rng, number) if rng is not None and node.draws else None


def _as_static(values: Any) -> Any:
    """Returns values in the form of results of `jit`: NumPy arrays as `StaticValue`."""
    return jax.tree.map(lambda x: StaticValue(x) if isinstance(x, np.ndarray) else x, as_operand(values))
