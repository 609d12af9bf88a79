"""Functions that the elementwise operators share."""

import functools
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from jaxops.dtypes import SUB_BYTE, TYPES_OF_SIZES, as_traced, is_float, number, type_name, unify
from jaxops.errors import DTypeError, SignatureError
from jaxops.memory import bounded, bounded_operands
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.static import Array, ArrayLike, Sizes, array, is_symbolic, jit_if_concrete

_KINDS = {
    "boolean": (np.bool_,),
    "integer": (np.integer,),
    "floating-point": (np.floating,),
    "numbers": (np.number,),
    "real numbers": (np.integer, np.floating),
    "real numbers or booleans": (np.integer, np.floating, np.bool_),
}

# The most operands in one elementwise operation of XLA; see `_combined`.
_MOST_FUSED = 128


def require(kind: str, *arrays: Array) -> None:
    """Raises DTypeError unless all arrays are of this kind and of 8 bits or more; symbolic sizes are int64."""
    for a in arrays:
        if not _fits(a.dtype, kind) and not (is_symbolic(a) and _fits(np.dtype(np.int64), kind)):
            size = " of 8 bits or more" if a.dtype.name in SUB_BYTE else ""
            raise DTypeError(f"operands must be {kind}{size}, got {type_name(a)}; convert with jaxops.cast")


@functools.cache
def _fits(dtype: Any, kind: str) -> bool:
    return dtype.name not in SUB_BYTE and any(jnp.issubdtype(dtype, abstract_type) for abstract_type in _KINDS[kind])


def operands(values: Sequence[Any], kind: str | None = None) -> tuple[Array, ...]:
    """Operands of one element type; a Python number takes the type of the arrays, or raises ArgumentError.

    kind: the kind that `require` checks; None allows every type.
    """
    if not values:
        raise SignatureError("there are no operands; at least one is needed")
    typed = next((v.dtype for v in values if isinstance(v, jax.Array | np.ndarray)), None)
    if typed is not None and typed.kind not in "OUST":
        values = [_adopt(v, typed) for v in values]
    arrays = unify(tuple(values))
    if kind is not None:
        require(kind, *arrays)
    return arrays


def _adopt(value: Any, dtype: Any) -> Any:
    if not (type(value) is int or (type(value) is float and is_float(dtype))):
        return value
    return number("the number", value, dtype)


def on_sizes(fn: Callable[..., Any], *arrays: Any) -> Any:
    """Maps `fn`, a function of single elements, over object arrays."""
    # For 0-d operands np.frompyfunc returns a bare scalar.
    return np.asarray(np.frompyfunc(fn, len(arrays), 1)(*arrays), object)


def on_facts(fn: Callable[..., bool], *arrays: Any) -> Any:
    """`on_sizes` with a boolean result."""
    return on_sizes(fn, *arrays).astype(bool)


def symbolic(*arrays: Any) -> bool:
    """Returns True if one of the operands holds a symbolic size."""
    return any(is_symbolic(a) for a in arrays)


def traced_if_symbolic(*arrays: Array) -> tuple[Any, ...]:
    """Operands of an operator that cannot compute with symbolic sizes: if one holds any, all become JAX arrays.

    The sizes, whose integer type is open, get the type of the other operands.
    """
    if not symbolic(*arrays):
        return arrays
    dtype = next((a.dtype for a in arrays if not is_symbolic(a) and a.dtype in TYPES_OF_SIZES), None)
    return tuple(as_traced(a, dtype) if is_symbolic(a) else as_traced(a) for a in arrays)


def traced_operands(values: Sequence[Any], kind: str) -> tuple[jax.Array, ...]:
    """Operands of one element type, of a kind that `require` checks, as JAX arrays."""
    return tuple(as_traced(v) for v in operands(values, kind))


def pair(kind: str, a: ArrayLike, b: ArrayLike) -> tuple[Array, ...]:
    """Two operands of one element type, of a kind that `require` checks.

    With the kind "integer", operands that hold symbolic sizes become JAX arrays.
    """
    if kind == "integer" and symbolic(a, b):
        a, b = traced_if_symbolic(array(a), array(b))
    arrays = operands((a, b))
    require(kind, *arrays)
    return arrays


def broadcast_to(x: Array, sizes: Sizes) -> jax.Array:
    """An operand broadcast to the sizes of the result."""
    x = as_traced(x)
    if x.shape == sizes:
        return x
    return lax.broadcast_in_dim(x, sizes, tuple(range(len(sizes) - x.ndim, len(sizes))))


@jit_if_concrete
def broadcast_reduce(arrays: tuple[Array, ...], static_fn: Callable[..., Any], traced_fn: Callable[..., Any]) -> Any:
    """Broadcasts the operands to each other and combines them from left to right."""
    sizes = broadcast(*(a.shape for a in arrays))
    if isinstance(arrays[0], np.ndarray):
        bounded(sizes, max(a.dtype.itemsize for a in arrays))
        with np.errstate(all="ignore"):
            return np.asarray(reduce(static_fn, arrays))
    return assert_sizes(_combined(traced_fn, [broadcast_to(a, sizes) for a in arrays]), sizes)


def _combined(fn: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """Combines arrays from left to right.

    Of many arrays, blocks are functions that XLA does not inline: it fuses elementwise operations without limit, and
    the time to compile a fusion grows with the square of its operands.
    """
    if len(arrays) <= _MOST_FUSED:
        return reduce(fn, arrays)
    result, block = arrays[0], jax.jit(lambda *operands: reduce(fn, operands))
    for start in range(1, len(arrays), _MOST_FUSED):
        with set_xla_metadata(inlineable="false"):
            result = block(result, *arrays[start : start + _MOST_FUSED])
    return result


@jit_if_concrete
def _unary(x: Array, static_fn: Callable[..., Any], traced_fn: Callable[..., Any]) -> Array:
    if isinstance(x, np.ndarray):
        with np.errstate(all="ignore"):
            return np.asarray(static_fn(x))
    return traced_fn(x)


def unary(x: Any, static_fn: Callable[..., Any], traced_fn: Callable[..., Any]) -> Any:
    """Applies `static_fn`, of NumPy, to a static operand, and `traced_fn`, of JAX, to a traced one."""
    return _unary(array(x), static_fn, traced_fn)


def one_of_kind(kind: str, value: Any) -> jax.Array:
    """One operand of a kind; see `require`."""
    x = array(value)
    bounded_operands((x,))
    require(kind, x)
    return x
