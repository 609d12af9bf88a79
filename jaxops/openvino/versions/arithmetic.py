"""Arithmetic, comparison and logic of two operands, which broadcast by `auto_broadcast`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, laid_beside
from jaxops.ops import openvino
from jaxops.static import Array, array, is_symbolic

_BINARY = {
    "Add": ops.add,
    "Subtract": ops.sub,
    "Multiply": ops.mul,
    "Power": ops.pow,
    "Equal": ops.equal,
    "Greater": ops.greater,
    "GreaterEqual": ops.greater_or_equal,
    "Less": ops.less,
    "LessEqual": ops.less_or_equal,
    "LogicalAnd": ops.and_,
    "LogicalOr": ops.or_,
    "LogicalXor": ops.xor,
    "Xor": ops.xor,
    "FloorMod": ops.mod,
    "SquaredDifference": openvino.squared_difference,
}


def _broadcasting(op_type: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def adapter(a: Array, b: Array, *, auto_broadcast: Word) -> Array:
        return fn(a, laid_beside(op_type, a, b, auto_broadcast))

    adapter.__name__ = adapter.__qualname__ = fn.__name__
    return adapter


for _name, _function in _BINARY.items():
    version(_name, 1, of=_function)(_broadcasting(_name, _function))


@version("Mod", 1, of=ops.mod)
def mod(a: Array, b: Array, *, auto_broadcast: Word) -> Array:
    """The remainder with the sign of the dividend."""
    return ops.mod(a, laid_beside("Mod", a, b, auto_broadcast), fmod=1)


@version("Divide", 1, of=ops.div)
def divide(a: Array, b: Array, *, auto_broadcast: Word, m_pythondiv: bool) -> Array:
    """Quotients of integers are rounded down with `m_pythondiv`, the default, else towards zero."""
    a, b = array(a), laid_beside("Divide", a, b, auto_broadcast)
    if m_pythondiv and not is_symbolic(a) and not is_symbolic(b) and np.issubdtype(a.dtype, np.integer):
        return floor_div(a, b)
    return ops.div(a, b)


def floor_div(a: Array, b: Array) -> Array:
    """Quotients of integers are rounded down."""
    return ops.div(ops.sub(a, ops.mod(a, b)), b)


@version("Maximum", 1, of=ops.max)
def maximum(a: Array, b: Array, *, auto_broadcast: Word) -> Array:
    return ops.max([a, laid_beside("Maximum", a, b, auto_broadcast)])


@version("Minimum", 1, of=ops.min)
def minimum(a: Array, b: Array, *, auto_broadcast: Word) -> Array:
    return ops.min([a, laid_beside("Minimum", a, b, auto_broadcast)])


@version("NotEqual", 1, of=ops.equal)
def not_equal(a: Array, b: Array, *, auto_broadcast: Word) -> Array:
    return ops.not_(ops.equal(a, laid_beside("NotEqual", a, b, auto_broadcast)))


@version("Select", 1, of=ops.where)
def select(cond: Array, then: Array, else_: Array, *, auto_broadcast: Word) -> Array:
    """With 'pdpd', the axes of the condition and of `else_` align with the first axes of `then`."""
    if auto_broadcast != "numpy":
        cond, else_ = (laid_beside("Select", then, x, auto_broadcast) for x in (cond, else_))
    return ops.where(cond, then, else_)


def _of_bits(fn: Callable[..., Any], boolean: Callable[..., Any]) -> Callable[..., Any]:
    def adapter(a: Array, b: Array, *, auto_broadcast: Word) -> Array:
        b = laid_beside(fn.__name__, a, b, auto_broadcast)
        return boolean(a, b) if array(a).dtype == bool else fn(a, b)

    adapter.__name__ = adapter.__qualname__ = fn.__name__
    return adapter


version("BitwiseAnd", 13, of=ops.bitwise_and)(_of_bits(ops.bitwise_and, ops.and_))
version("BitwiseOr", 13, of=ops.bitwise_or)(_of_bits(ops.bitwise_or, ops.or_))
version("BitwiseXor", 13, of=ops.bitwise_xor)(_of_bits(ops.bitwise_xor, ops.xor))


@version("BitwiseNot", 13, of=ops.bitwise_not)
def bitwise_not(data: Array) -> Array:
    return ops.not_(data) if array(data).dtype == bool else ops.bitwise_not(data)


version("LogicalNot", 1)(ops.not_)
version("Negative", 1)(ops.neg)


@version("BitwiseLeftShift", 15, of=ops.bit_shift)
def bitwise_left_shift(a: Array, b: Array, *, auto_broadcast: Word) -> Array:
    return _shifted(a, laid_beside("BitwiseLeftShift", a, b, auto_broadcast), "LEFT")


@version("BitwiseRightShift", 15, of=ops.bit_shift)
def bitwise_right_shift(a: Array, b: Array, *, auto_broadcast: Word) -> Array:
    """Signed numbers keep their sign."""
    a, b = array(a), laid_beside("BitwiseRightShift", a, b, auto_broadcast)
    if a.dtype.kind == "u":
        return _shifted(a, b, "RIGHT")
    # For a negative number its complement is shifted, which brings in zeros; inverted again, these are ones.
    negative = ops.less(a, np.zeros((), a.dtype))
    shifted = _shifted(ops.where(negative, ops.bitwise_not(a), a), b, "RIGHT")
    return ops.where(negative, ops.bitwise_not(shifted), shifted)


def _shifted(a: Any, b: Any, direction: Any) -> Array:
    a, b = array(a), array(b)
    unsigned = np.dtype(f"uint{8 * a.dtype.itemsize}")
    shifted = ops.bit_shift(ops.bit_cast(a, to=unsigned), ops.cast(b, to=unsigned), direction=direction)
    return ops.bit_cast(shifted, to=a.dtype)
