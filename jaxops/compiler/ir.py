"""A traced program as one list of operations, without the calls that wrap them.

`jit` inside `jit`, the functions with a derivative of their own, and the choice of a form by platform only say how a
program came about. Here they are opened, so that a walk over the list sees every operation and its operands.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.compiler.primitives import called_jaxpr
from jaxops.static import Sizes


@dataclass(frozen=True, eq=False)
class Known:
    """An operand that is a constant of the program."""

    value: Any


@dataclass(frozen=True, eq=False)
class Operation:
    """An equation, with the numbers of its operands (or constants), and of its results."""

    equation: Any
    operands: tuple["int | Known", ...]
    results: tuple[int, ...]
    scope: str

    @property
    def name(self) -> str:
        """The name of its primitive."""
        return self.equation.primitive.name

    @property
    def params(self) -> Mapping[str, Any]:
        """What else its primitive is told."""
        return self.equation.params

    @property
    def dtypes(self) -> tuple[Any, ...]:
        """The types of its operands."""
        return tuple(v.aval.dtype for v in self.equation.invars)

    @property
    def effects(self) -> Any:
        """What it does besides computing its results."""
        return self.equation.effects

    def sizes(self, before: Sizes) -> Sizes:
        """The sizes of the result of a reshape, from those of its operand."""
        if self.name == "reshape":
            return tuple(self.params["new_sizes"])
        return tuple(size for axis, size in enumerate(before) if axis not in self.params["dimensions"])

    def bind(self, operands: Sequence[Any], params: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """The results for these operands, with other parameters where some are given."""
        primitive = self.equation.primitive
        found = primitive.bind(*operands, **(self.params if params is None else params))
        return found if primitive.multiple_results else [found]


@dataclass(frozen=True)
class Program:
    """operations: in order, or what has all that they have but an equation. types: number → type of the value. outputs:
    numbers, or constants."""

    operations: tuple[Any, ...]
    types: tuple[Any, ...]
    inputs: int
    outputs: tuple["int | Known", ...]


# What leaves the elements of an array in their order.
_RESHAPES = ("expand_dims", "reshape", "squeeze")


def opened_program(closed: Any, platform: str) -> Program:
    """The operations of a closed jaxpr, as they run on a platform. Its inputs are the values 0, 1, …

    A transpose that undoes the one before is left out: weights that are transposed twice stay as the file has them. So
    is a reshape to a shape that the same elements had before.
    """
    types: list[Any] = [v.aval for v in closed.jaxpr.invars]
    operations: list[Operation] = []
    undone: dict[Any, Any] = {}  # (a transposed value, the permutation that undoes it) → the value before
    shaped: dict[Any, Any] = {}  # (a value, a shape) → its elements in that shape
    origins: dict[Any, Any] = {}  # a value whose elements another one had first → that one

    def walk(program: Any, inputs: Sequence[Any], scope: str) -> list[Any]:
        jaxpr = getattr(program, "jaxpr", program)
        values: dict[Any, Any] = dict(zip(jaxpr.invars, inputs, strict=True))
        values |= {var: Known(x) for var, x in zip(jaxpr.constvars, getattr(program, "consts", ()), strict=True)}

        def read(var: Any) -> Any:
            return Known(var.val) if hasattr(var, "val") else values[var]

        for eqn in jaxpr.eqns:
            operands = [read(v) for v in eqn.invars]
            name, where = eqn.primitive.name, _joined(scope, str(eqn.source_info.name_stack))
            if name == "platform_index":
                results: list[Any] = [Known(_chosen(eqn.params["platforms"], platform))]
            elif name == "cond" and isinstance(operands[0], Known) and isinstance(operands[0].value, int):
                results = walk(eqn.params["branches"][operands[0].value], operands[1:], where)
            elif name == "optimization_barrier" and all(isinstance(v, Known) for v in operands):
                # A hidden constant is seen by the passes; what it is hidden from, `passes.keep_order` knows.
                pairs = zip(operands, eqn.outvars, strict=True)
                results = [Known(v.value if np.shape(v.value) else np.asarray(v.value, x.aval.dtype)) for v, x in pairs]
            elif (inner := called_jaxpr(eqn)) is not None:
                results = walk(inner, operands, where)
            elif name == "transpose" and (operands[0], eqn.params["permutation"]) in undone:
                results = [undone[operands[0], eqn.params["permutation"]]]
            elif name in _RESHAPES and (origins.get(operands[0], operands[0]), eqn.outvars[0].aval.shape) in shaped:
                results = [shaped[origins.get(operands[0], operands[0]), eqn.outvars[0].aval.shape]]
            else:
                results = list(range(len(types), len(types) + len(eqn.outvars)))
                types.extend(v.aval for v in eqn.outvars)
                operations.append(Operation(eqn, tuple(operands), tuple(results), where))
                if name == "transpose" and not isinstance(operands[0], Known):
                    undone[results[0], tuple(np.argsort(eqn.params["permutation"]))] = operands[0]
                if name in _RESHAPES and not isinstance(operands[0], Known):
                    first = origins[results[0]] = origins.get(operands[0], operands[0])
                    shaped.update({(first, types[first].shape): first, (first, types[results[0]].shape): results[0]})
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    count = len(types)
    outputs = walk(closed, range(count), "")
    return Program(tuple(operations), tuple(types), count, tuple(outputs))


def _joined(*scopes: str) -> str:
    return "/".join(filter(None, scopes))


def _chosen(platforms: Sequence[Any], platform: str) -> int:
    """The position of the branch for a platform; None stands for all others."""
    return next(k for k, names in enumerate(platforms) if names is None or platform in names)


def evaluate(
    operations: Iterable[Any],
    values: dict[Any, Any],
    outputs: Iterable[Any],
    bind: Callable[[Any, Sequence[Any]], Sequence[Any]] = lambda operation, operands: operation.bind(operands),
) -> list[Any]:
    """Runs operations on values by number, which it adds to; returns the outputs.

    operations: or what has operands, results and a scope as they have. bind: what runs one of them.
    """

    def read(operand: Any) -> Any:
        return operand.value if isinstance(operand, Known) else values[operand]

    for operation in operations:
        with jax.named_scope(operation.scope):
            found = bind(operation, list(map(read, operation.operands)))
        values.update(zip(operation.results, found, strict=True))
    return [read(output) for output in outputs]


def needed(operations: Sequence[Any], outputs: Iterable[Any]) -> list[Any]:
    """The operations that these outputs need, and those with effects."""
    wanted = {v for v in outputs if not isinstance(v, Known)}
    found: list[Any] = []
    for operation in reversed(operations):
        if operation.effects or not wanted.isdisjoint(operation.results):
            found.append(operation)
            wanted.update(v for v in operation.operands if not isinstance(v, Known))
    return found[::-1]
