"""A model as a table by module: its outputs, the number of parameters, FLOPs, seconds."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_traced, is_string
from jaxops.errors import ArgumentError, StaticError
from jaxops.graph.interpreter import run_graph, unwrap
from jaxops.graph.liveness import results_of
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.lazy_sequences import SplitSequence
from jaxops.progress import progress, step
from jaxops.runtime.arguments import to_operand
from jaxops.static import UNKNOWN, StaticValue
from jaxops.tools.inspect import fitting_sizes
from jaxops.tools.inspect.flops import of_equation
from jaxops.tools.inspect.modules import inputs_of, modules, parameters
from jaxops.tools.inspect.tables import Report, Table, count_text

_REPEAT = 10


@dataclass(frozen=True)
class Row:
    """A module: its path, its depth, and sums over its nodes, including those of inner modules.

    output: the last tensor that nodes outside read. flops: None if sizes depend on data. seconds: None if not measured.
    """

    module: str
    level: int
    nodes: int
    output: str
    parameters: int
    flops: float | None
    seconds: float | None = None


@dataclass(frozen=True, repr=False)
class Summary(Report):
    """The modules of a model, a row for each. The first row is the whole model; inner modules come below it.

    >>> print(Summary("digits", (Row("net", level=0, nodes=2, output="float32[1, 10]", parameters=650, flops=1290.0),)))
    digits
    <BLANKLINE>
     module   nodes   output           parameters    FLOPs
     ─────────────────────────────────────────────────────
     net          2   float32[1, 10]          650   1.29 k
    """

    title: str
    rows: tuple[Row, ...]

    def _table(self) -> Table:
        timed = any(row.seconds is not None for row in self.rows)
        columns = ["module", "nodes", "output", "parameters", "FLOPs", *(["time"] if timed else [])]
        lines = []
        for row in self.rows:
            cells = ["  " * row.level + row.module, str(row.nodes), row.output, f"{row.parameters:,}"]
            cells.append(count_text(row.flops))
            if timed:
                cells.append("–" if row.seconds is None else f"{row.seconds * 1e3:.3f} ms")
            lines.append(cells)
        return Table([self.title], columns, lines, right=("nodes", "parameters", "FLOPs", "time"))


def summarize(
    graph: Graph,
    weights: Mapping[str, Any],
    inputs: Mapping[str, Any],
    *,
    depth: int,
    title: str,
    computed: Callable[[], Mapping[str, Any]] | None = None,
) -> Summary:
    """The table. weights, inputs: parameters and inputs by name, as arrays or as shapes and types.

    computed: returns every tensor, for a model in which sizes depend on data; its operations are not counted.
    Raises ArgumentError for a negative depth, and the exceptions of tracing.
    """
    if depth < 0:
        raise ArgumentError(f"summary: depth is {depth}; it must be at least 0")
    flops: list[float] | None = None
    try:
        shapes, program = traced(graph, weights, inputs)
        flops = _flops(graph, program)
    except UNKNOWN:
        if computed is None:
            raise
        shapes = {name: shape_text(value) for name, value in computed().items()}
    return Summary(title, tuple(_rows(graph, weights, shapes, flops, depth)))


def timed(summary: Summary, graph: Graph, params: Mapping[str, Any], values: Mapping[str, Any], depth: int) -> Summary:
    """The table with times. values: each tensor of the graph, by name.

    The nodes of a module are compiled alone and called with the tensors that they read in the complete model; the time
    is the best of ten calls. XLA cannot fuse across modules then, so their sum may be larger than the time of the
    model.
    """
    rows = []
    with progress(f"measuring {graph.name or 'a model'}", begun=False):
        for number, (row, (_, nodes, _)) in enumerate(zip(summary.rows, _groups(graph, depth), strict=True), 1):
            step(f"module {number} of {len(summary.rows)}: {row.module}")
            rows.append(dataclasses.replace(row, seconds=_seconds(graph, nodes, params, values)))
    return dataclasses.replace(summary, title=f"{summary.title} · time: each module compiled alone", rows=tuple(rows))


def traced(graph: Graph, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> tuple[dict[str, str], Any]:
    """Traces the graph once; returns (shape and type of each tensor, the program). Scopes of equations have the number
    of their node."""
    shapes: dict[str, str] = {}
    numbered = tuple(dataclasses.replace(n, name="", scope=str(k)) for k, n in enumerate(graph.nodes))
    names = [name for node in graph.nodes for name in node.outputs if name]
    numbered_graph = dataclasses.replace(
        graph, nodes=numbered, outputs=tuple(Value(name, None, None) for name in names)
    )
    static = {name: value for name, value in inputs.items() if isinstance(value, StaticValue)}
    arrays = {name: value for name, value in inputs.items() if name not in static}

    def program(weights: Any, arrays: Any) -> list[Any]:
        tensors = run_graph(numbered_graph, unwrap({**static, **arrays}), weights, _key(graph))
        shapes.update((name, shape_text(y)) for name, y in zip(names, tensors, strict=True))
        return [leaf for leaf in jax.tree.leaves(tensors) if isinstance(leaf, jax.Array)]

    return shapes, jax.make_jaxpr(program)(dict(weights), arrays)


def _flops(graph: Graph, program: Any) -> list[float]:
    """The operations of each node."""
    counts = [0.0] * len(graph.nodes)
    for equation in program.eqns:
        number = str(equation.source_info.name_stack).partition("/")[0]
        if number.isdecimal():
            counts[int(number)] += of_equation(equation)
    return counts


def example(
    graph: Graph,
    weights: Mapping[str, Any],
    formals: Sequence[Value],
    sizes: Mapping[str, int],
    subject: str,
    arrays: Mapping[str, Any],
) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types in place of inputs; arguments and errors as in `fitting.example`."""
    entered = {v.name: to_operand(v, arrays[v.name]) for v in formals if v.name in arrays}

    def trace(shapes: Mapping[str, Any]) -> list[Any]:
        return [result.shape for result in traced(graph, weights, {**shapes, **entered})[1].out_avals]

    return fitting_sizes.example(formals, sizes, subject, trace, arrays)


def symbolic(graph: Graph, weights: Mapping[str, Any], formals: Sequence[Value]) -> dict[str, str]:
    """Shape and type of each tensor, with symbolic sizes; empty if the model cannot be traced with these."""
    try:
        shapes = fitting_sizes.symbolic(formals, "plot", lambda values: traced(graph, weights, values)[0])
    except (ArgumentError, StaticError):
        return {}
    return shapes or {}


def shape_text(value: Any) -> str:
    """The type and shape of a value, such as float32[2, 3]."""
    if isinstance(value, list | tuple):
        return f"{len(value)} × {shape_text(value[0])}" if value else "empty sequence"
    if isinstance(value, SplitSequence):
        return f"pieces of {shape_text(value.data)}"
    if not hasattr(value, "dtype"):
        return type(value).__name__
    name = "string" if value.dtype == object else np.dtype(value.dtype).name
    return f"{name}[{', '.join(map(str, value.shape))}]"


def _groups(graph: Graph, depth: int) -> list[tuple[tuple[str, ...], list[Node], list[int]]]:
    """(module below the root, its nodes, their numbers), the whole model first, modules in the order of their nodes."""
    tree = modules(graph)
    numbers_of: dict[tuple[str, ...], list[int]] = {(): list(range(len(graph.nodes)))}
    for index, node in enumerate(graph.nodes):
        inside = tree.of(node, depth)
        for level in range(1, len(inside) + 1):
            numbers_of.setdefault(inside[:level], []).append(index)
    # A module comes before its inner modules, which are in the order of their first nodes.
    order = sorted(numbers_of, key=lambda key: [numbers_of[key[:level]][0] for level in range(1, len(key) + 1)])
    return [(key, [graph.nodes[k] for k in numbers_of[key]], numbers_of[key]) for key in order]


def _rows(
    graph: Graph, weights: Mapping[str, Any], shapes: Mapping[str, str], flops: Sequence[float] | None, depth: int
) -> list[Row]:
    tree = modules(graph)
    rows = []
    for key, nodes, numbers in _groups(graph, depth):
        used: set[str] = set()
        for node in nodes:
            used |= parameters(node, graph)
        outputs = [shapes[name] for name in results_of(nodes, graph) if name in shapes]
        data = [text for text in outputs if not text.startswith(("int", "bool"))]
        rows.append(
            Row(
                module=(tree.path(()) or graph.name or "model") if not key else key[-1],
                level=len(key),
                nodes=len(nodes),
                output=(data or outputs or [""])[-1],
                parameters=sum(math.prod(weights[name].shape) for name in used if name in weights),
                flops=None if flops is None else sum(flops[k] for k in numbers),
            )
        )
    return rows


def _seconds(graph: Graph, nodes: Sequence[Node], params: Mapping[str, Any], values: Mapping[str, Any]) -> float | None:
    """The time of some nodes, compiled together; None if they cannot be compiled without data."""
    arrays, static = {}, {}
    for name in inputs_of(nodes):
        if name in values:
            is_static = not isinstance(values[name], jax.Array) and isinstance(values[name], np.ndarray)
            (static if is_static else arrays)[name] = values[name]
    array_outputs = [
        name
        for name in results_of(nodes, graph)
        if name in values and all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(values[name]))
    ]
    outputs = tuple(Value(name, None, None) for name in array_outputs)
    part = dataclasses.replace(graph, inputs=(), outputs=outputs, nodes=tuple(nodes))
    used = {name for node in nodes for name in parameters(node, graph)} | set(graph.params.values())

    def program(params: Any, arrays: Any) -> list[Any]:
        return [as_traced(y) for y in run_graph(part, {**static, **arrays}, params, _key(part)) if not _is_text(y)]

    compiled = jax.jit(program)
    weights = {name: params[name] for name in used if name in params}
    try:
        jax.block_until_ready(compiled(weights, arrays))
    except UNKNOWN:
        return None
    return best_of(lambda: compiled(weights, arrays))


def best_of(call: Any) -> float:
    """The seconds of the fastest of ten calls, each until its result is computed."""
    seconds = []
    for _ in range(_REPEAT):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _key(graph: Graph) -> Any:
    """A random key if nodes draw random numbers; None otherwise."""
    return jax.random.key(0) if graph.draws else None


def _is_text(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_string(value)
