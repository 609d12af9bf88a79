"""Splits of prepared values on a mesh: an axis of one is split like the axis of the weight that it comes from."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jax.sharding import PartitionSpec

from jaxops.compiler.axis_rules import independent_axes
from jaxops.compiler.ir import Operation
from jaxops.compiler.primitives import sizes_of

# For each axis the axes of the mesh that split it, or None.
Split = tuple[Any, ...]


def splits_of(operations: Iterable[Any], weights: Mapping[int, Split], outputs: Sequence[int]) -> list[Split]:
    """Returns how a mesh splits values. weights: how it splits the weights, by the numbers of values.

    An operation splits its results where it computes each entry from one entry of a split operand; a constraint in the
    program comes before.
    """
    splits = dict(weights)
    for operation in operations:
        known = [splits.get(v, ()) for v in operation.operands]
        # Constants have no equation.
        found = _split(operation, known) if isinstance(operation, Operation) and operation.results else ()
        splits |= dict.fromkeys(operation.results, found)
    return [splits[v] for v in outputs]


def _split(operation: Operation, operands: Sequence[Split]) -> Split:
    equation = operation.equation
    sizes, result = list(map(sizes_of, equation.invars)), sizes_of(equation.outvars[0])
    entries: list[Any] = [None] * len(result)
    for axis in independent_axes(operation.name, operation.params, sizes, result):
        pairs = zip(operands, axis.operands, strict=True)
        found = [split[k] for split, k in pairs if k is not None and k < len(split) and split[k] is not None]
        if found and found[0] not in entries:
            entries[axis.result] = found[0]
    if operation.name == "sharding_constraint":
        for k, entry in enumerate(operation.params["sharding"].spec):
            if entry is not PartitionSpec.UNCONSTRAINED:
                entries[k] = entry
    return tuple(entries)
