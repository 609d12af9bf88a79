"""Operations on weights by NumPy: to compile a program that runs once takes longer than to run it here."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxops.graph.program import Known, Operation, Program

_Rule = Callable[..., np.ndarray]


def _spread(x: np.ndarray, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...], **_: Any) -> np.ndarray:
    sizes = [1] * len(shape)
    for size, axis in zip(x.shape, broadcast_dimensions, strict=True):
        sizes[axis] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def _sliced(x: np.ndarray, start_indices: Any, limit_indices: Any, strides: Any) -> np.ndarray:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


# What moves elements of any type, or chooses among them.
_MOVES: dict[str, _Rule] = {
    "broadcast_in_dim": _spread,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "convert_element_type": lambda x, new_dtype, **_: x.astype(new_dtype),
    "expand_dims": lambda x, dimensions: np.expand_dims(x, dimensions),
    "optimization_barrier": lambda x: x,
    "reshape": lambda x, new_sizes, **_: x.reshape(new_sizes),
    "select_n": lambda which, *cases: np.choose(which, cases) if which.ndim else cases[int(which)],
    "slice": _sliced,
    "stop_gradient": lambda x: x,
    "squeeze": lambda x, dimensions: np.squeeze(x, dimensions),
    "transpose": lambda x, permutation: x.transpose(permutation),
}
# What IEEE defines to the last digit, or nearly so, for wide floats; integers wrap around.
_ARITHMETIC: dict[str, _Rule] = {
    "add": lambda x, y, **_: x + y,
    "div": lambda x, y, **_: x / y,
    "mul": lambda x, y, **_: x * y,
    "ne": lambda x, y, **_: x != y,
    "neg": lambda x, **_: -x,
    "reduce_sum": lambda x, axes, **_: x.sum(axes, x.dtype),
    "rsqrt": lambda x, **_: np.asarray(1, x.dtype) / np.sqrt(x),
    "sqrt": lambda x, **_: np.sqrt(x),
    "sub": lambda x, y, **_: x - y,
}


_WIDE = {"float32", "float64"}
_FLOATS = {*_WIDE, "bfloat16"}  # converted to each other by rounding to the nearest, as are integers to them
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
# For which types a rule holds; a sum of floats depends on its order.
_TYPES = dict.fromkeys(_ARITHMETIC, _WIDE) | dict.fromkeys(("add", "mul", "ne", "neg", "sub"), _WIDE | _INTEGERS)
_TYPES["reduce_sum"] = _INTEGERS


def computed(program: Program, operations: Sequence[Operation], given: Iterable[int]) -> set[int]:
    """The values that NumPy computes from given ones as XLA does."""
    found = set(given)

    def has(operand: Any, dtypes: set[str]) -> bool:
        return isinstance(operand, Known) or program.types[operand].dtype.name in dtypes

    for operation in operations:
        operands = operation.operands
        if operation.name == "convert_element_type":
            whole = has(operands[0], _INTEGERS) and has(operation.results[0], _INTEGERS | _WIDE)
            runs = whole or all(has(v, _FLOATS) for v in (*operands, *operation.results))
        elif operation.name in _ARITHMETIC:
            runs = all(has(v, _TYPES[operation.name]) for v in operands)
        else:
            runs = operation.name in _MOVES and len(operation.results) == 1
        if runs and all(isinstance(v, Known) or v in found for v in operands):
            found.update(operation.results)
    return found


def bind(operation: Operation, operands: Sequence[Any]) -> Sequence[np.ndarray]:
    """The result of an operation on NumPy arrays."""
    rule = _MOVES.get(operation.name) or _ARITHMETIC[operation.name]
    kinds = [v.aval.dtype for v in operation.equation.invars]
    arrays = [x if isinstance(x, np.ndarray) else np.asarray(x, kind) for x, kind in zip(operands, kinds, strict=True)]
    with np.errstate(all="ignore"):  # XLA gives inf and NaN without a word
        return [rule(*arrays, **operation.equation.params)]
