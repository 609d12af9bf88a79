"""Tables that a file chooses by the number of tokens, such as rotary ones for short and for long texts (LongRoPE).

The width of the attention mask decides an If between two tables of different sizes. In a step of fixed shapes, rows
have their own numbers of tokens, and padding widens the mask. So the If is left out of the graph, and each row gets the
table that its own tokens ask for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import canonical
from jaxops.graph.interpreter import run_graph
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.runtime.model_pytree import with_tensors_given
from jaxops.signature import TABLE

# The input with the number of tokens of each row: those of earlier steps, of this one, and of a prompt's later chunks.
NUMBER = "number_of_tokens"


class WithTables:
    """A model without such an If, which has an input for the number of tokens of each row.

    chosen: the nodes. mask: the input whose width decides. length: the largest number of tokens. mixes: whether tokens
    may need other tables than those before.
    """

    def __init__(self, model: Any, chosen: tuple[Node, ...], mask: Value, tokens: Value, length: int) -> None:
        self._chosen, self._length = [(node, _decides(model.graph, node, mask.name)) for node in chosen], length
        self.mixes = any(_is_first(decides, 1) != _is_first(decides, length) for _, decides in self._chosen)
        tables = [value for node in chosen for value in _tables(node)]
        self._model = with_tensors_given(model, chosen, tables)
        self.graph, self.x64, self.outputs = model.graph, model.x64, model.outputs
        batch = next((d for d in tokens.shape or () if isinstance(d, str)), "batch")
        self.inputs = *model.inputs, Value(NUMBER, np.dtype(np.int32), (batch,))

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the model."""
        return self._model.params

    def apply(self, params: Mapping[str, Any], /, *, number_of_tokens: Any, **named: Any) -> Any:
        """The pure function."""
        tables = dict[str, Any]()
        number = jnp.max(number_of_tokens).astype(canonical(np.int64))
        for node, decides in self._chosen:
            is_first = _is_first(decides, number)
            branches = [self._rows(node.subgraphs[name], params) for name in ("then_branch", "else_branch")]
            for name, a, b in zip(node.outputs, *branches, strict=True):
                rows = max(a.shape[0], b.shape[0])
                tables[name] = jnp.where(is_first, _filled_up(a, rows), _filled_up(b, rows))
        return self._model.apply(params, **named, **tables)

    def _rows(self, branch: Graph, params: Mapping[str, Any]) -> list[Any]:
        """Returns the tables of a branch, without rows that no token reads."""
        return [jnp.asarray(x)[: self._length] for x in run_graph(branch, {}, params, None)]


def with_tables(model: Any, mask: Value | None, tokens: Value, length: int) -> Any:
    """Returns a model without an If that chooses tables by the width of the mask; the model itself if it has none."""
    graph = model.graph
    if mask is None or graph.variables:
        return model
    chosen = tuple(node for node in graph.nodes if _chooses(graph, node, mask.name))
    return WithTables(model, chosen, mask, tokens, length) if chosen else model


def _chooses(graph: Graph, node: Node, mask: str) -> bool:
    if node.operator.name != "If" or any(branch.nodes or branch.captures for branch in node.subgraphs.values()):
        return False
    shapes = [[v.shape for v in branch.outputs] for branch in node.subgraphs.values()]
    if any(shape is None or len(shape) != 2 for each in shapes for shape in each) or shapes[0] == shapes[1]:
        return False
    readers = [other for other in graph.nodes if {*other.uses()} & {*node.outputs}]
    # A table is read at positions alone, so rows behind them do not matter.
    by_position = all(
        name not in node.outputs or other.operator.mark(k) == TABLE
        for other in readers
        for k, name in enumerate(other.inputs)
    )
    captured = any(inner.captures & {*node.outputs} for other in readers for inner in other.subgraphs.values())
    is_result = not {*node.outputs}.isdisjoint(graph.output_names)
    decides = _decides(graph, node, mask)
    return by_position and not captured and not is_result and bool(decides.inputs) and not decides.captures


def _decides(graph: Graph, node: Node, mask: str) -> Graph:
    """Returns the graph that computes the condition from the sizes of the mask; it captures what else it reads."""
    needed, nodes = {node.inputs[0]}, list[Node]()
    sizes = {other.outputs[0] for other in graph.nodes if other.operator.name == "Shape" and other.inputs == (mask,)}
    for other in reversed(graph.nodes):
        if needed & {*other.outputs} and not sizes & {*other.outputs}:
            nodes.insert(0, other)
            needed |= {*other.uses()}
    inputs = tuple(Value(name, np.dtype(np.int64), (2,)) for name in sorted(sizes & needed))
    condition = Value(node.inputs[0], np.dtype(bool), ())
    static = {name: graph.static[name] for name in needed & graph.static.keys()}
    return Graph("", inputs, (condition,), tuple(nodes), {}, static)


def _is_first(decides: Graph, number: Any) -> Any:
    """Returns whether the first branch has the tables for so many tokens."""
    stack = jnp.stack if isinstance(number, jax.Array) else np.stack
    sizes = stack([number * 0 + 1, number])
    return run_graph(decides, {value.name: sizes for value in decides.inputs}, {}, None)[0]


def _tables(node: Node) -> Iterator[Value]:
    for name, value in zip(node.outputs, node.subgraphs["then_branch"].outputs, strict=True):
        yield replace(value, name=name, shape=(None, *(value.shape or ())[1:]))


def _filled_up(x: Any, rows: int) -> Any:
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, rows - x.shape[0], 0), (0, 0, 0)])
