"""How values that depend on parameters alone are computed, once, and what tells one from another."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.compiler import numpy_interpreter
from jaxops.compiler.fingerprint import digest, said
from jaxops.compiler.ir import Known, Program, evaluate, needed
from jaxops.compiler.partition.weight_only import Division
from jaxops.compiler.xla_options import compiler_options
from jaxops.lazy_array import current

_UNLIKE = itertools.count()


@dataclass(frozen=True)
class Preparation:
    """operations: what computes the values, of parameters by number. here: those that NumPy computes.

    expressions: what each value is, the same text in each program of a model, and in each process.
    """

    operations: tuple[Any, ...]
    values: tuple[int, ...]
    types: tuple[Any, ...]
    expressions: tuple[str, ...]
    here: frozenset[int]

    def computed(self, found: dict[str, Any], weights: Sequence[Any]) -> tuple[Any, ...]:
        """The values. found: expression → value, for what is computed already; gets the rest. weights: by number."""
        missing = {v: e for v, e in zip(self.values, self.expressions, strict=True) if e not in found}
        for compute, wanted in (
            (_by_numpy, [v for v in missing if v in self.here]),
            (_compiled, [v for v in missing if v not in self.here]),
        ):
            if wanted:
                operations = needed(self.operations, wanted)
                read = {v for o in operations for v in o.operands if isinstance(v, int) and v < len(weights)}
                results = compute(operations, {v: weights[v] for v in read}, wanted)
                found.update(zip([missing[v] for v in wanted], results, strict=True))
        return tuple(found[e] for e in self.expressions)

    def portable(self) -> "Preparation | None":
        """The same for a file; None where XLA computes a part of it."""
        if not self.here.issuperset(self.values):
            return None
        return dataclasses.replace(self, operations=tuple(map(numpy_interpreter.step, self.operations)))


def preparation(program: Program, division: Division, names: Mapping[int, str], weights: Sequence[Any]) -> Preparation:
    """How what a division prepares is computed. names, weights: of the parameters, by number."""
    operations = needed(division.known, division.prepared)
    here = numpy_interpreter.computed(program, operations, (v for v, x in enumerate(weights) if x.is_fully_addressable))
    known = _expressions(program, operations, names)
    values = tuple(division.prepared)
    return Preparation(
        tuple(operations),
        values,
        tuple(jax.ShapeDtypeStruct(program.types[v].shape, program.types[v].dtype) for v in values),
        tuple(known[v] for v in values),
        frozenset(here.intersection(values)),
    )


def _by_numpy(operations: Sequence[Any], given: Mapping[int, Any], wanted: Sequence[int]) -> list[Any]:
    """Lets go of each weight, and of what is between, as soon as it can: all at once may take several times as much."""
    values: dict[int, np.ndarray] = {}
    last = {v: operation for operation in operations for v in operation.operands if isinstance(v, int)}
    found = dict.fromkeys(wanted)
    for operation in operations:
        missing = given.keys() & {v for v in operation.operands if isinstance(v, int)} - values.keys()
        values.update((v, np.asarray(given[v])) for v in missing)
        evaluate([operation], values, (), numpy_interpreter.bind)
        for v in found.keys() & set(operation.results):
            found[v] = numpy_interpreter.on_device(values[v])
            values[v] = np.asarray(found[v])  # the one that it was made of may be a view of a weight
        for v in {v for v in (*operation.operands, *operation.results) if last.get(v, operation) is operation}:
            values.pop(v, None)
    return list(found.values())


def _compiled(operations: Sequence[Any], given: Mapping[int, Any], wanted: Sequence[int]) -> list[Any]:
    arrays = {v: current(x) for v, x in given.items()}
    # The options of the program that reads them: its maxima keep NaNs only with those.
    options = compiler_options(operations)
    return jax.jit(lambda given: evaluate(operations, dict(given), wanted), compiler_options=options)(arrays)


def _expressions(program: Program, operations: Sequence[Any], names: Mapping[int, str]) -> dict[int, str]:
    """For each value that depends on parameters alone, the digest of its expression."""
    found = {v: _digest("parameter", name) for v, name in names.items()}
    for operation in operations:
        operands = [(v.value,) if isinstance(v, Known) else found[v] for v in operation.operands]
        made = [str(program.types[v]) for v in operation.results]
        key = _digest(operation.name, sorted(operation.params.items()), operands, made)
        found.update((v, _digest(key, place)) for place, v in enumerate(operation.results))
    return found


def _digest(*parts: Any) -> str:
    """What no text says, a program, equals nothing."""
    return digest(said(parts, lambda _: f"unlike any other {next(_UNLIKE)}").encode())
