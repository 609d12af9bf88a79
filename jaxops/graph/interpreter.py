"""Runs a graph node by node: calls the operators on arrays or, under `jit`, on tracers."""

import functools
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

from jaxops.dtypes import as_traced
from jaxops.errors import (
    JaxopsError,
    SignatureError,
    SizeError,
    StaticError,
    TooLargeError,
    UnboundedError,
    UnsupportedError,
    amount,
    describe,
    symbols_in,
)
from jaxops.graph.bounds import COUNTED_SIZES, outputs_of
from jaxops.graph.nodes import Graph, Node
from jaxops.jax_internals import first_line, question
from jaxops.memory import bounded_operands, bounded_results, bounded_together
from jaxops.meshes import whole_along
from jaxops.opaque import Deferred
from jaxops.shown_text import clean
from jaxops.signature import SHAPE_ONLY
from jaxops.signature_errors import errors_of
from jaxops.static import UNKNOWN, StaticValue, Undecided, is_concrete, is_symbolic, tracing

# The exceptions that JAX and Chex raise for an operation that they support for numbers, but not for symbolic sizes.
_OF_JAX = (Undecided, TypeError, ValueError, NotImplementedError, AssertionError)


class ConstraintSearch(Protocol):
    """Decides comparisons of symbolic sizes that JAX cannot decide, by assuming limits of the sizes."""

    def assume(self, error: SizeError) -> bool:
        """Assumes a limit of the sizes that an error asks for; returns True if the node that raised may run again."""
        ...

    def refresh(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Returns operands with their sizes under the limits assumed since the operands were computed."""
        ...


# Runs nodes from one position up to another; returns the position at which it stopped.
Walk = Callable[[int, int], int]
# Set while an export, a summary or a plot searches for the limits of a model's sizes.
SIZE_CONSTRAINTS: ContextVar[ConstraintSearch | None] = ContextVar("SIZE_CONSTRAINTS", default=None)
# The limit of nodes in the bodies of functions: more take many minutes to compile. In a file of 31 functions, each of
# which calls the next one twice, there are 2^30.
_MOST_CALLED = 1 << 16
# The number of nodes in a section of a long graph; each section is a function. XLA:CPU fuses any number of elementwise
# operations, and recurses through a fusion: compiling a chain of 16,000 additions takes very long, one of 40,000 ends
# the process.
_FUSED = 2500
# The most operands that a node of a graph that is compiled as one function computes with.
_WIDE = 1000
# Upper bound on inlined function nodes, per node of the graph.
PER_NODE = 64


def check_called(graph: Graph, name: str = "") -> None:
    """Raises UnsupportedError for a graph with too many nodes after inlining. name: of the function that it defines."""
    most = _MOST_CALLED + PER_NODE * len(graph.nodes)
    if graph.inlined_nodes > most:
        bodies = {node.operator.name: node.body.inlined_nodes for node in graph.nodes if node.body is not None}
        name = name or max(bodies, key=bodies.__getitem__, default="the model")
        raise UnsupportedError(
            f"{name}: inlining all function calls gives {graph.inlined_nodes} nodes; the limit is {most}"
        )


def run_graph(
    graph: Graph,
    inputs_by_name: Mapping[str, Any],
    params: Mapping[str, Any],
    rng: Any,
    outer: ChainMap[str, Any] | None = None,
    run: Callable[..., Sequence[Any]] | None = None,
) -> list[Any]:
    """The outputs of a graph.

    inputs_by_name: its inputs, which may replace initializers. params: the model's parameters. rng: a key for nodes
    that draw random numbers, or None. outer: the values that the graph may capture. run: the function that runs a node;
    `run_node` by default. A value is deleted after the last node that reads it.
    """
    local = {
        **graph.static,
        **{name: params[param] for name, param in graph.params.items() if name not in inputs_by_name},
        **inputs_by_name,
    }
    check_called(graph)
    values = ChainMap(local, *(outer.maps if outer else ()))

    def walk(start: int, stop: int) -> int:
        for index in range(start, stop):
            node = graph.nodes[index]
            inputs = [values[name] if name else None for name in node.inputs]
            key = jax.random.fold_in(rng, graph.number(index)) if rng is not None and node.draws else None
            outputs = (run or run_node)(node, inputs, params, key, values)
            local.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)
            del inputs, outputs
            for name in graph.dead_after[index]:
                del local[name]
        return stop

    in_sections(graph, 0, len(graph.nodes), local, walk)
    return [values[value.name] if value.name else None for value in graph.outputs]


def is_long(graph: Graph) -> bool:
    """Returns True if a graph is compiled in sections: on a CPU only, as other platforms inline all functions.

    An operator of very many operands makes sections of its own (`jaxops.ops.common.elementwise`).
    """
    is_large = len(graph.nodes) + graph.inlined_nodes > 4 * _FUSED or graph.most_operands > _WIDE
    return is_large and jax.default_backend() == "cpu"


def in_sections(graph: Graph, start: int, stop: int, local: dict[str, Any], walk: Walk) -> int:
    """Runs `walk(start, stop)`, which runs these nodes, writes their results into `local`, and returns the position at
    which it stopped.

    A long graph is traced in sections, each a separate function, so that XLA does not fuse too many nodes. The nodes of
    a block, which a derivative recomputes, are a separate function, too.
    """
    if not tracing():
        return walk(start, stop)

    def walk_blocks(start: int, stop: int) -> int:
        for first, last in graph.block_runs(start, stop):
            is_block = bool(graph.nodes[first].block)
            reached = _as_function(graph, first, last, local, walk, True) if is_block else walk(first, last)
            if reached < last:
                return reached
        return stop

    for first, last in _sections(graph, start, stop) if is_long(graph) else ():
        reached = _as_function(graph, first, last, local, walk_blocks, False)
        if reached < last:
            return reached
    return stop if is_long(graph) else walk_blocks(start, stop)


def _as_function(graph: Graph, first: int, last: int, local: dict[str, Any], walk: Walk, is_block: bool) -> int:
    """Runs `walk(first, last)` as a function that XLA does not inline; returns the position at which it stopped.

    is_block: whether a derivative recomputes the function.
    """
    reached, before = first, dict(local)

    def section() -> dict[str, Any]:
        nonlocal reached
        with set_xla_metadata(inlineable=None):  # functions that are called inside may be inlined
            reached = walk(first, last)
        new_values = {name: value for name, value in local.items() if before.get(name) is not value}
        return jax.tree.map(lambda x: StaticValue(x) if isinstance(x, np.ndarray) else x, new_values)

    # In one function, XLA:CPU would merge the recomputation with the first computation, and keep the results after all.
    # But it changes convolutions to their fast layout in the main function only, so blocks with convolutions are
    # inlined: otherwise a training step of ResNet-50 would take many times as long.
    inlined = is_block and any(map(_is_dense_convolution, graph.nodes[first:last]))
    with set_xla_metadata(inlineable=None if inlined else "false"):
        local.update(unwrap(jax.jit(jax.checkpoint(section) if is_block else section)()))
    return reached


def _is_dense_convolution(node: Node) -> bool:
    return node.operator.traits.kind == "convolution" and node.attributes.get("group", 1) == 1


def _sections(graph: Graph, start: int, stop: int) -> list[tuple[int, int]]:
    """Divides a range of nodes: (start, stop) of each section."""
    sections, first, count = [], start, 0
    for index in range(start, stop):
        body = graph.nodes[index].body
        more = 1 if body is None else len(body.nodes) + body.inlined_nodes
        if count and count + more > _FUSED:
            sections.append((first, index))
            first, count = index, 0
        count += more
    return [*sections, (first, stop)]


def run_node(
    node: Node,
    inputs: Sequence[Any],
    params: Mapping[str, Any],
    rng: Any,
    values: ChainMap[str, Any] | None = None,
    runs: Callable[..., list[Any]] | None = None,
) -> Sequence[Any]:
    """The outputs of a node, given its inputs (None for an omitted one) and the values that its subgraphs may capture.

    runs: the function that runs its subgraphs, or the body of a function; `run_graph` by default.
    """
    search, runs = SIZE_CONSTRAINTS.get(), runs or run_graph
    while True:
        try:
            return _attempt(node, search.refresh(inputs) if search else inputs, params, rng, values, runs or run_graph)
        except SizeError as error:
            if search is None or not search.assume(error):
                raise


def _attempt(node: Node, inputs: Sequence[Any], params: Any, rng: Any, values: Any, runs: Any) -> Sequence[Any]:
    try:
        if not tracing():  # there is no program that could show the name
            return _evaluate(node, inputs, params, rng, values, runs)
        with jax.named_scope(node.traced_as):
            return _evaluate(node, inputs, params, rng, values, runs)
    except _OF_JAX as error:
        symbolic = _symbolic_sizes(inputs)
        if isinstance(error, (JaxopsError, *UNKNOWN)) or not (symbolic or isinstance(error, Undecided)):
            if isinstance(error, StaticError) and not error.node and values is not None:
                error.node = node.label  # values is None for a call of one operator
                if isinstance(error, UnboundedError):
                    error.operator = node.operator.name
            error.add_note(_context(node, inputs))
            raise
        problem = open_question(node.operator.name, error, symbolic)
        problem.add_note(_context(node, inputs))
        raise problem from error
    except Exception as error:
        if isinstance(error, MemoryError | OverflowError | RecursionError) and not isinstance(error, JaxopsError):
            # NumPy and JAX raise these for huge sizes, and for symbolic sizes of a thousand operations.
            problem = TooLargeError(f"{node.operator.name}: {error}")
            problem.add_note(_context(node, inputs))
            raise problem from error
        error.add_note(_context(node, inputs))
        raise


def open_question(op: str, error: BaseException, symbolic: Sequence[Any]) -> SizeError:
    """An error of JAX as an error about sizes. symbolic: the sizes of the operation that raised it."""
    text = first_line(error)
    if asked := question(error):
        return SizeError(f"{op}: {text}", *asked[:-1], needs=asked[-1])
    symbols = symbols_in(*symbolic)
    return SizeError(f"{op}: {text}", *[symbol for symbol in symbols_in(text) if symbol in symbols], *symbols)


def _symbolic_sizes(values: Sequence[Any]) -> list[Any]:
    """The symbolic sizes in the shapes of values, and among the elements of NumPy arrays."""
    leaves = [v for v in jax.tree.leaves(list(values)) if hasattr(v, "shape")]
    sizes = [
        d for v in leaves for d in (*v.shape, *(v.flat if isinstance(v, np.ndarray) and v.dtype == object else ()))
    ]
    return [d for d in sizes if is_symbolic(d)]


def _evaluate(node: Node, inputs: Sequence[Any], params: Any, rng: Any, values: Any, runs: Any) -> Sequence[Any]:
    operator = node.operator
    if node.body is None:  # a body may ask for the shape of an operand alone
        read = (x for k, x in enumerate(inputs) if operator.mark(k) != SHAPE_ONLY)
        bounded_operands(read, f"{operator.name}: a static value")
    operator.check(inputs)
    body = node.body or operator.body(node, inputs)
    if body is not None:
        inputs_by_name: dict[str, Any] = dict.fromkeys(value.name for value in body.inputs)
        inputs_by_name |= {value.name: x for value, x in zip(body.inputs, inputs, strict=False)}
        return runs(body, inputs_by_name, params, rng)
    attributes, sizes = dict(node.attributes), COUNTED_SIZES.get()
    border = sizes.border(node) if sizes and node.subgraphs and node.sized_by_data else None
    for name, graph in node.subgraphs.items():
        attributes[name] = functools.partial(_subgraph, runs, graph, params, values, rng=rng)
        if border:
            attributes[name] = border.inside(name, attributes[name])
        # The inputs and outputs as the model declares them, and the node for messages.
        attributes[name].inputs, attributes[name].outputs = graph.inputs, graph.outputs
        attributes[name].node = node.label
    outputs = outputs_of(node, inputs, attributes, rng)
    outputs = border.outside(outputs) if border else outputs
    if node.whole_axis is not None:
        rank = np.ndim(outputs[0])  # the caches beside the result of an attention may have another one
        outputs = [whole_along(node.whole_axis, y) if getattr(y, "ndim", -1) == rank else y for y in outputs]
    operator.check_results(outputs)
    bounded_results(jax.tree.leaves(outputs), operator.name)
    if values is not None:
        bounded_together(outputs, values.values(), operator.name)
    if len(outputs) < len(node.outputs):
        returned = amount(len(outputs), "output")
        raise SignatureError(f"{operator.name}: returned {returned}, but the node has {len(node.outputs)}")
    return outputs


def _subgraph(runs: Any, graph: Graph, params: Any, values: Any, *inputs: Any, rng: Any) -> list[Any]:
    """Runs a subgraph, which may read its inputs and all values that the enclosing graphs have computed so far."""
    inputs_by_name = {value.name: x for value, x in zip(graph.inputs, inputs, strict=True)}
    token = SIZE_CONSTRAINTS.set(None)  # a branch that may not be taken assumes no limits: its node does
    try:
        with errors_of(""):  # such an error names its node's operator, not the one that has the subgraph
            return runs(graph, inputs_by_name, params, rng, values)
    finally:
        SIZE_CONSTRAINTS.reset(token)


def _context(node: Node, inputs: Sequence[Any]) -> str:
    """The note of an error with its node: name, operator, opset and operands."""
    formals = node.operator.formals
    lines = [f"in node '{clean(node.label)}' ({clean(node.operator.label)})"]
    for position, (name, value) in enumerate(zip(node.inputs, inputs, strict=True)):
        formal = formals[min(position, len(formals) - 1)] if formals else str(position)
        lines.append(f"  {formal:<7} '{clean(name)}' {describe(value)}")
    return "\n".join(lines)


def scope_of(graph: Graph, local: dict[str, Any], params: Mapping[str, Any]) -> ChainMap[str, Any]:
    """The values by name: those in `local`, parameters and static values."""
    return ChainMap(local, {name: params[param] for name, param in graph.params.items()}, dict(graph.static))


def unwrap(values: Mapping[str, Any], *, deferred: bool = True) -> dict[str, Any]:
    """Values by name, in the form that operators take, in sequences too: the content of each `StaticValue` and
    `Deferred`, and JAX arrays for inputs that are NumPy arrays. deferred: False leaves a `Deferred` as it is."""
    if all(map(is_concrete, values.values())):
        return dict(values)
    wrapped = StaticValue | Deferred

    def content(v: Any) -> Any:
        if isinstance(v, wrapped):
            return v.value if deferred or isinstance(v, StaticValue) else v
        return as_traced(v) if type(v) is np.ndarray else v

    return jax.tree.map(content, dict(values), is_leaf=lambda v: isinstance(v, wrapped))
