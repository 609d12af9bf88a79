"""A traced program as one list of operations on numbered values."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from jaxops.compiler.primitives import xla_metadata
from jaxops.static import Sizes, Tracer


@dataclass(frozen=True, eq=False)
class Constant:
    """An operand that is a constant of the program."""

    value: Any


def reads_tracers(closed: Any) -> bool:
    """Returns True if a closed jaxpr has a constant that JAX traces: a caller's function read it from around itself."""
    return any(isinstance(constant, Tracer) for constant in closed.consts)


# The number of a value of the program, or a constant.
Operand = int | Constant


class Emit(Protocol):
    """Computes the results of an operation for these operands; `params`, if present, replace its parameters."""

    def __call__(
        self, operation: Any, operands: Sequence[Any], params: Mapping[str, Any] | None = None, /
    ) -> Sequence[Any]: ...


@dataclass(frozen=True, eq=False)
class Operation:
    """An equation, with the numbers of its operands (or constants), and of its results."""

    equation: Any
    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    scope: str

    @property
    def name(self) -> str:
        """The name of its primitive."""
        return self.equation.primitive.name

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of its primitive."""
        return self.equation.params

    @property
    def dtypes(self) -> tuple[Any, ...]:
        """The types of its operands."""
        return tuple(v.aval.dtype for v in self.equation.invars)

    @property
    def effects(self) -> Any:
        """The effects besides computing its results."""
        return self.equation.effects

    def sizes(self, before: Sizes) -> Sizes:
        """Returns the sizes of the result of a reshape or a squeeze, from those of its operand."""
        if self.name == "reshape":
            return tuple(self.params["new_sizes"])
        return tuple(size for axis, size in enumerate(before) if axis not in self.params["dimensions"])

    def lower(self, operands: Sequence[Any], emit: Emit) -> Sequence[Any]:
        """Computes the results for these operands."""
        return emit(self, operands)

    def emit(self, operands: Sequence[Any], params: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Binds the primitive: runs it, or adds it to the program that is being traced."""
        return emitted(self.equation, operands, params)


@dataclass(frozen=True)
class Program:
    """A function: operations in the order in which they run, on numbered values.

    operations: each is an `Operation`, a `PortableOperation` or, after the pass `block_attention`, a `Loop`; all have a
    name, params, operands, results, a scope, effects, and `lower`. types: the type of each value, by number. inputs:
    the numbers of the arguments. outputs: numbers, or constants.
    """

    operations: tuple[Any, ...]
    types: tuple[Any, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Operand, ...]

    @classmethod
    def of(cls, program: Any, inlined: Callable[[Any], Any] = lambda _: None) -> Self:
        """Makes a program of a jaxpr, perhaps a closed one: an operation for each equation. Its inputs are 0, 1, …

        inlined: equation → the jaxpr that is written out in its place, or None.
        """
        types, operations = [v.aval for v in getattr(program, "jaxpr", program).invars], list[Operation]()

        def walk(jaxpr: Any, operands: Sequence[Operand], outer: str) -> list[Operand]:
            def add(equation: Any, operands: Sequence[Operand]) -> Sequence[Operand]:
                scope = "/".join(filter(None, (outer, str(equation.source_info.name_stack))))
                if (inner := inlined(equation)) is not None:
                    return walk(inner, operands, scope)
                results = tuple(range(len(types), len(types) + len(equation.outvars)))
                types.extend(v.aval for v in equation.outvars)
                operations.append(Operation(equation, tuple(operands), results, scope))
                return results

            return interpret(jaxpr, operands, add, lambda value, _: Constant(value))

        inputs = tuple(range(len(types)))
        outputs = walk(program, inputs, "")
        return cls(tuple(operations), tuple(types), inputs, tuple(outputs))

    @cached_property
    def producers(self) -> Mapping[Any, int]:
        """The position of the operation that computes a value, by the number of the value."""
        return {v: position for position, operation in enumerate(self.operations) for v in operation.results}

    def producer(self, value: Operand) -> Any:
        """Returns the operation that computes a value; None for an input and for a constant."""
        return self.operations[self.producers[value]] if value in self.producers else None

    @cached_property
    def readers(self) -> Mapping[Any, Sequence[int]]:
        """The positions of the operations that read a value, in ascending order.

        An output counts as read at the position after the last operation.
        """
        readers: dict[Any, list[int]] = {}
        for position, operation in enumerate(self.operations):
            for v in dict.fromkeys(operation.operands):
                readers.setdefault(v, []).append(position)
        for v in dict.fromkeys(self.outputs):
            readers.setdefault(v, []).append(len(self.operations))
        return readers

    @property
    def results(self) -> tuple[int, ...]:
        """The outputs that are not constants."""
        return tuple(v for v in self.outputs if isinstance(v, int))

    def replace(self, **changes: Any) -> Self:
        """Returns the program with other fields."""
        return dataclasses.replace(self, **{k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()})

    def needed(self) -> Self:
        """Returns the program without the operations whose results no output needs and that have no effects."""
        return self.replace(operations=needed(self.operations, self.outputs))

    def __str__(self) -> str:
        lines = [f"inputs {', '.join(map(self._named, self.inputs))}"]
        for operation in self.operations:
            params = " ".join(f"{k}={v}" for k, v in operation.params.items() if v is not None)
            operands = " ".join(f"%{v}" if isinstance(v, int) else f"{v.value}" for v in operation.operands)
            head = f"{', '.join(map(self._named, operation.results))} = {operation.name}"
            lines.append(f"{head}[{params}] {operands}" if params else f"{head} {operands}")
        outputs = (f"%{v}" if isinstance(v, int) else f"{v.value}" for v in self.outputs)
        return "\n".join([*lines, f"outputs {', '.join(outputs)}"])

    def _named(self, value: int) -> str:
        return f"%{value}:{self.types[value].str_short()}"


def emitted(equation: Any, operands: Sequence[Any], params: Mapping[str, Any] | None = None) -> Sequence[Any]:
    """Binds the primitive of an equation. params: in place of its own."""
    primitive, metadata = equation.primitive, xla_metadata(equation)
    with set_xla_metadata(**metadata) if metadata else contextlib.nullcontext():
        results = primitive.bind(*operands, **primitive.get_bind_params(equation.params if params is None else params))
    return results if primitive.multiple_results else [results]


def interpret(
    program: Any,
    operands: Iterable[Any],
    compute: Callable[[Any, list[Any]], Iterable[Any]],
    constant: Callable[[Any, Any], Any] = lambda value, aval: value,
) -> list[Any]:
    """Returns the results of a jaxpr, which may be closed over constants.

    compute: gives the results of an equation for its operands. constant: makes an operand of a value and its type.
    """
    jaxpr = getattr(program, "jaxpr", program)
    constants = (constant(x, v.aval) for x, v in zip(getattr(program, "consts", ()), jaxpr.constvars, strict=True))
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *operands], strict=True))

    def read(v: Any) -> Any:
        return constant(v.val, v.aval) if hasattr(v, "val") else values[v]

    for equation in jaxpr.eqns:
        values.update(zip(equation.outvars, compute(equation, list(map(read, equation.invars))), strict=True))
    return list(map(read, jaxpr.outvars))


def plain(operation: Any, operands: Sequence[Any], params: Mapping[str, Any] | None = None, /) -> Sequence[Any]:
    """Computes the results of an operation by its own primitive."""
    return operation.emit(operands, params)


def evaluate(
    operations: Iterable[Any], values: dict[Any, Any], outputs: Iterable[Any], emit: Emit = plain
) -> list[Any]:
    """Runs operations on `values`, a dictionary by number to which it adds their results; returns the outputs."""

    def read(operand: Any) -> Any:
        return operand.value if isinstance(operand, Constant) else values[operand]

    for operation in operations:
        with jax.named_scope(operation.scope):
            results = operation.lower(list(map(read, operation.operands)), emit)
        values.update(zip(operation.results, results, strict=True))
    return [read(output) for output in outputs]


def run(program: Program, arguments: Iterable[Any], emit: Emit = plain) -> list[Any]:
    """Computes the outputs of a program."""
    values = dict(zip(program.inputs, arguments, strict=True))
    return evaluate(program.operations, values, program.outputs, emit)


def needed(operations: Sequence[Any], outputs: Iterable[Any]) -> list[Any]:
    """Returns the operations that these outputs need, and the operations with effects."""
    live = {v for v in outputs if isinstance(v, int)}
    reversed_: list[Any] = []
    for operation in reversed(operations):
        if operation.effects or not live.isdisjoint(operation.results):
            reversed_.append(operation)
            live.update(v for v in operation.operands if isinstance(v, int))
    return reversed_[::-1]


def operation_of(
    fn: Callable[..., Any], operands: Sequence[Operand], results: Sequence[int], types: Sequence[Any], scope: str
) -> Operation:
    """Returns the operation of a function that binds one primitive. types: those of all values, by number."""
    arguments = [types[v] if isinstance(v, int) else v.value for v in operands]
    arguments = [jax.ShapeDtypeStruct(x.shape, x.dtype) if hasattr(x, "dtype") else x for x in arguments]
    (equation,) = jax.make_jaxpr(fn)(*arguments).eqns
    return Operation(equation, tuple(operands), tuple(results), scope)
