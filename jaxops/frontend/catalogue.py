"""A row for each operator that a front end has, made from schemas and signatures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jaxops.frontend.schema_operator import SchemaOperator
from jaxops.signature import SHAPE_ONLY, STATIC

_FLOATS = {"float16", "float32", "float64", "bfloat16"}


@dataclass(frozen=True)
class OperatorRow:
    """An operator. versions: those that jaxops has. static: the operands that must be known while tracing.

    differentiable: whether a floating-point result has a derivative by a floating-point operand.
    """

    name: str
    domain: str
    versions: tuple[int, ...]
    static: tuple[str, ...]
    differentiable: bool


def operator_row(operator: SchemaOperator[Any], domain: str, versions: tuple[int, ...]) -> OperatorRow:
    """The row of an operator. operator: its newest version; versions: all that jaxops has."""
    static = tuple(formal for k, formal in enumerate(operator.formals) if operator.mark(k) == STATIC)
    return OperatorRow(operator.name, domain, versions, static, _differentiable(operator))


def _differentiable(operator: SchemaOperator[Any]) -> bool:
    inputs = [formal for k, formal in enumerate(operator.schema.inputs) if operator.mark(k) not in (STATIC, SHAPE_ONLY)]
    moves = _floating(operator, inputs) and _floating(operator, operator.schema.outputs)
    return operator.traits.differentiable and (moves or bool(operator.subgraphs))


def _floating(operator: SchemaOperator[Any], formals: Iterable[Any]) -> bool:
    # The type of a sequence or an optional is that of its elements.
    return any(dtype.name in _FLOATS for formal in formals for dtype in operator.schema.element_types(formal.types))
