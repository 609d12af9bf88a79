"""The walk over the nodes of a bound graph that calls the operators; JAX's tracing does the rest."""

import functools
from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import jax

from jaxops.errors import SignatureError, describe
from jaxops.onnx.expand import standard_body
from jaxops.onnx.graph import Graph, Node


def run(graph: Graph, values: MutableMapping[str, Any], rng: jax.Array | None) -> list[Any]:
    """The outputs of a graph, given its inputs, initializers and what it captures; `values` gains every result."""
    for index, node in enumerate(graph.nodes):
        inputs = [values[name] if name else None for name in node.inputs]
        outputs = step(node, inputs, values, None if rng is None else jax.random.fold_in(rng, index))
        values.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)
    return [values[value.name] if value.name else None for value in graph.outputs]


def step(node: Node, inputs: Sequence[Any], values: Mapping[str, Any], rng: jax.Array | None) -> Sequence[Any]:
    """The outputs of a node, given its inputs (None for one left out) and what its subgraphs may capture."""
    try:
        with jax.named_scope(node.label):
            return _evaluate(node, inputs, values, rng)
    except Exception as error:
        error.add_note(_context(node, inputs))
        raise


def _evaluate(node: Node, inputs: Sequence[Any], values: Mapping[str, Any], rng: jax.Array | None) -> Sequence[Any]:
    body = node.body
    if node.operator is not None:
        node.operator.check_types(inputs)
    if body is None:
        assert node.operator is not None
        if node.operator.fn is not None:
            subgraph = functools.partial(_subgraph, values=values, rng=rng)
            outputs = node.operator(inputs, node.attributes, n_outputs=len(node.outputs), rng=rng, run=subgraph)
            if len(outputs) < len(node.outputs):
                raise SignatureError(f"{node.op_type}: makes {len(outputs)} outputs, not {len(node.outputs)}")
            return outputs
        body = standard_body(node, inputs)
    given = dict.fromkeys((value.name for value in body.inputs), None)
    given |= {value.name: x for value, x in zip(body.inputs, inputs, strict=False)}
    return run(body, given, rng)


def _subgraph(graph: Graph, *inputs: Any, values: Mapping[str, Any], rng: Any) -> list[Any]:
    """A subgraph sees its own inputs and initializers, and everything the graph around it has computed so far."""
    local: dict[str, Any] = {name: tensor.load() for name, tensor in graph.initializers.items()}
    local |= {value.name: x for value, x in zip(graph.inputs, inputs, strict=True)}
    return run(graph, ChainMap(local, dict(values)), rng)


def _context(node: Node, inputs: Sequence[Any]) -> str:
    """Where in the model an error happened: node, opset and operands."""
    where = f"in node '{node.label}' ({node.op_type}, opset {node.opset})" if node.opset else f"in node '{node.label}'"
    formals = [formal.name for formal in node.operator.schema.inputs] if node.operator else []
    lines = [where]
    for position, (name, value) in enumerate(zip(node.inputs, inputs, strict=True)):
        formal = formals[min(position, len(formals) - 1)] if formals else str(position)
        lines.append(f"  {formal:<7} '{name}' {describe(value)}")
    return "\n".join(lines)
