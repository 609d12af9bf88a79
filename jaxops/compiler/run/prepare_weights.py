"""Computes values that depend on weights alone, once, and recognizes equal ones of several programs."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.compiler import numpy_interpreter
from jaxops.compiler.fingerprint import digest, fingerprint
from jaxops.compiler.ir import Constant, Operand, Program, evaluate, needed
from jaxops.compiler.run.prepared_splits import Split, splits_of
from jaxops.compiler.xla_options import program_options
from jaxops.kernels.target import this_machine
from jaxops.lazy_array import current

_UNIQUE = itertools.count()


@dataclass(frozen=True)
class WeightProgram:
    """A pure function of all weights, in order, that returns the prepared values.

    inputs: the numbers of the weights. outputs: the numbers of the prepared values. types: of the prepared values.
    expressions: a text for each prepared value, equal for equal computations in all programs of a model and in all
    processes. by_numpy: the prepared values that NumPy computes.
    """

    operations: tuple[Any, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    types: tuple[Any, ...]
    expressions: tuple[str, ...]
    by_numpy: frozenset[int]

    @classmethod
    def of(cls, program: Program) -> "WeightProgram":
        """Returns the function of a program whose inputs are the weights."""
        outputs = program.results
        types = tuple(jax.ShapeDtypeStruct(program.types[v].shape, program.types[v].dtype) for v in outputs)
        expressions, by_numpy = _expressions(program), numpy_interpreter.numpy_computable(program)
        texts = tuple(expressions[v] for v in outputs)
        return cls(program.operations, program.inputs, outputs, types, texts, frozenset(by_numpy.intersection(outputs)))

    def __call__(self, weights: Sequence[Any]) -> tuple[Any, ...]:
        """Computes the values; may be traced."""
        return tuple(evaluate(self.operations, dict(zip(self.inputs, weights, strict=True)), self.outputs))

    def cached(self, cache: dict[str, Any], weights: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values, and adds those to the cache that are not in it. cache: expression → value."""
        by_number = dict(zip(self.inputs, weights, strict=True))
        here = self.by_numpy if all(x.is_fully_addressable for x in weights) else frozenset[int]()
        missing = {v: e for v, e in zip(self.outputs, self.expressions, strict=True) if e not in cache}
        for compute, outputs in (
            (_by_numpy, [v for v in missing if v in here]),
            (_by_xla, [v for v in missing if v not in here]),
        ):
            if outputs:
                operations = needed(self.operations, outputs)
                read = {v: by_number[v] for o in operations for v in o.operands if v in by_number}
                results = compute(operations, read, outputs)
                cache.update(zip([missing[v] for v in outputs], results, strict=True))
        return tuple(cache[e] for e in self.expressions)

    def splits(self, weights: Sequence[Split]) -> list[Split]:
        """Returns how a mesh splits the values. weights: how it splits the weights."""
        return splits_of(self.operations, dict(zip(self.inputs, weights, strict=True)), self.outputs)

    def portable(self) -> "WeightProgram | None":
        """Returns the function in a form that can be written to a file; None if XLA computes a part of it."""
        if not self.by_numpy.issuperset(self.outputs):
            return None
        return dataclasses.replace(self, operations=tuple(map(numpy_interpreter.portable, self.operations)))


def _by_numpy(operations: Sequence[Any], weights: Mapping[int, Any], outputs: Sequence[int]) -> list[Any]:
    """Computes values with NumPy, and frees each weight and each intermediate value after its last use, since all of
    them together may need several times the memory."""
    values: dict[int, np.ndarray] = {}
    last = {v: operation for operation in operations for v in operation.operands if isinstance(v, int)}
    results = dict.fromkeys(outputs)
    for operation in operations:
        unread = weights.keys() & {v for v in operation.operands if isinstance(v, int)} - values.keys()
        values.update((v, np.asarray(weights[v])) for v in unread)
        evaluate([operation], values, (), numpy_interpreter.run_numpy)
        for v in results.keys() & set(operation.results):
            results[v] = numpy_interpreter.on_device(values[v])
            values[v] = np.asarray(results[v])  # the value before may be a view of a weight, which should be freed
        for v in {v for v in (*operation.operands, *operation.results) if last.get(v, operation) is operation}:
            values.pop(v, None)
    return list(results.values())


def _by_xla(operations: Sequence[Any], weights: Mapping[int, Any], outputs: Sequence[int]) -> list[Any]:
    # Constants become arguments: XLA would evaluate operations on constants while it compiles, which is slow.
    constants = {o.results[0]: o.operands[0].value for o in operations if o.name == numpy_interpreter.CONSTANT}
    operations = [o for o in operations if o.name != numpy_interpreter.CONSTANT]
    arrays = {v: current(x) for v, x in weights.items()} | constants
    # The options are those of the program that reads the values: with others, a maximum may lose NaNs.
    options = program_options(this_machine(), operations)
    return jax.jit(lambda arrays: evaluate(operations, dict(arrays), outputs), compiler_options=options)(arrays)


def _expressions(program: Program) -> dict[Operand, str]:
    """Returns the digest of the expression of each value."""
    digests: dict[Operand, str] = {v: _digest("weight", position) for position, v in enumerate(program.inputs)}
    for operation in program.operations:
        operands = [(v.value,) if isinstance(v, Constant) else digests[v] for v in operation.operands]
        types = [str(program.types[v]) for v in operation.results]
        key = _digest(operation.name, sorted(operation.params.items()), operands, types)
        digests.update((v, _digest(key, position)) for position, v in enumerate(operation.results))
    return digests


def _digest(*parts: Any) -> str:
    """Returns a digest of the parts. It differs each time if a part has no fingerprint, such as a program."""
    return digest(fingerprint(parts, lambda _: f"unlike any other {next(_UNIQUE)}").encode())
