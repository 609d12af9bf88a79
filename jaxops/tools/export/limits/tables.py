"""Sizes beyond which a program would read past the end of a table, such as that of positions.

A program cannot raise an error, and would read NaN there. So an export needs the limit.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxops.compiler.ir import interpret
from jaxops.compiler.primitives import IN_ORDER, called_jaxpr
from jaxops.errors import BoundsError
from jaxops.shapes.arithmetic import at_least
from jaxops.static import Dim, Undecided, is_symbolic

# What changes neither the largest element nor the smallest.
_KEEPS = IN_ORDER | {"convert_element_type", "transpose", "rev"}


class _Between(NamedTuple):
    """The smallest and the largest element of an array of integers, perhaps symbolic."""

    smallest: Dim
    largest: Dim


# A comparison that holds for no element, such as that with 0 before indices are counted from the end.
_NEVER = _Between(0, 0)


def check_tables(closed: Any) -> None:
    """Raises SizeError if symbolic sizes decide whether a gather reads past the end of its table, BoundsError if it
    does for all sizes. closed: a closed jaxpr; looked at are positions that count up to a size.
    """

    def compute(eqn: Any, operands: Sequence[Any]) -> Sequence[Any]:
        if (inner := called_jaxpr(eqn)) is not None:
            return interpret(inner, operands, compute, _constant)
        if eqn.primitive.name == "gather" and operands[1] is not None:
            _check(eqn, operands[1])
        try:
            result = _between(eqn, operands)
        except Undecided:
            result = None
        return [result, *[None] * (len(eqn.outvars) - 1)]

    interpret(closed, [None] * len(closed.in_avals), compute, _constant)


def _constant(value: Any, type: Any) -> _Between | None:
    is_number = np.ndim(value) == 0 and type.dtype.kind in "iu"
    return _Between(int(value), int(value)) if is_number else None


def _between(eqn: Any, operands: Sequence[Any]) -> _Between | None:
    name, x = eqn.primitive.name, operands[0] if operands else None
    if name == "iota":
        return _Between(0, eqn.params["shape"][eqn.params["dimension"]] - 1)
    if name == "dim_as_value":
        return _Between(eqn.params["dim"], eqn.params["dim"])
    if name in _KEEPS:
        return x
    if name == "select_n" and x == _NEVER:
        return operands[1]
    if x is None or any(v is None for v in operands):
        return None
    if name == "lt" and x.smallest >= operands[1].largest:
        return _NEVER
    if name == "add":
        return _Between(*(a + b for a, b in zip(*operands, strict=True)))
    if name == "mul" and all(v.smallest >= 0 for v in operands):
        return _Between(*(a * b for a, b in zip(*operands, strict=True)))
    return None


def _check(eqn: Any, positions: _Between) -> None:
    numbers, sizes = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
    if len(numbers.start_index_map) != 1 or not is_symbolic(positions.largest):
        return
    (axis,) = numbers.start_index_map
    last = sizes[axis] - eqn.params["slice_sizes"][axis]
    where = str(eqn.source_info.name_stack)
    problem = f"gather: position {positions.largest} of a table of {sizes[axis]} rows" + (f", in {where}" * bool(where))
    if not at_least(problem, last, positions.largest):
        raise BoundsError(f"{problem}, which has no such row")
