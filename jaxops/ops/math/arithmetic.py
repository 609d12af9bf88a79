"""Elementwise arithmetic. NumPy computes it exactly while every operand is static; sizes may be symbolic."""

__all__ = ["abs", "add", "div", "mean", "mod", "mul", "neg", "pow", "reciprocal", "sign", "sub", "sum"]

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import accumulation_type, as_traced, canonical, is_float
from jaxops.errors import ArgumentError
from jaxops.kernels.xla_workarounds import hidden, magnitude, quotient
from jaxops.ops.common.elementwise import broadcast_reduce, on_sizes, one_of_kind, operands, require, symbolic, unary
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.shapes import arithmetic as of_sizes
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.signature import Bias, Traits, Weight, operator
from jaxops.static import A, Operand, Tracer, array, is_symbolic, jit_if_concrete

TRAITS = Traits(foldable=True, grows=True)


def arithmetic_operands(values: Sequence[Any]) -> tuple[Any, ...]:
    """Operands of one type of numbers. Constants beside traced floats are hidden from XLA; see `hidden`."""
    arrays = operands(values, "numbers")
    if not (is_float(arrays[0].dtype) and any(isinstance(x, Tracer) for x in values)):
        return arrays
    return tuple(x if isinstance(value, Tracer) else hidden(x) for value, x in zip(values, arrays, strict=True))


@tracks_sizes
def add(a: Bias[Operand[A]], b: Bias[Operand[A]]) -> A:
    """a + b, element by element; the operands broadcast to each other.

    a, b: numbers of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Add, opsets 7–14.

    >>> add(np.array([1, 2]), 10)
    array([11, 12])
    """
    return broadcast_reduce(arithmetic_operands((a, b)), np.add, lax.add)


@tracks_sizes
def sub(a: Bias[Operand[A]], b: Bias[Operand[A]]) -> A:
    """a - b, element by element; the operands broadcast to each other.

    a, b: numbers of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Sub, opsets 7–14.

    >>> sub(np.array([1, 2]), 10)
    array([-9, -8])
    """
    return broadcast_reduce(arithmetic_operands((a, b)), np.subtract, lax.sub)


def _scales(operands: Sequence[Any], result: Any, attributes: Any) -> bool:
    """False if a factor holds nothing but 0 and 1: it makes zeros of some shape, or is a mask."""
    return not any(isinstance(x, np.ndarray) and np.isin(x, (0, 1)).all() for x in operands)


@operator(grows=_scales)
@tracks_sizes
def mul(a: Weight[Operand[A]], b: Weight[Operand[A]]) -> A:
    """a · b, element by element; the operands broadcast to each other.

    a, b: numbers of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Mul, opsets 7–14.

    >>> mul(np.array([1, 2]), 10)
    array([10, 20])
    """
    return broadcast_reduce(arithmetic_operands((a, b)), np.multiply, lax.mul)


@tracks_sizes
def div(a: Operand[A], b: Operand[A]) -> A:
    """a / b, element by element; the operands broadcast to each other.

    a, b: numbers of one dtype. Returns that dtype, of the common shape. Integers are divided toward zero.
    Raises ArgumentError for a static integer divided by 0, which the standard leaves undefined; ShapeError when
    the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Div, opsets 7–14.

    >>> div(np.array([7, -7]), 2)
    array([ 3, -3])
    """
    arrays = operands((a, b), "numbers")
    full = isinstance(b, jax.Array) and b.shape == broadcast(*(v.shape for v in arrays))
    return broadcast_reduce(arrays, _div, lax.div if full else _quotient)


def _quotient(a: Any, b: Any) -> Any:
    """a / b where XLA may see that `b` is one number; it would multiply by the reciprocal of that number."""
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return lax.div(a, b)
    work = accumulation_type(a.dtype)
    # XLA would turn (x / b) / c into x / (b * c), where b * c may overflow. Adding a hidden -0.0 between prevents that.
    between = hidden(np.array(-0.0, work))
    result = quotient(lax.convert_element_type(a, work) + between, lax.convert_element_type(b, work))
    return lax.convert_element_type(result, a.dtype)


def _div(a: Any, b: Any) -> Any:
    if is_float(a.dtype) or a.dtype.kind == "c":
        return np.divide(a, b)
    b = _nonzero(a, b)
    if symbolic(a, b):
        return on_sizes(of_sizes.quotient, a, b)
    below = np.floor_divide(a, b)
    inexact = below * b != a
    return below + (inexact & ((a < 0) != (b < 0))).astype(below.dtype)


def _nonzero(a: Any, b: Any) -> Any:
    if not is_float(a.dtype) and np.any(b == 0):
        raise ArgumentError("a static integer is divided by 0, which the standard leaves undefined")
    return b


@operator(grows=False)
def mod(a: Operand[A], b: Operand[A], *, fmod: int = 0) -> A:
    """The remainder of `a` divided by `b`, element by element; the operands broadcast to each other.

    a, b: numbers of one dtype. Returns that dtype, of the common shape.
    fmod: 0 rounds the quotient down, so the result has the sign of b; 1 truncates it, so it has the sign of a.
    Raises ArgumentError for another `fmod` and for a static integer divided by 0, ShapeError, DTypeError.
    Source: ONNX Mod, opsets 10–28 (floats with fmod=0 from 28).

    >>> mod(np.array([-7, 7]), 3), mod(np.array([-7, 7]), 3, fmod=1)
    (array([2, 1]), array([-1,  1]))
    """
    arrays = operands((a, b), "real numbers")
    if flag("fmod", fmod):
        return broadcast_reduce(arrays, _static_fmod, lax.rem)
    return broadcast_reduce(arrays, _static_mod, _floor_mod)


def _static_mod(a: Any, b: Any) -> Any:
    b = _nonzero(a, b)
    return on_sizes(of_sizes.remainder, a, b) if symbolic(a, b) else np.mod(a, b)


def _static_fmod(a: Any, b: Any) -> Any:
    b = _nonzero(a, b)
    return on_sizes(lambda d, e: d - of_sizes.quotient(d, e) * e, a, b) if symbolic(a, b) else np.fmod(a, b)


def _floor_mod(a: jax.Array, b: jax.Array) -> jax.Array:
    remainder = lax.rem(a, b)
    if jnp.issubdtype(a.dtype, jnp.unsignedinteger):
        return remainder
    zero = lax.full_like(remainder, 0)
    opposite = lax.bitwise_and(lax.ne(remainder, zero), lax.ne(lax.lt(remainder, zero), lax.lt(b, zero)))
    modulus = lax.select(opposite, lax.add(remainder, b), remainder)
    if not is_float(a.dtype):
        return modulus
    # A zero result has the sign of b (ONNX Mod-28), and the same derivative as any other result.
    signed = lax.select(lax.lt(b, zero), lax.neg(zero), zero)
    exact = lax.stop_gradient(modulus)
    return lax.select(lax.eq(modulus, zero), signed - (exact - modulus), modulus)


@tracks_sizes
def pow(x: Operand[A], y: Operand[A]) -> A:
    """x to the power of y, element by element; the operands broadcast to each other.

    x: numbers. y: numbers of any dtype. Returns the dtype of x, of the common shape.
    An integer to a negative or fractional power is the exact result, truncated. A result that overflows an integer
    type is undefined.
    Raises ShapeError when the shapes do not broadcast.
    Source: ONNX Pow, opsets 7–15.

    >>> pow(np.array([2, 3]), np.array([10, -1]))
    array([1024,    0])
    """
    base, exponent = array(x), array(y)
    require("real numbers", base, exponent)
    if is_symbolic(exponent) or (is_symbolic(base) and (is_float(exponent.dtype) or np.any(exponent < 0))):
        base, exponent = as_traced(base), as_traced(exponent)  # not a polynomial of the size
    if isinstance(base, np.ndarray) and isinstance(exponent, np.ndarray):
        return broadcast_reduce((base, exponent), _static_pow, lax.pow)
    base = as_traced(base)
    if isinstance(exponent, np.ndarray) and exponent.size == 1 and exponent.ndim <= base.ndim:
        power = exponent.reshape(()).item()
        # Small integer powers are products: exact on integers, and with a finite gradient at 0.
        if float(power).is_integer() and abs(power) <= 8 and (power >= 0 or is_float(base.dtype)):
            return _whole_power(base, int(power))
    return broadcast_reduce((base, as_traced(exponent)), _static_pow, _traced_pow)


@jit_if_concrete
def _whole_power(x: jax.Array, n: int) -> Any:
    return lax.integer_pow(x, n)


def _static_pow(x: Any, y: Any) -> Any:
    if symbolic(x, y):
        return on_sizes(lambda base, n: base**n, x, y)
    if is_float(x.dtype):
        return np.power(x, y.astype(x.dtype)) if not is_float(y.dtype) else np.power(x, y).astype(x.dtype)
    if is_float(y.dtype):
        y = y.astype(np.float64)
        power = np.trunc(np.power(x.astype(np.float64), y)).astype(x.dtype)
        is_integer = (y == np.rint(y)) & (np.abs(y) < 2**31)
        return np.where(is_integer, _static_pow(x, np.where(is_integer, y, 0).astype(np.int64)), power)
    negative = y < 0
    # The exponent may not fit the type of x. The lower bits of a product depend only on the lower bits of its factors.
    power = np.power(x.astype(np.uint64), np.where(negative, 0, y).astype(np.uint64)).astype(x.dtype)
    if not negative.any():
        return power
    return np.where(negative, np.where(np.abs(x) == 1, np.where(y % 2 == 0, x * x, x), 0), power)


def _traced_pow(x: jax.Array, y: jax.Array) -> jax.Array:
    if is_float(x.dtype):
        wide = np.promote_types(x.dtype, y.dtype) if is_float(y.dtype) else x.dtype
        base, power = x.astype(wide), y.astype(wide)
        zero = lax.full_like(base, 0)
        # 0**0 is computed as 1**0, which is 1 too, and whose derivatives are 0 instead of NaN.
        both = lax.bitwise_and(lax.eq(base, zero), lax.eq(power, zero))
        return lax.pow(lax.select(both, lax.full_like(base, 1), base), power).astype(x.dtype)
    if is_float(y.dtype):
        wide = canonical(np.float64)
        y = y.astype(wide)
        result = lax.pow(x.astype(wide), y).astype(x.dtype)
        is_integer = lax.bitwise_and(lax.eq(y, lax.round(y)), lax.lt(lax.abs(y), lax.full_like(y, 2**31)))
        number = lax.select(is_integer, y, lax.full_like(y, 0)).astype(np.int32)
        return lax.select(is_integer, _traced_pow(x, number), result)  # exact for integer powers
    zero, one, two = (jnp.full(x.shape, n, y.dtype) for n in (0, 1, 2))
    negative = lax.lt(y, zero)
    wide = canonical(np.uint64)  # as for static operands
    power = jnp.power(x.astype(wide), lax.select(negative, zero, y).astype(wide)).astype(x.dtype)
    if jnp.issubdtype(y.dtype, jnp.unsignedinteger):
        return power
    unit = lax.select(lax.eq(lax.rem(y, two), zero), x * x, x)
    fraction = lax.select(lax.eq(jnp.abs(x), one.astype(x.dtype)), unit, zero.astype(x.dtype))
    return lax.select(negative, fraction, power)


def sum(inputs: Bias[Sequence[Operand[A]]]) -> A:
    """The sum of the elements at each place; the operands broadcast to each other.

    inputs: at least one array of numbers, of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ, SignatureError.
    Source: ONNX Sum, opsets 8–13.

    >>> sum([np.array([1, 5]), np.array([3, 2]), 1])
    array([5, 8])
    """
    return broadcast_reduce(arithmetic_operands(inputs), np.add, lax.add)


def mean(inputs: Sequence[Operand[A]]) -> A:
    """The mean of the elements at each place; the operands broadcast to each other.

    inputs: at least one floating-point array, of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for differing dtypes or integers, SignatureError.
    Source: ONNX Mean, opsets 8–13.

    >>> mean([np.array([1.0, 5.0]), np.array([3.0, 2.0])])
    array([2. , 3.5])
    """
    arrays = operands(inputs, "floating-point")
    return div(broadcast_reduce(arrays, np.add, lax.add), np.asarray(len(arrays), arrays[0].dtype))


@tracks_sizes
def neg(x: Operand[A]) -> A:
    """-x, element by element.

    x: any shape, signed numbers. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Neg, opsets 1–13.

    >>> neg(np.array([1, -2]))
    array([-1,  2])
    """
    return unary(one_of_kind("numbers", x), np.negative, lax.neg)


def abs(x: Operand[A]) -> A:
    """The absolute value of each element; the derivative at 0 is 0.

    x: any shape, numbers. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Abs, opsets 1–13.

    >>> abs(np.array([1, -2]))
    array([1, 2])
    """
    return unary(one_of_kind("numbers", x), _static_abs, _traced_abs)


def _static_abs(x: Any) -> Any:
    return on_sizes(lambda d: of_sizes.larger(d, -d), x) if symbolic(x) else np.abs(x)


def _traced_abs(x: Any) -> Any:
    return x if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else magnitude(x)


@operator(grows=False, differentiable=False)
def sign(input: Operand[A]) -> A:
    """1 for a positive element, -1 for a negative one, 0 for zero; NaN stays.

    input: any shape, numbers. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Sign, opsets 9–13.

    >>> sign(np.array([5, 0, -2]))
    array([ 1,  0, -1])
    """
    return unary(one_of_kind("numbers", input), _static_sign, lax.sign)


def _static_sign(x: Any) -> Any:
    return on_sizes(lambda d: of_sizes.smaller(of_sizes.larger(d, -1), 1), x) if symbolic(x) else np.sign(x)


def reciprocal(x: Operand[A]) -> A:
    """1 / x, element by element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Reciprocal, opsets 1–13.

    >>> reciprocal(np.array([4.0, -0.5]))
    array([ 0.25, -2.  ])
    """
    return unary(one_of_kind("floating-point", x), np.reciprocal, lax.reciprocal)
