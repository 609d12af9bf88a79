"""A row for each operator of each domain that jaxops has, made from schemas and signatures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxops.errors import UnsupportedError
from jaxops.onnx.registry import DOMAINS, Operator, find
from jaxops.onnx.schemas import operators as names_of, versions
from jaxops.signature import SHAPE_ONLY, STATIC

_FLOATS = {"tensor(float16)", "tensor(float)", "tensor(double)", "tensor(bfloat16)"}


@dataclass(frozen=True)
class OperatorRow:
    """An operator. versions: those that jaxops has. static: the operands that must be known while tracing.

    differentiable: whether a floating-point operand has a derivative in a floating-point result.
    """

    name: str
    domain: str
    versions: tuple[int, ...]
    static: tuple[str, ...]
    differentiable: bool


def operators() -> tuple[OperatorRow, ...]:
    """The operators that jaxops has, by domain and name."""
    rows = []
    for domain in DOMAINS:
        for name in names_of(domain):
            since_versions = [since for since in versions(name, domain) if _has(name, domain, since)]
            if since_versions:
                rows.append(_row(name, domain, tuple(since_versions)))
    return tuple(rows)


def _has(name: str, domain: str, since: int) -> bool:
    try:
        find(name, domain, since)
    except UnsupportedError:
        return False
    return True


def _row(name: str, domain: str, since_versions: tuple[int, ...]) -> OperatorRow:
    operator = find(name, domain, since_versions[-1])
    static = tuple(formal for k, formal in enumerate(operator.formals) if operator.mark(k) == STATIC)
    return OperatorRow(name, domain or "ai.onnx", since_versions, static, _differentiable(operator))


def _differentiable(operator: Operator) -> bool:
    inputs = [formal for k, formal in enumerate(operator.schema.inputs) if operator.mark(k) not in (STATIC, SHAPE_ONLY)]
    output_types = [operator.given_types(k) for k in range(len(operator.schema.outputs))]
    moves = _floating([operator.taken_types(formal) for formal in inputs]) and _floating(output_types)
    return operator.traits.differentiable and (moves or bool(operator.subgraphs))


def _floating(types: Sequence[Any]) -> bool:
    # Of a sequence or an optional, what it holds counts.
    return any(any(name[name.find("tensor(") :].rstrip(")") + ")" in _FLOATS for name in names) for names in types)
