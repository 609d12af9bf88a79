"""Decides which constants of a model are parameters, and which stay static values of the program.

XLA folds a weight that is a constant of the program, which is slow, and compiles it into the program. So constants
become arguments of the compiled function: initializers, and the results of nodes without traced operands (Constant,
ConstantOfShape, Range, a Cast of a table), in subgraphs and function bodies, too. These stay static:
- values that `static_analysis` found to be needed while tracing;
- integers and booleans (indices, axes, masks), since `jax.grad` over the parameters expects floating point. But large
  arrays of 8-bit integers are quantized weights, and parameters;
- single numbers (an epsilon, the 3.0 of a Pow, a mask's -inf), constants of a formula that must not be trained. But a
  single number that is the weight or bias of a layer is a parameter: see `single_weights`.
A caller may decide otherwise.

Not every parameter is trained: running statistics, masks, generated values and integers are not.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from jaxops.dtypes import is_float
from jaxops.errors import ArgumentError, JaxopsError, SignatureError, near
from jaxops.graph.interpreter import run_node
from jaxops.graph.nodes import Graph, Node, Tensor
from jaxops.graph.static_analysis import Needs
from jaxops.graph.untrained_tables import chosen_tables, untrained_tables
from jaxops.memory import bounded_together, bounded_total, fits
from jaxops.signature import BIAS, STATISTICS, WEIGHT, role

# 8-bit integers of at least this many elements are weights; with one axis they may be zero points, so there more count.
_LARGE, _LONG = 1024, 1 << 16
# Kinds of operators whose weights are trained, even if they are single numbers.
_LAYERS = {"convolution", "linear", "normalization", "activation"}
# Masks add at most this number to a score that must not count: BERT's add -10,000, others -inf.
_LEFT_OUT = -9999.0


# A caller's decisions by name: a dictionary, a collection of chosen names, or a function that may return None for
# no decision.
Choice: TypeAlias = Mapping[str, bool] | Collection[str] | Callable[[str], bool | None]


class _Choices:
    """A caller's decisions by name. option: the name of the argument, for messages."""

    def __init__(self, option: str, choice: Choice | None) -> None:
        self._what = option
        self._choice: Any = {} if choice is None else {choice} if isinstance(choice, str) else choice

    def of(self, name: str) -> bool | None:
        """Returns the caller's decision about a name; None if there is none."""
        if callable(self._choice):
            return cast(bool | None, self._choice(name))
        return self._choice.get(name) if isinstance(self._choice, Mapping) else name in self._choice or None

    def check(self, names: Collection[str]) -> None:
        """Raises SignatureError if the caller decided about a name that is not among `names`."""
        for name in () if callable(self._choice) else self._choice:
            if name not in names:
                raise SignatureError(f"`{self._what}`: the model has no constant '{name}'{near(name, names)}")


@dataclasses.dataclass
class Params:
    """The parameters of a model, and known decisions about training them."""

    tensors: dict[str, Tensor]
    trainable: dict[str, bool]

    def trained(self, values: Mapping[str, Any]) -> dict[str, bool]:
        """Returns, for each parameter, whether gradient descent should change it. values: the parameters."""
        return {
            name: self.trainable[name] if name in self.trainable else not _is_mask(values[name])
            for name in self.tensors
        }

    def renamed(self, names: Mapping[str, str]) -> "Params":
        """Returns the same parameters under other names."""
        tensors = {names[name]: tensor for name, tensor in self.tensors.items()}
        return Params(tensors, {names[name]: trained for name, trained in self.trainable.items()})


def prepare(
    graph: Graph, needs: Mapping[Graph, Needs], static: Choice | None = None, trainable: Choice | None = None
) -> tuple[Graph, Params]:
    """Returns (the graph with its constants in `static` and `params`, the parameters by name).

    needs: for each graph of the model, the names that must be static in it. An initializer that is also an input may
    have another value in a call, so nothing is computed from it here. static, trainable: the caller's decisions about
    constants. Raises ArgumentError for a decision that is impossible, SignatureError for an unknown name.
    """
    choices = _Choices("static", static)
    split = _Split(needs, choices)
    split_graph = split.graph(graph, {}, "")
    choices.check(split.constants)
    chosen = _Choices("trainable", trainable)
    chosen.check(split.params)
    return split_graph, Params(split.params, _trainable(split, chosen))


def _trainable(split: "_Split", choices: _Choices) -> dict[str, bool]:
    """Returns, for each parameter, whether it is trained, if this can be decided without reading its values."""
    flags = {}
    for name, tensor in split.params.items():
        chosen, continuous = choices.of(name), _is_continuous(tensor)
        if chosen and not continuous:
            raise ArgumentError(
                f"`trainable`: '{name}' is {tensor.dtype.name}; only floating-point numbers are trained"
            )
        if chosen is not None:
            flags[name] = chosen
        elif name in split.fixed or not continuous:
            flags[name] = False
    return flags


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """A prepared graph whose parameters have other names, in its subgraphs and functions too."""
    done: dict[Graph, Graph] = {}  # nodes that share a graph still share the new one

    def walk(graph: Graph) -> Graph:
        if graph not in done:
            params = {name: names[param] for name, param in graph.params.items()}
            done[graph] = dataclasses.replace(
                graph, params=params, nodes=tuple(node.with_nested(walk) for node in graph.nodes)
            )
        return done[graph]

    return walk(graph)


class _Split:
    def __init__(self, needs: Mapping[Graph, Needs], choices: _Choices) -> None:
        self.needs = needs
        self.choices = choices
        self.params: dict[str, Tensor] = {}
        self.fixed: set[str] = set()
        self.constants: set[str] = set()  # the names of all constants
        self._computed: list[np.ndarray] = []  # all static values that were computed
        self._generated = 0  # the bytes of the parameters that were computed
        self._bodies: dict[Any, Graph] = {}  # nodes that share a graph still share the new one, and its parameters

    def graph(self, graph: Graph, outer: Mapping[str, Any], owner: str) -> Graph:
        """Returns a graph with its constants split into static values and parameters.

        outer: the static values of the enclosing graphs. owner: the node or function with the graph; empty for the
        model.
        """
        needed = self.needs.get(graph, {})
        weights = single_weights(graph)
        static: dict[str, Any] = dict(graph.static)
        params: dict[str, str] = {}

        def keep(name: str, tensor: Tensor, value: Any = None, made_by: str = "", generated: bool = False) -> None:
            # A value that does not fit into memory is a broadcast view of which only the sizes are read.
            if (value is None or fits(value)) and self._is_parameter(name, tensor, needed, name in weights):
                params[name] = self._enter(name, tensor, owner)
                if value is not None:
                    # A view takes no memory here, but each call reads the parameter as an array.
                    self._generated += value.nbytes
                    bounded_total(self._generated, f"{made_by}: its result and the other generated parameters")
                if generated:
                    self.fixed.add(params[name])
            else:
                static[name] = tensor.load() if value is None else value

        for name, tensor in graph.initializers.items():
            keep(name, tensor)
        hidden = {value.name for value in graph.inputs} | params.keys()
        # Only the captured names: with all names, n subgraphs would take time in proportion to n².
        visible = {name: outer[name] for name in graph.captures if name in outer}
        visible |= {k: v for k, v in static.items() if k not in hidden}
        nodes = []
        for node in graph.nodes:
            values = _computed(node, visible, at_once=not owner)
            if values is None:
                nodes.append(self._node(node, visible))
                continue
            self._computed += [x for x in values if fits(x)]  # a larger one is a view of which only the sizes are read
            bounded_together(values, self._computed, node.operator.name)
            for name, value in zip(node.outputs, values, strict=False):
                if name:
                    keep(name, _tensor(value), value, node.title, generated=bool(node.inputs))
            visible |= {name: static[name] for name in node.outputs if name in static}
        tables = untrained_tables(graph)
        self.fixed.update(params[name] for name in _statistics(graph, {}) | tables if name in params)
        split = dataclasses.replace(graph, nodes=tuple(nodes), initializers={}, static=static, params=params)
        chosen = chosen_tables(split, tables)
        self.fixed.update(branch.params[name] for branch, name in chosen if name in branch.params)
        return split

    def _node(self, node: Node, visible: Mapping[str, Any]) -> Node:
        if node.body is not None:
            if node.body not in self._bodies:
                self._bodies[node.body] = self.graph(node.body, {}, node.operator.name)
            return dataclasses.replace(node, body=self._bodies[node.body])
        inner = {key: self._inner(value, visible, node.label) for key, value in node.subgraphs.items()}
        return dataclasses.replace(node, attributes={**node.attributes, **inner}) if inner else node

    def _inner(self, graph: Graph, visible: Mapping[str, Any], owner: str) -> Graph:
        # A captured name may be static for one node that shares the graph, and not for another.
        key = graph, graph.captures.intersection(visible)
        if key not in self._bodies:
            self._bodies[key] = self.graph(graph, visible, owner)
        return self._bodies[key]

    def _is_parameter(self, name: str, tensor: Tensor, needed: Needs, single: bool) -> bool:
        self.constants.add(name)
        chosen = self.choices.of(name)
        if chosen is False and (name in needed or tensor.dtype == object):
            why = str(needed[name]) if name in needed else "it holds strings"
            raise ArgumentError(f"`static`: '{name}' must be known while tracing: {why}")
        return (name not in needed and (single or is_weight(tensor))) if chosen is None else not chosen

    def _enter(self, name: str, tensor: Tensor, owner: str) -> str:
        """Adds a parameter and returns its name: the tensor's, with its node or function in front if that is taken."""
        unique, count = name, 1
        while unique in self.params:
            unique, count = f"{owner}/{name}" if count == 1 else f"{owner}/{name}_{count}", count + 1
        self.params[unique] = tensor
        return unique


def single_weights(graph: Graph) -> set[str]:
    """Returns the initializers of one element that are weights: weights of layers, a bias that an Add adds, and the
    statistics of a graph that trains.

    The Add must follow a layer with an initializer. Exporters write such a bias with the shape (1,), but an epsilon
    with the shape ().
    """
    singles = {name: t.shape for name, t in graph.initializers.items() if _is_continuous(t) and math.prod(t.shape) == 1}
    names, products = set[str](), set[str]()
    for node in graph.nodes if singles else ():
        roles = {name: role(node.operator.function, k) for k, name in enumerate(node.inputs) if name in singles}
        if node.operator.traits.kind in _LAYERS:
            names.update(name for name, named in roles.items() if named in (WEIGHT, BIAS))
            if not graph.initializers.keys().isdisjoint(node.inputs):
                products.update(node.outputs)
        elif products.intersection(node.inputs):
            names.update(name for name, named in roles.items() if named == BIAS and singles[name])
    return names | singles.keys() & {name for name, _ in graph.statistics or ()}


def _is_continuous(tensor: Tensor) -> bool:
    return is_float(tensor.dtype) or tensor.dtype.kind == "c"


def is_weight(tensor: Tensor) -> bool:
    """Returns whether a constant is a parameter by its type and size: several floats, or many integers of 8 bits."""
    size = math.prod(tensor.shape)
    if _is_continuous(tensor):
        return size != 1
    bytes_ = tensor.dtype.itemsize == 1 and tensor.dtype.kind != "b"
    return bytes_ and size >= (_LARGE if len(tensor.shape) > 1 else _LONG)


def _is_mask(parameter: Any) -> bool:
    """Returns True if the numbers are a mask: some act like -inf, or all are 0 or 1."""
    if not getattr(parameter, "is_fully_addressable", True):
        if not parameter.is_fully_replicated:
            return False  # a part is in another process, and all processes must decide alike
        parameter = parameter.addressable_data(0)
    values = np.asarray(parameter)
    if values.dtype.kind == "c" or values.size < 2:
        return False
    values = values.astype(np.float32)
    low, high = values.min(), values.max()
    if low <= _LEFT_OUT:
        return True
    return bool(low == 0 and high == 1 and np.isin(values, (0, 1)).all())


def _statistics(graph: Graph, walked: dict[Graph, frozenset[str]]) -> frozenset[str]:
    """Returns the names that operators read as statistics, in functions and subgraphs too. walked: earlier results."""
    if graph not in walked:
        names: set[str] = set()
        for node in graph.nodes:
            marked = [node.operator.mark(k) == STATISTICS for k in range(len(node.inputs))]
            if node.body is not None:
                inner = _statistics(node.body, walked)
                marked = [value.name in inner for value in node.body.inputs]
            names.update(name for name, is_marked in zip(node.inputs, marked, strict=False) if is_marked)
            for subgraph in node.subgraphs.values():
                names |= _statistics(subgraph, walked) & subgraph.captures
        walked[graph] = frozenset(names)
    return walked[graph]


def _computed(node: Node, static: Mapping[str, Any], *, at_once: bool) -> Sequence[np.ndarray] | None:
    """Returns the outputs of a node that NumPy computes from static values; None for any other node.

    at_once: whether errors are raised. A node of a subgraph may never run, so its errors are raised when it does.
    """
    if not node.operator.foldable or not all(name in static for name in node.inputs if name):
        return None
    inputs = [static[name] if name else None for name in node.inputs]
    try:
        results = run_node(node, inputs, {}, None)
    except JaxopsError:
        if at_once:
            raise
        return None
    return results if all(isinstance(value, np.ndarray) for value in results) else None


def _tensor(value: np.ndarray) -> Tensor:
    return Tensor(value.dtype, value.shape, functools.partial(np.asarray, value))
