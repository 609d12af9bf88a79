"""Runs what makes results of data-dependent size as one program, in which no operation sees padding as data.

The program is traced with a symbol for the number of true elements of each such result, and then run on arrays that
have room for its bound (`jaxops.compiler.padded`). An operator without a bound has the largest size that it can have
for any data, as long as no output of the program has this size.
"""

import functools
from collections import ChainMap
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.compiler.primitives import symbolic_sizes
from jaxops.dtypes import as_traced
from jaxops.errors import JaxopsError, UnboundedError, UnsupportedError, symbols_in
from jaxops.graph.bounds import COUNTED_SIZES
from jaxops.graph.interpreter import SIZE_CONSTRAINTS, run_graph, run_node, unwrap
from jaxops.graph.nodes import Graph, Node
from jaxops.jax_internals import jaxpr_as_fun
from jaxops.lazy_sequences import SplitSequence
from jaxops.runtime.counted_assumptions import Assumptions
from jaxops.runtime.counted_symbols import CountedSymbols
from jaxops.runtime.host_data import Data
from jaxops.static import StaticValue, Undecided, is_symbolic, tracing


class PaddingError(UnsupportedError):
    """An operation that cannot leave out the padding of a result with a bound."""


class Counted(NamedTuple):
    """A padded result. sizes: axis → its true size."""

    array: Any
    sizes: Mapping[int, Any]


def run_counted(fn: Callable[..., Any], *arguments: Any, automatic: bool) -> Any:
    """Returns `fn(*arguments)` with a `Counted` for each array that has padding.

    arguments: pytrees of arrays. automatic: whether the program may be differentiated, and whether an operator without
    a bound gets its largest size.

    Raises UnboundedError for an output that needs a bound, PaddingError for an operation that cannot leave out the
    padding, and what `fn` raises.
    """
    leaves, tree = jax.tree.flatten(arguments)
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    scope = next((d.scope for x in leaves for d in x.shape if is_symbolic(d)), None)
    sizes = CountedSymbols(automatic, scope)
    closed = functools.partial(_closed, made=sizes.made)
    tokens = COUNTED_SIZES.set(sizes), SIZE_CONSTRAINTS.set(Assumptions(sizes, SIZE_CONSTRAINTS.get()))
    try:
        program, types = jax.make_jaxpr(lambda *arguments: jax.tree.map(closed, fn(*arguments)), return_shape=True)(
            *jax.tree.unflatten(tree, specs)
        )
    except (JaxopsError, Undecided) as error:
        if any(symbol in f"{error} {getattr(error, '__notes__', '')}" for symbol in sizes.made):
            raise _explained(error, sizes) from error
        raise
    finally:
        COUNTED_SIZES.reset(tokens[0])
        SIZE_CONSTRAINTS.reset(tokens[1])
    types, tree = jax.tree.flatten(types)
    if not sizes.made:
        return jax.tree.unflatten(tree, jaxpr_as_fun(program)(*leaves))
    for symbol in symbols_in(*(d for y in types for d in y.shape)):
        if symbol in sizes.made and sizes.made[symbol].error is not None:
            raise sizes.made[symbol].unbounded()
    outer = sizes.outer(*symbolic_sizes(program.jaxpr), *(d for x in leaves for d in x.shape))
    true = {name: as_traced(np.asarray(size, object)) for name, size in outer.items()}
    try:
        rooms = sizes.rooms(program)
        capacity = Capacity(true, {**outer, **sizes.most}, rooms, frozenset(outer), differentiable=automatic)
        results = run_padded(program, leaves, capacity)
    except UnsupportedError as error:
        raise _explained(error, sizes) from error

    def result(x: Any, type: Any) -> Any:
        axes = [axis for axis, size in enumerate(type.shape) if capacity.varies(size)]
        known = {axis: capacity.count(type.shape[axis]) for axis in axes if capacity.knows(type.shape[axis])}
        return Counted(x, known) if axes else x

    return jax.tree.unflatten(tree, [result(x.array, type) for x, type in zip(results, types, strict=True)])


def run_graph_counted(
    graph: Graph,
    inputs: Mapping[str, Any],
    params: Mapping[str, Any],
    rng: Any,
    outer: Any = None,
    automatic: bool = True,
) -> list[Any]:
    """Returns the outputs of a graph, as `run_graph` does, as a part of the program that is traced.

    automatic: as of `run_counted`.
    """
    if COUNTED_SIZES.get() is not None or not (graph.sized_by_data if automatic else graph.bounded):
        return run_graph(graph, inputs, params, rng, outer)
    if not graph.bounded and not tracing():
        try:
            return run_graph(graph, inputs, params, rng, outer)  # values may be known, node by node
        except UnboundedError:
            pass
    scope = {} if outer is None else {name: outer[name] for name in graph.captures if name in outer}

    def run(inputs: Any, params: Any, rng: Any, scope: Any) -> list[Any]:
        return run_graph(graph, unwrap(inputs), params, rng, None if outer is None else ChainMap(unwrap(scope)))

    arguments = jax.tree.map(lambda x: StaticValue(x) if isinstance(x, np.ndarray) else x, (inputs, params, rng, scope))
    results = run_counted(run, *arguments, automatic=automatic)
    if outer is not None and any(map(_is_counted, jax.tree.leaves(results, is_leaf=_is_counted))):
        raise PaddingError(
            f"{graph.name}: a value that leaves the body of a loop has a size that depends on data; "
            "load the model without this bound"
        )
    return [x.value if isinstance(x, StaticValue) else x for x in padded(results)]


def run_node_counted(node: Node, inputs: Sequence[Any], rng: Any) -> list[Any]:
    """Returns the outputs of a node with a bound, outside of `jit`."""

    def run(inputs: Any, rng: Any) -> list[Any]:
        return list(run_node(node, [x.value if isinstance(x, StaticValue) else x for x in inputs], {}, rng))

    arguments = [StaticValue(x) if isinstance(x, np.ndarray) else x for x in inputs]
    outputs = run_counted(run, arguments, rng, automatic=False)
    return [x.value if isinstance(x, StaticValue) else x for x in outputs]


def padded(values: Any) -> Any:
    """Returns the values with their padding."""
    return jax.tree.map(lambda x: x.array if isinstance(x, Counted) else x, values, is_leaf=_is_counted)


def exact(values: Any) -> Any:
    """Returns the values without their padding, outside of `jit`."""

    def cropped(x: Any) -> Any:
        if not isinstance(x, Counted):
            return x
        sizes = tuple(int(x.sizes.get(axis, size)) for axis, size in enumerate(x.array.shape))
        return x.array if sizes == x.array.shape else as_traced(np.asarray(x.array)[tuple(map(slice, sizes))])

    if isinstance(values, np.ndarray | Data | jax.Array):  # most values; a walk over a tree takes ten times as long
        return values
    return jax.tree.map(cropped, values, is_leaf=_is_counted)


def _is_counted(value: Any) -> bool:
    return isinstance(value, Counted)


def _closed(value: Any, made: Container[str]) -> Any:
    """Returns a value as a result of a program. made: the symbols that have no meaning outside of it."""
    if isinstance(value, SplitSequence):
        raise value.problem("a value that leaves the program")
    if not isinstance(value, np.ndarray):
        return value
    inner = is_symbolic(value) and any(symbol in made for symbol in symbols_in(*value.flat))
    return as_traced(value, np.dtype(np.int64)) if inner else StaticValue(value)


def _explained(error: Exception, sizes: CountedSymbols) -> Exception:
    """Returns the error of an operation that needs more than the number of true elements."""
    made, most = sizes.made, sizes.most
    for result in made.values():
        if result.error is not None:
            return result.unbounded()
    text, notes = str(error).partition("\n  hint")[0], getattr(error, "__notes__", [])
    named = {s: r for s, r in made.items() if s in f"{text} {notes}"} or made
    bounds = "; ".join(f"{symbol} is the size of '{r.node}'" for symbol, r in named.items())
    problem = PaddingError(
        f"{text}\n  bounds  {bounds}, of at most {max(most[symbol] for symbol in named)}\n"
        "  hint    call the model outside of transformations, without this bound"
    )
    for note in notes:
        problem.add_note(note)
    return problem
