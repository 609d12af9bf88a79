"""Symbols for the numbers of true elements of results whose size depends on data, while a graph is traced."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops.compiler.padded.counted import at_most, broadcast_size, counted, limited, padded
from jaxops.compiler.primitives import symbolic_sizes
from jaxops.dtypes import as_traced
from jaxops.errors import JaxopsError, StaticError, UnboundedError, UnsupportedError, symbols_in
from jaxops.graph.nodes import Node
from jaxops.jax_internals import bounded_by, bounds_of, evaluated, get_opaque_trace_state, max_dim
from jaxops.signature import SHAPE_ONLY
from jaxops.static import Undecided, is_symbolic, static_array, symbolic_shape
from jaxops.symbolic import numbers_of

# A size with symbols of an export is tried for these numbers.
_SAMPLES = (1, 2, 3, 7, 16, 50, 1000)


class Made(NamedTuple):
    """A result of data-dependent size. error: what to raise if it must have a bound; None if it has one.

    label: of the operator. operator, inputs, attributes: of the node that makes it; None for one that leaves a branch
    or a loop.
    """

    node: str
    label: str
    error: UnboundedError | None
    operator: Any = None
    inputs: Sequence[Any] = ()
    attributes: Mapping[str, Any] = MappingProxyType({})
    results: Sequence[Any] = ()
    trace: Any = None

    def unbounded(self) -> UnboundedError:
        """Returns the error, with the node in a note."""
        assert self.error is not None
        if not getattr(self.error, "__notes__", ()):
            self.error.add_note(f"in node '{self.error.node}' ({self.label})")
        return self.error


class CountedSymbols:
    """The symbols of one trace, each for the number of true elements of a result.

    made: symbol → the result. most: symbol → its largest value. equal: size → a size that the model makes equal to it.
    wider: of the node that runs: a size that it reads as a value → the size that it broadcasts to.
    """

    def __init__(self, automatic: bool, scope: Any) -> None:
        """automatic: whether an operator without a bound gets its largest size. scope: that of symbolic sizes in the
        program around it, or None."""
        self._automatic = automatic
        self.made: dict[str, Made] = {}
        self.equal: dict[str, Any] = {}
        self.wider: Mapping[str, Any] = {}
        self.most: dict[str, int] = {}
        self._scope, self._outer = scope, None if scope is None else bounds_of(scope)
        if scope is not None:
            bounded_by(scope, functools.partial(self._bounds, 1), functools.partial(self._bounds, 0))
        # A traced number of true elements, or what was computed from some → the same with symbols.
        self._numbers: list[tuple[Any, np.ndarray]] = []
        self._flags: list[Any] = []
        # A symbol for the size that two sizes broadcast to, all three as texts, and the trace that computes it.
        self._results: list[tuple[Any, set[str], Any]] = []
        # A traced value that inputs with a bound decide alone, and the largest number that is computed from it.
        self._sizing: list[tuple[Any, int]] = []

    def outputs(
        self, node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any], call: Callable[..., Sequence[Any]]
    ) -> Sequence[Any]:
        """As of `jaxops.graph.bounds.CountedSizes`."""
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
                    pairs = [(y, s) for y, s in zip(outputs, call(known), strict=True) if isinstance(s, np.ndarray)]
                    self._numbers += pairs
                    if pairs:
                        return outputs
        elif self._counts(node, inputs, outputs):
            self._number(node.label, node.operator.label, outputs[0], self.room(inputs[0].size))
            return outputs
        most = self._most_of_inputs(node, inputs)
        return outputs if most is None else [self.from_value(node.label, y, most, node.operator.label) for y in outputs]

    def _number(self, node: str, label: str, x: Any, most: int) -> None:
        """Gives a traced integer, an array of one element, a symbol."""
        symbol = self.new(node, label, most, None)
        counted(x, x.reshape(()), str(symbol), x.shape)
        self._numbers.append((x, np.full(x.shape, symbol, object)))

    def from_value(self, node: str, x: Any, most: int, label: str = "a value with a bound") -> Any:
        """As of `jaxops.graph.bounds.CountedSizes`."""
        if isinstance(x, jax.Array) and x.size == 1 and np.issubdtype(x.dtype, np.integer):
            x = limited(x, most)
            self._number(node, label, x, most)
        self._sizing.append((x, most))
        return x

    def _most_of_inputs(self, node: Node, inputs: Sequence[Any]) -> int | None:
        """Returns the largest number that a node may compute from inputs with a bound; None if it reads other data."""
        read = [x for k, x in enumerate(inputs) if x is not None and node.operator.mark(k) != SHAPE_ONLY]
        bounds = [next((most for value, most in self._sizing if value is x), None) for x in read]
        others = [x for x, most in zip(read, bounds, strict=True) if most is None]
        known = all(isinstance(x, np.ndarray) or self._symbolic(x) is not x for x in others)
        return max((most for most in bounds if most is not None), default=None) if known else None

    def _symbolic(self, value: Any) -> Any:
        return next((self.renamed(symbols) for traced, symbols in self._numbers if traced is value), value)

    def renamed(self, sizes: np.ndarray) -> np.ndarray:
        """Returns sizes with those in place of others that they are equal to, or broadcast to."""
        other = (self.equal.get(str(size), size) for size in sizes.flat)
        return static_array(np.array([self.wider.get(str(size), size) for size in other], object).reshape(sizes.shape))

    def _counts(self, node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Returns True if a node counts the true elements of a mask: the sum of a Cast, as PyTorch writes it."""
        if node.operator.name not in ("Cast", "ReduceSum"):
            return False
        x, y = inputs[0], outputs[0]
        if node.operator.name == "Cast" and x.dtype == bool and np.issubdtype(y.dtype, np.integer):
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
        """As of `jaxops.graph.bounds.CountedSizes`."""
        size = operator.traits.data_size
        if error is None:
            most = attributes["size"]
        else:
            error.node, error.operator = error.node or node, error.operator or operator.name
            largest = size.most(inputs, attributes) if size and size.most else None
            if largest is None or not self._automatic:
                raise error
            most = self.room(largest)
        for made in self.made.values():  # one mask may be read for a Gather, and again for a ScatterND
            same = (
                made.trace == get_opaque_trace_state()
                and made.operator is not None
                and made.operator.name == operator.name
                and made.attributes == attributes
            )
            if same and all(a is b for a, b in zip(made.inputs, inputs, strict=True)):
                return made.results
        most = max(most, 1) if isinstance(most, int) else most
        measuring = size.measuring(inputs, attributes) if size and size.measuring else attributes
        results = call(inputs, {**measuring, "size": most})
        longer = jax.eval_shape(lambda: list(call(inputs, {**attributes, "size": most + 1})))
        symbol = self.new(node, operator.label, most, error)
        true = size and size.true(inputs, measuring, results)
        true = None if true is None else at_most(true, most)
        made = list[Any]()
        for y, other in zip(results[: len(longer)], longer, strict=True):
            sizes = tuple(symbol if a != b else a for a, b in zip(y.shape, other.shape, strict=True))
            cut = functools.partial(counted, size=true, symbol=str(symbol), sizes=sizes)
            made.append(y if sizes == y.shape else jax.tree.map(cut, y))  # chosen strings are a tree of one array
        self.made[str(symbol)] = self.made[str(symbol)]._replace(
            operator=operator, inputs=inputs, attributes=attributes, results=made, trace=get_opaque_trace_state()
        )
        return made

    def new(self, node: str, label: str, most: int, error: UnboundedError | None) -> Any:
        """Returns a new symbol."""
        symbol: Any = symbolic_shape(f"counted_{len(self.made)}", scope=self._scope)[0]
        if self._scope is None:
            self._scope = symbol.scope
            bounded_by(symbol.scope, functools.partial(self._bounds, 1), functools.partial(self._bounds, 0))
        self.most[str(symbol)], self.made[str(symbol)] = most, Made(node, label, error)
        return symbol

    def broadcast(self, a: Any, b: Any) -> Any:
        """Returns the size that two sizes broadcast to: one that data do not decide, else a new symbol."""
        symbols = [[symbol for symbol in symbols_in(size) if symbol in self.made] for size in (a, b)]
        if not all(symbols):
            return b if symbols[0] else a
        state = get_opaque_trace_state()
        for symbol, sizes, trace in self._results:
            if trace == state and {str(a), str(b)} <= sizes:
                return symbol
        made = [self.made[symbol] for symbol in symbols_in(a, b) if symbol in self.made]
        error = next((result.error for result in made if result.error is not None), None)
        true = broadcast_size(*(as_traced(np.asarray(size, object)) for size in (a, b)))
        symbol = self.new(made[0].node, made[0].label, max_dim(self.room(a), self.room(b)), error)
        counted(true, true, str(symbol), ())
        self._results.append((symbol, {str(symbol), str(a), str(b)}, state))
        return symbol

    def border(self, node: Node) -> "Border":
        """As of `jaxops.graph.bounds.CountedSizes`."""
        return Border(self, node)

    def room(self, size: Any) -> int:
        """Returns the largest number that a size can be."""
        return evaluated(size, self.outer(size) | self.most) if is_symbolic(size) else size

    def rooms(self, program: Any) -> dict[Any, int]:
        """Returns the largest numbers of those sizes in a closed jaxpr that are larger for fewer elements, as that of
        the rest of an axis is.

        Raises UnsupportedError if symbols of the program around this one are in such a size.
        """
        rooms = dict[Any, int]()
        for size in symbolic_sizes(program.jaxpr):
            symbols = symbols_in(size)
            outer = [symbol for symbol in symbols if symbol not in self.made]
            for number in _SAMPLES if outer else (0,):
                around = dict.fromkeys(outer, number)
                most = {s: _at(self.most[s], number) for s in symbols if s in self.made}
                numbers = numbers_of(size, {s: range(n, n + 1) for s, n in around.items()} | _ranges(0, most))
                room = numbers_of(size, {s: range(n, n + 1) for s, n in (around | most).items()})
                if numbers is None or room is None or numbers.max() <= room.max():
                    continue
                if outer:
                    raise UnsupportedError(
                        f"the size {size} may be larger for fewer elements, so it has no largest one"
                    )
                rooms[size] = int(numbers.max())
        return rooms

    def outer(self, *sizes: Any) -> dict[str, Any]:
        """Returns the symbols of the program around this one, by name."""
        names = [name for name in symbols_in(*sizes) if name not in self.made]
        return {name: symbolic_shape(name, scope=self._scope)[0] for name in names}

    def _bounds(self, least: int, size: Any) -> tuple[float, float] | None:
        if self._outer is not None:
            if not any(symbol in self.made for symbol in symbols_in(size)):
                return self._outer(size)
            return None if least else (0 if str(size) in self.made else -np.inf, np.inf)
        numbers = numbers_of(size, _ranges(least, self.most))
        return None if numbers is None else (int(numbers.min()), int(numbers.max()))


def _ranges(least: int, most: Mapping[str, int]) -> dict[str, range]:
    return {symbol: range(least, number + 1) for symbol, number in most.items()}


def _at(most: Any, number: int) -> int:
    """Returns the largest number of elements if each symbol of an export is this number."""
    return evaluated(most, dict.fromkeys(symbols_in(most), number)) if is_symbolic(most) else most


class Border:
    """The border around the subgraphs of a node; see `jaxops.graph.bounds.Border`.

    A size that is made inside has no meaning outside. So an array of such a size leaves with its padding, and gets a
    new symbol. A branch hands out the true sizes as well. Those of each iteration of a loop are not known outside.
    """

    def __init__(self, sizes: CountedSymbols, node: Node) -> None:
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
            new = self._sizes.made.keys() - outer
            return [symbol for symbol in symbols_in(size) if symbol in new] if is_symbolic(size) else []

        if isinstance(value, np.ndarray):
            return as_traced(value) if value.dtype == object and any(map(inner, value.flat)) else value
        if not any(inner(d) for x in jax.tree.leaves(value) for d in getattr(x, "shape", ())):
            return value  # a sequence that grows in an export has no shape
        if carried or not isinstance(value, jax.Array):
            raise UnsupportedError(
                f"{self._node.title}: the size of a value that enters the next iteration depends on data"
            )
        room = list(value.shape)
        for axis, size in enumerate(value.shape):
            for symbol in inner(size):
                self._opened[output, axis - len(room)] = self._sizes.made[symbol].error
                room[axis] = self._sizes.room(size)
        return padded(value, tuple(room))

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
