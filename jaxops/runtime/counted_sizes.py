"""Runs what makes results of data-dependent size as one program, in which no operation sees padding as data.

The program is traced with a symbol for the number of true elements of each such result, and then run on arrays that
have room for its bound (`jaxops.compiler.padded`). An operator without a bound has the largest size that it can have
for any data, as long as no output of the program has this size.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.compiler.padded.counted import counted, padded as padded_array
from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.compiler.primitives import symbolic_sizes
from jaxops.dtypes import as_traced, canonical
from jaxops.errors import JaxopsError, SizeError, StaticError, UnboundedError, UnsupportedError, symbols_in
from jaxops.graph.bounded_sizes import COUNTED_SIZES
from jaxops.graph.interpreter import SIZE_CONSTRAINTS
from jaxops.graph.nodes import Node
from jaxops.lazy_sequences import SplitSequence
from jaxops.static import (
    StaticValue,
    Undecided,
    evaluated,
    get_opaque_trace_state,
    is_symbolic,
    jaxpr_as_fun,
    static_array,
    symbolic_shape,
)
from jaxops.symbolic import bounded_by, bounds_of, numbers_of


class Counted(NamedTuple):
    """A padded result. sizes: axis → its true size."""

    array: Any
    sizes: Mapping[int, Any]


class _Made(NamedTuple):
    """A result of data-dependent size. error: what to raise where it must have a bound; None if it has one.

    label: of the operator. operator, inputs, attributes: of the node that makes it; None for one that leaves a branch or a loop.
    """

    node: str
    label: str
    error: UnboundedError | None
    operator: Any = None
    inputs: Sequence[Any] = ()
    attributes: Mapping[str, Any] = MappingProxyType({})
    results: Sequence[Any] = ()

    def unbounded(self) -> UnboundedError:
        """Returns the error, with the node in a note."""
        assert self.error is not None
        if not getattr(self.error, "__notes__", ()):
            self.error.add_note(f"in node '{self.error.node}' ({self.label})")
        return self.error


class _Sizes:
    """The symbols of one trace, each for the number of true elements of a result.

    made: symbol → the result. most: symbol → its largest value.
    """

    def __init__(self, automatic: bool, scope: Any) -> None:
        """automatic: whether an operator without a bound gets its largest size. scope: that of symbolic sizes in the
        program around it, or None."""
        self._automatic = automatic
        self.made: dict[str, _Made] = {}
        self.most: dict[str, int] = {}
        self._scope, self._outer = scope, None if scope is None else bounds_of(scope)
        if scope is not None:
            bounded_by(scope, functools.partial(self._bounds, 1), functools.partial(self._bounds, 0))
        # A traced number of true elements, or what was computed from some → the same with symbols.
        self._numbers: list[tuple[Any, np.ndarray]] = []
        self._flags: list[Any] = []

    def outputs(
        self, node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any], call: Callable[..., Sequence[Any]]
    ) -> Sequence[Any]:
        """As of `jaxops.graph.bounded_sizes.CountedSizes`."""
        known = [self._symbolic(x) for x in inputs]
        try:
            outputs = call(inputs)
        except UnboundedError as error:
            return self.results(node.label, node.operator, inputs, attributes, call, error)
        except StaticError:
            if all(x is y for x, y in zip(known, inputs, strict=True)):
                raise
            return call(known)
        if all(isinstance(y, np.ndarray) for y in outputs) or not node.operator.foldable:
            return outputs
        if any(x is not y for x, y in zip(known, inputs, strict=True)):
            if all(x is None or isinstance(x, np.ndarray) for x in known):
                with suppress(JaxopsError, Undecided):
                    self._numbers += zip(outputs, call(known), strict=True)
        elif self._counts(node, inputs, outputs):
            symbol = self.new(node.label, node.operator.label, inputs[0].size, None)
            counted(outputs[0], outputs[0].reshape(()), str(symbol), outputs[0].shape)
            self._numbers.append((outputs[0], np.full(outputs[0].shape, symbol, object)))
        return outputs

    def _symbolic(self, value: Any) -> Any:
        return next((symbols for traced, symbols in self._numbers if traced is value), value)

    def _counts(self, node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Tells whether a node counts the true elements of a mask: the sum of a Cast, as PyTorch writes it."""
        x, y = inputs[0], outputs[0]
        if node.operator.name == "Cast" and x.dtype == bool and jnp.issubdtype(y.dtype, np.integer):
            self._flags.append(y)
        return node.operator.name == "ReduceSum" and y.size == 1 and any(x is flag for flag in self._flags)

    def results(
        self,
        node: str,
        operator: Any,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        call: Callable[..., Sequence[Any]],
        error: UnboundedError | None = None,
    ) -> Sequence[Any]:
        """As of `jaxops.graph.bounded_sizes.CountedSizes`."""
        size = operator.traits.data_size
        if error is not None:
            error.node = error.node or node
            if not (self._automatic and size and size.most):
                raise error
        for made in self.made.values():  # one mask may be read for a Gather, and again for a ScatterND
            same = made.operator is not None and made.operator.name == operator.name and made.attributes == attributes
            if same and all(a is b for a, b in zip(made.inputs, inputs, strict=True)):
                return made.results
        most = attributes["size"] if error is None else self.room(size.most(inputs, attributes))
        most = max(most, 1) if isinstance(most, int) else most
        padded = call(inputs, {**attributes, "size": most})
        longer = jax.eval_shape(lambda: list(call(inputs, {**attributes, "size": most + 1})))
        symbol = self.new(node, operator.label, most, error)
        true = size and jnp.minimum(size.true(inputs, attributes, padded), most).astype(canonical(np.int64))
        results = list[Any]()
        for y, other in zip(padded, longer, strict=True):
            sizes = tuple(symbol if a != b else a for a, b in zip(y.shape, other.shape, strict=True))
            results.append(y if sizes == y.shape else counted(y, true, str(symbol), sizes))
        self.made[str(symbol)] = self.made[str(symbol)]._replace(
            operator=operator, inputs=inputs, attributes=attributes, results=results
        )
        return results

    def new(self, node: str, label: str, most: int, error: UnboundedError | None) -> Any:
        """Returns a new symbol."""
        (symbol,) = symbolic_shape(f"counted_{len(self.made)}", scope=self._scope)
        if self._scope is None:
            self._scope = symbol.scope
            bounded_by(symbol.scope, functools.partial(self._bounds, 1), functools.partial(self._bounds, 0))
        self.most[str(symbol)], self.made[str(symbol)] = most, _Made(node, label, error)
        return symbol

    def border(self, node: Node) -> "_Border":
        """As of `jaxops.graph.bounded_sizes.CountedSizes`."""
        return _Border(self, node)

    def room(self, size: Any) -> int:
        """Returns the largest number that a size can be."""
        return evaluated(size, self.outer(size) | self.most) if is_symbolic(size) else size

    def outer(self, *sizes: Any) -> dict[str, Any]:
        """Returns the symbols of the program around this one, by name."""
        names = [name for name in symbols_in(*sizes) if name not in self.made]
        return {name: symbolic_shape(name, scope=self._scope)[0] for name in names}

    def _bounds(self, least: int, size: Any) -> tuple[float, float] | None:
        if self._outer is not None:
            if not any(symbol in self.made for symbol in symbols_in(size)):
                return self._outer(size)
            return None if least else (0 if str(size) in self.made else -np.inf, np.inf)
        numbers = numbers_of(size, {symbol: range(least, most + 1) for symbol, most in self.most.items()})
        return None if numbers is None else (int(numbers.min()), int(numbers.max()))


class _Assumptions:
    """Lets a node run again that raised a SizeError about numbers of true elements; a `ConstraintSearch`.

    A size that must equal another one does so in every call that the model allows: rows are then taken for the other
    size. A value that was computed from sizes, such as `n > 0`, becomes a traced one.
    """

    def __init__(self, sizes: _Sizes, outer: Any) -> None:
        """outer: the search of an export, or None."""
        self._sizes, self._outer = sizes, outer
        self._equal: dict[str, Any] = {}
        self._tried, self._pending = set[str](), ""

    def assume(self, error: SizeError) -> bool:
        """As of `ConstraintSearch`."""
        if not any(symbol in self._sizes.made for symbol in error.symbols):
            return self._outer is not None and self._outer.assume(error)
        sizes = sorted(error.sizes, key=lambda size: (is_symbolic(size), len(str(size))))
        if error.problem.endswith("must be equal") and len(sizes) == 2 and str(sizes[1]) not in self._equal:
            self._equal[str(sizes[1])] = sizes[0]
            self._pending = "equal"
        else:
            self._pending = "" if "traced" in self._tried else "traced"
        self._tried.add(self._pending)
        return bool(self._pending)

    def refresh(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As of `ConstraintSearch`."""
        inputs = inputs if self._outer is None else self._outer.refresh(inputs)
        if not self._pending:
            self._tried.clear()
        if self._pending == "traced":
            inputs = jax.tree.map(lambda x: as_traced(x) if is_symbolic(x) else x, list(inputs))
        self._pending = ""
        return jax.tree.map(self._resized, list(inputs)) if self._equal else inputs

    def _resized(self, x: Any) -> Any:
        for axis, size in enumerate(x.shape if isinstance(x, jax.Array) else ()):
            if (other := self._equal.get(str(size))) is not None and is_symbolic(size):
                # Where the sizes differ after all, ONNX has no result: every index is out of range.
                wrong = jnp.asarray(size) != jnp.asarray(other)
                index = jnp.where(wrong, np.iinfo(np.int32).max, jnp.arange(other, dtype=np.int32))
                x = jnp.take(x, index, axis=axis, mode="fill")
        return x


class _Border:
    """The border around the subgraphs of a node; see `jaxops.graph.bounded_sizes.Border`.

    A size that is made inside has no meaning outside. So an array of such a size leaves with its padding, and gets a
    new symbol. A branch hands out the true sizes as well. Those of each iteration of a loop are not known outside.
    """

    def __init__(self, sizes: _Sizes, node: Node) -> None:
        self._sizes, self._node, self._trace = sizes, node, get_opaque_trace_state()
        # (output, axis) → the error of the operator inside that has no bound, or None.
        self._opened: dict[tuple[int, int], UnboundedError | None] = {}
        self._has_sizes = False

    def inside(self, name: str, run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        flow, graph = self._node.operator.subgraphs[name], self._node.subgraphs[name]
        not_carried = self._node.attributes.get(flow.not_carried, 0)
        state = len(graph.inputs) - 2 * flow.leading - not_carried if flow.carries else 0

        def subgraph(*inputs: Any, **context: Any) -> list[Any]:
            outer = set(self._sizes.made)
            results = run(*inputs, **context)
            if flow.first is None and get_opaque_trace_state() == self._trace:
                return results  # the only branch, which is a part of the program
            outputs = [
                self._leaving(y, outer, k - flow.leading, k - flow.leading < state) for k, y in enumerate(results)
            ]
            if flow.first is not None:
                return outputs
            self._has_sizes = True
            return [*outputs, *(as_traced(static_array(np.asarray(np.shape(y), object))) for y in results)]

        return subgraph

    def _leaving(self, value: Any, outer: set[str], output: int, carried: bool) -> Any:
        """Returns an output of a subgraph without the symbols that were made inside. carried: whether it re-enters."""

        def inner(size: Any) -> list[str]:
            return [symbol for symbol in symbols_in(size) if is_symbolic(size) and symbol not in outer]

        if isinstance(value, np.ndarray):
            return as_traced(value) if value.dtype == object and any(map(inner, value.flat)) else value
        if not any(inner(d) for x in jax.tree.leaves(value) for d in x.shape):
            return value
        if carried or not isinstance(value, jax.Array):
            raise UnsupportedError(
                f"{self._node.title}: the size of a value that enters the next iteration depends on data"
            )
        room = list(value.shape)
        for axis, size in enumerate(value.shape):
            for symbol in inner(size):
                self._opened[output, axis - len(room)] = self._sizes.made[symbol].error
                room[axis] = self._sizes.room(size)
        return padded_array(value, tuple(room))

    def outside(self, outputs: Sequence[Any]) -> Sequence[Any]:
        count, results = len(self._node.outputs), list(outputs)
        for (output, axis), error in self._opened.items():
            y = results[output]
            true = outputs[count + output][axis] if self._has_sizes else None
            symbol = self._sizes.new(self._node.label, self._node.operator.label, y.shape[axis], error)
            sizes = list(y.shape)
            sizes[axis] = symbol
            results[output] = counted(y, true, str(symbol), tuple(sizes))
        return results[:count]


def run_counted(fn: Callable[..., Any], *arguments: Any, automatic: bool) -> Any:
    """Returns `fn(*arguments)` with a `Counted` for each array that has padding.

    arguments: pytrees of arrays. automatic: whether the program may be differentiated, and whether an operator without
    a bound gets its largest size.

    Raises UnboundedError for an output that needs a bound, UnsupportedError for an operation that cannot leave out the
    padding, and what `fn` raises.
    """
    leaves, tree = jax.tree.flatten(arguments)
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    scope = next((d.scope for x in leaves for d in x.shape if is_symbolic(d)), None)
    sizes = _Sizes(automatic, scope)
    tokens = COUNTED_SIZES.set(sizes), SIZE_CONSTRAINTS.set(_Assumptions(sizes, SIZE_CONSTRAINTS.get()))
    try:
        program, types = jax.make_jaxpr(lambda *arguments: jax.tree.map(_closed, fn(*arguments)), return_shape=True)(
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
    true = {name: jnp.asarray(size, canonical(np.int64)) for name, size in outer.items()}
    capacity = Capacity(true, {**outer, **sizes.most}, {}, frozenset(outer), differentiable=automatic)
    try:
        results = run_padded(program, leaves, capacity)
    except UnsupportedError as error:
        raise _explained(error, sizes) from error

    def result(x: Any, type: Any) -> Any:
        axes = [axis for axis, size in enumerate(type.shape) if capacity.varies(size)]
        known = {axis: capacity.count(type.shape[axis]) for axis in axes if capacity.knows(type.shape[axis])}
        return Counted(x, known) if axes else x

    return jax.tree.unflatten(tree, [result(x.array, type) for x, type in zip(results, types, strict=True)])


def padded(values: Any) -> Any:
    """Returns the values with their padding."""
    return jax.tree.map(lambda x: x.array if isinstance(x, Counted) else x, values, is_leaf=_is_counted)


def exact(values: Any) -> Any:
    """Returns the values without their padding, outside of `jit`."""

    def cropped(x: Any) -> Any:
        if not isinstance(x, Counted):
            return x
        sizes = (int(x.sizes.get(axis, size)) for axis, size in enumerate(x.array.shape))
        return as_traced(np.asarray(x.array)[tuple(map(slice, sizes))])

    return jax.tree.map(cropped, values, is_leaf=_is_counted)


def _is_counted(value: Any) -> bool:
    return isinstance(value, Counted)


def _closed(value: Any) -> Any:
    """Returns a value as a result of a program."""
    if isinstance(value, SplitSequence):
        raise value.problem("a value that leaves the program")
    if not isinstance(value, np.ndarray):
        return value
    return as_traced(value, np.dtype(np.int64)) if is_symbolic(value) else StaticValue(value)


def _explained(error: Exception, sizes: _Sizes) -> Exception:
    """Returns the error of an operation that needs more than the number of true elements."""
    made, most = sizes.made, sizes.most
    for result in made.values():
        if result.error is not None:
            return result.unbounded()
    text, notes = str(error).partition("\n  hint")[0], getattr(error, "__notes__", [])
    named = {s: r for s, r in made.items() if s in f"{text} {notes}"} or made
    bounds = "; ".join(f"{symbol} is the size of '{r.node}'" for symbol, r in named.items())
    problem = UnsupportedError(
        f"{text}\n  bounds  {bounds}, of at most {max(most[symbol] for symbol in named)}\n"
        "  hint    call the model outside of transformations, without this bound"
    )
    for note in notes:
        problem.add_note(note)
    return problem
