"""Operations on weights by NumPy: to compile a program that runs once takes longer than to run it here."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.compiler.ir import Known, Operation, Program

_Rule = Callable[..., np.ndarray]
# Where an array of NumPy begins whose memory an array of JAX on a CPU may share.
_ALIGNMENT = 64


def _spread(x: np.ndarray, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...], **_: Any) -> np.ndarray:
    sizes = [1] * len(shape)
    for size, axis in zip(x.shape, broadcast_dimensions, strict=True):
        sizes[axis] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def _sliced(x: np.ndarray, start_indices: Any, limit_indices: Any, strides: Any) -> np.ndarray:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _rows(x: np.ndarray, indices: np.ndarray, **_: Any) -> np.ndarray:
    return x.take(indices[..., 0], 0, mode="clip")  # as XLA reads where an index is promised to be right


# The name of a step that gives a constant: a value for itself.
NUMBER = "number"
# What moves elements of any type, or chooses among them.
_MOVES: dict[str, _Rule] = {
    "broadcast_in_dim": _spread,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "convert_element_type": lambda x, new_dtype, **_: x.astype(new_dtype),
    "expand_dims": lambda x, dimensions: np.expand_dims(x, dimensions),
    "gather": _rows,
    NUMBER: lambda x: x,
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
        elif operation.name == "gather":
            runs = _takes_rows(program, operation)
        elif operation.name in _ARITHMETIC:
            runs = all(has(v, _TYPES[operation.name]) for v in operands)
        else:
            runs = operation.name in _MOVES and len(operation.results) == 1
        if runs and all(isinstance(v, Known) or v in found for v in operands):
            found.update(operation.results)
    return found


def _takes_rows(program: Program, operation: Operation) -> bool:
    """Whether a gather reads whole rows of the first axis, and puts each where its index was."""
    x, result, params = operation.operands[0], program.types[operation.results[0]], operation.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    last = tuple(range(len(result.shape) - len(sizes) + 1, len(result.shape)))
    whole = isinstance(x, int) and sizes == (1, *program.types[x].shape[1:])
    along = numbers.collapsed_slice_dims == numbers.start_index_map == (0,) and numbers.offset_dims == last
    return whole and along and params["mode"].name == "PROMISE_IN_BOUNDS"


@dataclass(frozen=True, eq=False)
class Step:
    """An operation without what JAX alone knows of it: a file can keep it."""

    name: str
    params: Mapping[str, Any]
    dtypes: tuple[Any, ...]
    operands: tuple[int | Known, ...]
    results: tuple[int, ...]
    scope: str = ""
    effects: frozenset[Any] = frozenset()

    def bind(self, operands: Sequence[Any]) -> Sequence[np.ndarray]:
        """The results for these operands."""
        return bind(self, operands)


def step(operation: Operation | Step) -> Step:
    """An operation that NumPy computes, as a step."""
    pairs = zip(operation.operands, operation.dtypes, strict=True)
    operands = tuple(Known(np.asarray(v.value, dtype)) if isinstance(v, Known) else v for v, dtype in pairs)
    return Step(operation.name, dict(operation.params), operation.dtypes, operands, operation.results)


def bind(operation: Operation | Step, operands: Sequence[Any]) -> Sequence[np.ndarray]:
    """The result of an operation on NumPy arrays."""
    rule = _MOVES.get(operation.name) or _ARITHMETIC[operation.name]
    pairs = zip(operands, operation.dtypes, strict=True)
    arrays = [x if isinstance(x, np.ndarray) else np.asarray(x, dtype) for x, dtype in pairs]
    with np.errstate(all="ignore"):  # XLA gives inf and NaN without a word
        return [rule(*arrays, **operation.params)]


def shareable(sizes: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An array, not set, that `jax.device_put` does not copy on a CPU."""
    size = math.prod(sizes) * dtype.itemsize
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size].view(dtype).reshape(sizes)


def on_device(x: np.ndarray) -> jax.Array:
    """The elements in memory of their own, which nothing else keeps."""
    copy = shareable(x.shape, x.dtype)
    copy[...] = x
    return jax.device_put(copy)
