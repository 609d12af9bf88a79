"""Replaces inputs of a model by fixed values (the option `values` of `load`)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxops.errors import ArgumentError, StaticError, describe, near
from jaxops.graph.nodes import Graph
from jaxops.runtime.arguments import to_operand
from jaxops.static import Tracer


def with_values(graph: Graph, values: Mapping[str, Any]) -> Graph:
    """Returns the graph with values in place of some of its inputs.

    Raises ArgumentError for an unknown input, and for one that is not a tensor; DTypeError and ShapeError for a value
    that does not fit, StaticError for a traced value.
    """
    variables = {variable.before for variable in graph.variables}
    formals = {value.name: value for value in graph.inputs if value.name not in variables}
    fixed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in formals:
            inputs = near(name, formals) or f"; its inputs are {list(formals)}"
            raise ArgumentError(f"`values`: the model has no input '{name}'{inputs}")
        if isinstance(value, Tracer):
            raise StaticError(
                f"`values`: '{name}' is traced: {describe(value)}\n"
                "  hint    load the model outside of jax.jit, and give a NumPy array"
            )
        formal = formals[name]
        if formal.kind != "tensor":
            raise ArgumentError(f"`values`: input '{name}' is not a tensor: {formal}")
        if np.ndim(value) == 0 and formal.shape and all(d == 1 for d in formal.shape):
            value = np.reshape(value, (1,) * len(formal.shape))  # a flag, which exporters declare as a list of one
        fixed[name] = to_operand(dataclasses.replace(formal, static="`values` of load"), value).value
    return dataclasses.replace(
        graph,
        inputs=tuple(value for value in graph.inputs if value.name not in fixed),
        initializers={name: tensor for name, tensor in graph.initializers.items() if name not in fixed},
        static={**graph.static, **fixed},
    )
