"""A model in bfloat16, float16 or float64: a graph whose operators convert their operands.

Parameters and inputs of the model have the type. Each operator converts its floating-point operands: to the type, or
to float32 if it must compute in float32, and the type has fewer digits. Its results are not converted until another
operator reads them, so a normalization that is written as several nodes is float32 throughout. Static values keep the
type of the file until they are combined with traced ones, or with anything in float64; sizes and scales that must be
static are never converted.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxops import ops
from jaxops.attributes import element_type
from jaxops.dtypes import is_float
from jaxops.errors import ArgumentError, DTypeError
from jaxops.graph.nodes import Graph, Node, Tensor, Value
from jaxops.graph.operator import WrappedOperator
from jaxops.ops import openvino
from jaxops.runtime.x64 import x64_on
from jaxops.signature import SHAPE_ONLY, STATIC

# (the label of a node, the name of its operator) → whether it computes in float32.
Keep = Callable[[str, str], bool]

_NARROW = ("bfloat16", "float16")
_TYPES = (*_NARROW, "float64")
# Operators that are linear in an operand, as are all operators of the kinds form, movement and linear.
_LINEAR = (ops.add, ops.sub, ops.mul, ops.div, ops.neg, ops.einsum)


class Converting(WrappedOperator):
    """An operator whose floating-point operands are converted first.

    wide: whether it computes in float32. ends: whether its outputs are outputs of the model, which get the narrow type;
    a static one that another node reads keeps its own. last: whether no node reads its outputs.
    count, copied: the number of its outputs, and the positions of those that follow once more in the narrow type, for
    the model to return.
    """

    def __init__(
        self,
        inner: Any,
        dtype: np.dtype,
        wide: bool,
        ends: bool = False,
        last: bool = False,
        count: int = 0,
        copied: tuple[int, ...] = (),
    ) -> None:
        super().__init__(inner)
        self.dtype, self.wide, self.ends, self.last, self.count, self.copied = dtype, wide, ends, last, count, copied

    @property
    def label(self) -> str:
        """The operator and the type that it computes in."""
        return f"{self.inner.label}, in {self.type.name}"

    @property
    def type(self) -> np.dtype:
        """The type of its floating-point operands."""
        return np.dtype(np.float32) if self.wide and self.dtype.name in _NARROW else self.dtype

    def check(self, inputs: Sequence[Any]) -> None:
        """Does nothing: the model was checked with its own types, and an old opset does not list bfloat16."""

    def check_results(self, values: Sequence[Any]) -> None:
        """Does nothing, for the same reason."""

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the operator for converted operands; subgraphs return values of the narrow type."""
        converted_attributes = {
            name: self._subgraph(value) if name in self.subgraphs else value for name, value in attributes.items()
        }
        if self.dtype.name not in _NARROW and self.inner.function is not ops.bit_cast:  # the type of results, of means
            converted_attributes |= {
                name: self.dtype for name, x in attributes.items() if isinstance(x, np.dtype) and x.name == "float32"
            }
        operands = self.converted(inputs, lambda x: isinstance(x, jax.Array), as_type)
        own = min(n_outputs, self.count) if self.copied else n_outputs
        outputs = self.inner.call(operands, converted_attributes, n_outputs=own, rng=rng)
        if own < n_outputs:
            return (*outputs[:own], *(as_type(outputs[k], self.dtype) for k in self.copied))
        if not self.ends:
            return outputs
        return jax.tree.map(lambda y: (as_type if self.last else _traced_as)(y, self.dtype), tuple(outputs))

    def body(self, node: Node, inputs: Sequence[Any]) -> Graph | None:
        """The graph that defines the operator for these types, converted in the same way."""
        graph = self.inner.body(node, jax.tree.map(_in_float32, list(inputs)))
        return None if graph is None else _Walk(self.dtype, lambda label, name: self.wide).graph(graph)

    def converted(
        self, inputs: Sequence[Any], is_traced: Callable[[Any], bool], convert: Callable[[Any, np.dtype], Any]
    ) -> list[Any]:
        """The converted operands; if all are static, they stay as they are, unless they lose digits in float32."""
        # Except for the initial state of a loop, which must have the types of its next state.
        stay = self.dtype.name in _NARROW and not self.subgraphs
        if stay and not any(map(is_traced, jax.tree.leaves(list(inputs)))):
            return list(inputs)
        return [
            x if self.mark(k) in (STATIC, SHAPE_ONLY) else jax.tree.map(lambda y: convert(y, self.type), x)
            for k, x in enumerate(inputs)
        ]

    def _subgraph(self, run: Any) -> Any:
        @functools.wraps(run)
        def converted(*inputs: Any) -> list[Any]:
            return jax.tree.map(lambda y: as_type(y, self.dtype), run(*inputs))

        cast(Any, converted).outputs = run.outputs
        return converted


def _concerns(dtype: Any) -> bool:
    return np.dtype(dtype).name in ("float64", "float32", *_NARROW)


def as_type(value: Any, dtype: np.dtype) -> Any:
    """A floating-point array in another floating-point type; other values as they are.

    A finite number beyond the type's range becomes the largest finite one: it still acts as a mask, and a row of masked
    scores gives no NaN. Infinity stays.
    """
    if not isinstance(value, jax.Array | np.ndarray) or value.dtype == dtype:
        return value
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):  # keys
        return value
    if not _concerns(value.dtype):
        return value
    if jnp.finfo(dtype).max >= jnp.finfo(value.dtype).max:
        return value.astype(dtype)
    limit = np.asarray(jnp.finfo(dtype).max, value.dtype)
    if isinstance(value, jax.Array):
        return jnp.where(jnp.isinf(value), value, jnp.clip(value, -limit, limit)).astype(dtype)
    return np.where(np.isinf(value), value, np.clip(value, -limit, limit)).astype(dtype)


def _traced_as(value: Any, dtype: np.dtype) -> Any:
    return as_type(value, dtype) if isinstance(value, jax.Array) else value


def _in_float32(value: Any) -> Any:
    """The shape, and the type before `astype`, of an operand."""
    if isinstance(value, jax.Array | np.ndarray) and is_float(value.dtype):
        return jax.ShapeDtypeStruct(value.shape, np.float32)
    return value


class _Walk:
    """Converts graphs; nodes that share a graph share the converted one, too."""

    def __init__(self, dtype: np.dtype, keep: Keep | None, tensors: Mapping[str, Tensor] | None = None) -> None:
        self.dtype = dtype
        self.keep = keep
        self.tensors = tensors or {}
        self.exact: set[str] = set()  # the parameters that stay as they are
        self._done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph, ends: frozenset[str] = frozenset()) -> Graph:
        if graph not in self._done:
            exact = _exact(graph, self.tensors)
            self.exact.update(graph.params[name] for node in exact for name in node.inputs if name in graph.params)
            wide = exact | _spelled_out(graph) if self.keep is None else exact
            read = frozenset(name for node in graph.nodes for name in (*node.inputs, *_captured(node)))
            names = _names_for_readers(graph, ends & read)
            nodes = tuple(_reading(self._node(node, node in wide, ends, read, names), names) for node in graph.nodes)
            static = {names[k]: v for k, v in graph.static.items() if k in names}
            static |= {k: as_type(v, self.dtype) if k in ends else v for k, v in graph.static.items()}
            values = {
                "inputs": tuple(self.value(v) for v in graph.inputs),
                "outputs": tuple(self.value(v) for v in graph.outputs),
                "static": static,
            }
            self._done[graph] = dataclasses.replace(graph, nodes=nodes, **values)
        return self._done[graph]

    def value(self, value: Value) -> Value:
        if value.dtype is None or value.static or not _concerns(value.dtype):
            return value
        return dataclasses.replace(value, dtype=self.dtype)

    def _node(
        self, node: Node, wide: bool, ends: frozenset[str], read: frozenset[str], names: Mapping[str, str]
    ) -> Node:
        operator, outputs, count, copied = node.operator, node.outputs, 0, ()
        if isinstance(operator, Converting):
            operator, count, copied = operator.inner, operator.count, operator.copied
        if not names.keys().isdisjoint(outputs):
            count, copied = len(outputs), tuple(k for k, name in enumerate(outputs) if name in ends)
            outputs = (*(names.get(name, name) for name in outputs), *(outputs[k] for k in copied))
        if self.keep is None:
            wide = wide or operator.traits.precision == "float32"
        else:
            wide = wide or bool(self.keep(node.label, operator.name))
        inner = {key: self.graph(value) for key, value in node.subgraphs.items()}
        body = node.body
        if body is not None:
            body = _Walk(self.dtype, lambda label, name: True).graph(body) if wide else self.graph(body)
        return dataclasses.replace(
            node,
            operator=Converting(
                operator,
                self.dtype,
                wide,
                bool(ends.intersection(node.outputs)),
                read.isdisjoint(node.outputs),
                count,
                copied,
            ),
            outputs=outputs,
            attributes={**node.attributes, **inner},
            body=body,
        )


def _names_for_readers(graph: Graph, returned: frozenset[str]) -> dict[str, str]:
    """New names for values that may be static: those that nodes read, and that keep their type, while the model returns
    the narrow one. returned: the outputs of the model that its nodes read.
    """
    formals = {value.name for value in graph.inputs}
    values = {name for name in graph.static if name in returned and name not in formals}
    for node in graph.nodes:
        repeated = isinstance(node.operator, Converting) and node.operator.copied
        if node.operator.foldable and node.body is None and not repeated and not returned.isdisjoint(node.outputs):
            values.update(name for name in node.outputs if name in graph.output_names)
    names: dict[str, str] = {}
    for name in sorted(values):
        names[name] = f"{name} (as read)"
        while names[name] in graph.defined:
            names[name] += "'"
    return names


def _reading(node: Node, names: Mapping[str, str]) -> Node:
    """A node that reads values by other names, in its subgraphs too."""
    if names.keys().isdisjoint(node.uses()):
        return node
    inner = {key: _capturing(graph, names) for key, graph in node.subgraphs.items()}
    inputs = tuple(names.get(name, name) for name in node.inputs)
    return dataclasses.replace(node, inputs=inputs, attributes={**node.attributes, **inner})


def _capturing(graph: Graph, names: Mapping[str, str]) -> Graph:
    captured = {name: names[name] for name in graph.captures if name in names}
    if not captured:
        return graph
    outputs = tuple(dataclasses.replace(v, name=captured.get(v.name, v.name)) for v in graph.outputs)
    return dataclasses.replace(graph, nodes=tuple(_reading(n, captured) for n in graph.nodes), outputs=outputs)


def _captured(node: Node) -> set[str]:
    """The values that the subgraphs of a node read from the graphs around it."""
    return {name for inner in node.subgraphs.values() for name in inner.captures}


def _exact(graph: Graph, tensors: Mapping[str, Tensor]) -> frozenset[Node]:
    """The nodes that always compute in float32, and the nodes that compute the angles of Sin and Cos."""
    nodes: set[Node] = set()
    angles: set[str] = set()
    for node in reversed(graph.nodes):
        function = node.operator.function
        # An angle is a position times a frequency, and bfloat16 cannot represent the position 257.
        of_angle = _is_linear(node) and not angles.isdisjoint(node.outputs) and not _is_layer(node, graph, tensors)
        if function in (ops.sin, ops.cos) or of_angle:
            angles.update(filter(None, node.inputs))
        if node.operator.traits.precision == "exact" or of_angle:
            nodes.add(node)
    return frozenset(nodes)


def _is_linear(node: Node) -> bool:
    """Returns True if a node may be a step from a position to an angle, which is not exact in bfloat16."""
    return node.operator.traits.kind in ("form", "movement", "linear") or node.operator.function in _LINEAR


def _is_layer(node: Node, graph: Graph, tensors: Mapping[str, Tensor]) -> bool:
    """Returns True if a node multiplies by a matrix of parameters, and not by a vector of frequencies."""
    read = [tensors[graph.params[name]] for name in node.inputs if graph.params.get(name) in tensors]
    product = node.operator.traits.kind == "linear" or node.operator.function is ops.einsum
    return product and any(sum(d > 1 for d in t.shape) > 1 for t in read)


def _spelled_out(graph: Graph) -> frozenset[Node]:
    """The nodes of normalizations that are written as several nodes: those from a mean to the quotient.

    Such a normalization has a root (Sqrt or Pow) after a mean, with only elementwise nodes between the two.
    """
    producers = {name: node for node in graph.nodes for name in node.outputs if name}
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    nodes: set[Node] = set()
    for root in graph.nodes:
        chain = _mean_behind(root, producers) if root.operator.function in (ops.sqrt, ops.pow) else set()
        nodes |= chain
        reached = [root] if chain else []
        while reached:  # x / root, x · (1 / root), and the next factor
            node_before = reached.pop()
            after = [n for name in node_before.outputs for n in readers.get(name, ()) if n not in nodes]
            after = [n for n in after if n.operator.function in (ops.div, ops.reciprocal, ops.mul)]
            nodes.update(after)
            reached += [n for n in after if n.operator.function is not ops.mul]
    return frozenset(nodes)


def _mean_behind(root: Node, producers: Mapping[str, Node]) -> set[Node]:
    """The nodes from the squares through their mean to a root; empty if there is no mean."""
    chain, node = {root}, producers.get(root.inputs[0])
    while node is not None and node.operator.function in (ops.add, ops.cast, ops.max, ops.clip):
        chain.add(node)
        behind = [producers[name] for name in node.inputs if name in producers]
        node = behind[0] if behind else None
    if node is None or node.operator.function is not ops.reduce_mean:
        return set()
    chain.add(node)
    squares = producers.get(node.inputs[0])
    if squares is not None and squares.operator.function in (ops.pow, ops.mul, openvino.squared_difference):
        chain.add(squares)
        at_once = squares.operator.function is openvino.squared_difference
        difference = squares if at_once else producers.get(squares.inputs[0])
        if difference is not None and difference.operator.function in (ops.sub, openvino.squared_difference):
            chain.add(difference)
            means = (producers.get(name) for name in difference.inputs)
            chain.update(n for n in means if n is not None and n.operator.function is ops.reduce_mean)
    return chain


@dataclasses.dataclass(frozen=True)
class Converted:
    """A model's graph, its inputs, defaults and outputs, and its parameters, in another type: `dtype`."""

    dtype: np.dtype
    graph: Graph
    inputs: tuple[Value, ...]
    defaults: tuple[Value, ...]
    outputs: tuple[Value, ...]
    tensors: dict[str, Tensor]
    params: dict[str, jax.Array]


def converted(
    graph: Graph,
    inputs: Sequence[Value],
    defaults: Sequence[Value],
    tensors: Mapping[str, Tensor],
    params: Mapping[str, jax.Array],
    dtype: Any,
    keep: Keep | None,
) -> Converted:
    """A prepared graph in bfloat16, float16 or float64. params: those of the parameters that have been read.

    Raises ArgumentError for another type.
    """
    try:
        target = element_type("dtype", dtype)
    except DTypeError as error:
        raise ArgumentError(f"astype: {dtype!r:.80} is not one of {', '.join(_TYPES)}") from error
    if target.name not in _TYPES:
        raise ArgumentError(f"astype: {target.name} is not one of {', '.join(_TYPES)}")
    walk = _Walk(target, keep, tensors)
    other = walk.graph(graph, frozenset(value.name for value in graph.outputs))

    def changes(name: str) -> bool:
        return (name not in walk.exact or target.name not in _NARROW) and _concerns(tensors[name].dtype)

    with x64_on(target == np.float64):
        arrays = {name: as_type(x, target) if changes(name) else x for name, x in params.items()}
    return Converted(
        dtype=target,
        graph=other,
        inputs=tuple(map(walk.value, inputs)),
        defaults=tuple(map(walk.value, defaults)),
        outputs=tuple(map(walk.value, graph.outputs)),
        tensors={name: _converted(tensor, target) if changes(name) else tensor for name, tensor in tensors.items()},
        params=arrays,
    )


def _converted(tensor: Tensor, dtype: np.dtype) -> Tensor:
    load, part = tensor.load, tensor.part
    return Tensor(
        dtype,
        tensor.shape,
        functools.partial(_read, load, dtype),
        None if part is None else functools.partial(_read, part, dtype),
    )


def _read(load: Callable[..., np.ndarray], dtype: np.dtype, *index: Any) -> np.ndarray:
    return np.asarray(as_type(load(*index), dtype))
