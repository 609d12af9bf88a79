"""Computes operations on weights with NumPy: compiling a program that runs once takes longer than this."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.compiler.ir import Constant, Emit, Operand, Operation, Program

_Rule = Callable[..., np.ndarray]
# Bytes. A JAX array on a CPU can share the memory of a NumPy array that begins at a multiple of this.
_ALIGNMENT = 64


def _broadcast(x: np.ndarray, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...], **_: Any) -> np.ndarray:
    sizes = [1] * len(shape)
    for size, axis in zip(x.shape, broadcast_dimensions, strict=True):
        sizes[axis] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def _sliced(x: np.ndarray, start_indices: Any, limit_indices: Any, strides: Any) -> np.ndarray:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _rows(x: np.ndarray, indices: np.ndarray, **_: Any) -> np.ndarray:
    return x.take(indices[..., 0], 0, mode="clip")  # as XLA does for indices that are promised to be in bounds


# The name of an operation whose result is a constant. It gives the constant a number, as other values have one.
CONSTANT = "constant"
# Primitives that move elements of any type, or choose among them.
_MOVES: dict[str, _Rule] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "convert_element_type": lambda x, new_dtype, **_: x.astype(new_dtype),
    "gather": _rows,
    CONSTANT: lambda x: x,
    "optimization_barrier": lambda x: x,
    "reshape": lambda x, new_sizes, **_: x.reshape(new_sizes),
    "select_n": lambda index, *cases: np.choose(index, cases) if index.ndim else cases[int(index)],
    "slice": _sliced,
    "stop_gradient": lambda x: x,
    "stored": lambda x: x,
    "squeeze": lambda x, dimensions: np.squeeze(x, dimensions),
    "transpose": lambda x, permutation: x.transpose(permutation),
}
# Primitives whose results IEEE 754 defines (almost) to the last digit for float32 and float64; integers wrap around.
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
_FLOATS = {*_WIDE, "bfloat16"}  # conversions between these, and from integers to these, round to the nearest
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
# The types for which NumPy and XLA compute the same; a sum of floats is left out, as it depends on the order.
_TYPES = dict.fromkeys(_ARITHMETIC, _WIDE) | dict.fromkeys(("add", "mul", "ne", "neg", "sub"), _WIDE | _INTEGERS)
_TYPES["reduce_sum"] = _INTEGERS


def numpy_computable(program: Program) -> set[int]:
    """Returns the values of a program that NumPy can compute from its inputs with the results of XLA."""
    values = set(program.inputs)

    def has(operand: Any, dtypes: set[str]) -> bool:
        return isinstance(operand, Constant) or program.types[operand].dtype.name in dtypes

    for operation in program.operations:
        operands = operation.operands
        if operation.name == "convert_element_type":
            exact = has(operands[0], _INTEGERS) and has(operation.results[0], _INTEGERS | _WIDE)
            runs = exact or all(has(v, _FLOATS) for v in (*operands, *operation.results))
        elif operation.name == "gather":
            runs = _takes_rows(program, operation)
        elif operation.name in _ARITHMETIC:
            runs = all(has(v, _TYPES[operation.name]) for v in operands)
        else:
            runs = operation.name in _MOVES and len(operation.results) == 1
        if runs and all(isinstance(v, Constant) or v in values for v in operands):
            values.update(operation.results)
    return values


def _takes_rows(program: Program, operation: Operation) -> bool:
    """Returns True if a gather replaces each index by the row of the first axis that it selects."""
    x, result, params = operation.operands[0], program.types[operation.results[0]], operation.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    last = tuple(range(len(result.shape) - len(sizes) + 1, len(result.shape)))
    takes_rows = isinstance(x, int) and sizes == (1, *program.types[x].shape[1:])
    along = numbers.collapsed_slice_dims == numbers.start_index_map == (0,) and numbers.offset_dims == last
    return takes_rows and along and params["mode"].name == "PROMISE_IN_BOUNDS"


@dataclass(frozen=True, eq=False)
class PortableOperation:
    """An operation without objects of JAX, so that it can be written to a file."""

    name: str
    params: Mapping[str, Any]
    dtypes: tuple[Any, ...]
    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    scope: str = ""
    effects: frozenset[Any] = frozenset()

    def lower(self, operands: Sequence[Any], emit: Emit) -> Sequence[Any]:
        """Computes the results for these operands."""
        return self.emit(operands)

    def emit(self, operands: Sequence[Any], params: Mapping[str, Any] | None = None) -> Sequence[np.ndarray]:
        """Computes the results by NumPy."""
        return run_numpy(self, operands, params)


def portable(operation: Operation | PortableOperation) -> PortableOperation:
    """Converts an operation that NumPy can compute to a form that can be written to a file."""
    pairs = zip(operation.operands, operation.dtypes, strict=True)
    operands = tuple(Constant(np.asarray(v.value, dtype)) if isinstance(v, Constant) else v for v, dtype in pairs)
    return PortableOperation(operation.name, dict(operation.params), operation.dtypes, operands, operation.results)


def run_numpy(
    operation: Operation | PortableOperation, operands: Sequence[Any], params: Mapping[str, Any] | None = None, /
) -> Sequence[np.ndarray]:
    """Computes the result of an operation on NumPy arrays."""
    rule = _MOVES.get(operation.name) or _ARITHMETIC[operation.name]
    pairs = zip(operands, operation.dtypes, strict=True)
    arrays = [x if isinstance(x, np.ndarray) else np.asarray(x, dtype) for x, dtype in pairs]
    with np.errstate(all="ignore"):  # XLA returns inf and NaN without a warning
        return [rule(*arrays, **(operation.params if params is None else params))]


def shareable(sizes: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Returns an uninitialized array that `jax.device_put` does not copy on a CPU."""
    size = math.prod(sizes) * dtype.itemsize
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size].view(dtype).reshape(sizes)


def on_device(x: np.ndarray) -> jax.Array:
    """Returns a JAX array of a copy of the elements, whose memory nothing else refers to."""
    copy = shareable(x.shape, x.dtype)
    copy[...] = x
    return jax.device_put(copy)
