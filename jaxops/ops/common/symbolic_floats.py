"""Floats of symbolic sizes that become sizes again: Shape, Cast to float, Mul by 0.5, Floor, Cast to int64.

A `SizeRatio` is such a float, as an exact fraction of sizes. The float arithmetic of the model is also computed, for
every value of the size up to `LARGEST`. If rounding gives another size for one of these values, that is a SizeError. So
an exported program has the sizes that the model has when it runs with numbers.
"""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from jaxops.dtypes import is_float
from jaxops.errors import SizeError
from jaxops.shapes import arithmetic as of_sizes
from jaxops.static import Dim, Undecided, is_symbolic

# Sizes up to here are tried. float32 has 24 bits, so larger ones would leave fewer than 8 for the fraction.
LARGEST = 2**16
# Limits of the ratio that a constant of a model stands for, such as 7/10 for 0.7 in float32. Larger numbers could
# overflow the int32 of traced sizes.
_DENOMINATOR, _NUMERATOR = 1024, 2**14
_SENTINEL = 10**9  # TensorFlow's converter writes it for the end of an axis; it is compared, never a factor
_EXACT_TYPES = ("float32", "float64")


@dataclass(frozen=True, eq=False)
class SizeRatio:
    """The float numerator / denominator; symbolic sizes may stand in the numerator.

    base: the size that the numerator is computed from; None for a constant. samples: values of `base`; None if there
    are several such sizes. numerators, floats: for each sample, the numerator and the result of the arithmetic in
    `dtype`. exact: nothing has been rounded.
    """

    dtype: Any
    numerator: Dim
    denominator: int = 1
    base: Dim = None
    samples: Any = 0
    numerators: Any = 0
    floats: Any = 0
    exact: bool = True


def number_of(value: Any, dtype: Any) -> "SizeRatio | SizeError":
    """A float of the model, as the small ratio that it stands for."""
    if not math.isfinite(value):
        return SizeError(f"{value} times a symbolic size is not a size")
    meant = Fraction(float(value)).limit_denominator(_DENOMINATOR)
    large = abs(meant.numerator) > (_NUMERATOR if meant.denominator > 1 else _SENTINEL)
    if dtype.type(float(meant)) != value or large:
        return SizeError(f"the factor {value} of a symbolic size is not a ratio of small integers")
    exact = Fraction(float(value)) == meant
    top, bottom = meant.numerator, meant.denominator
    return SizeRatio(dtype, top, bottom, numerators=top, floats=np.asarray(value, dtype), exact=exact)


def of_size(size: Dim, dtype: Any) -> "SizeRatio | SizeError":
    """A size converted to an element type."""
    if not is_float(dtype):
        return SizeRatio(dtype, size)
    if dtype.name not in _EXACT_TYPES:
        return SizeError(f"{dtype.name} does not hold every size that {size} may be", size)
    if not is_symbolic(size):
        return number_of(dtype.type(size), dtype)
    sizes = np.arange(*_range(size))
    return SizeRatio(dtype, size, base=size, samples=sizes, numerators=sizes, floats=sizes.astype(dtype))


def _range(size: Dim) -> tuple[int, int]:
    """The values to try: from the least that the size can have, to the largest, as far as these are known."""

    low = next((n for n in (1, 0) if _holds(operator.ge, size, n)), -256)
    high = LARGEST
    while high > 1 and _holds(operator.le, size, high // 2):
        high //= 2
    return low, high + 1


def _holds(fact: Callable[[Any, Any], bool], size: Dim, number: int) -> bool:
    """Returns True if the predicate holds for every value of the size."""
    try:
        return fact(size, number)
    except Undecided:
        return False


def _joined(
    a: SizeRatio, b: SizeRatio, numerator: Callable[[Any, Any], Any], denominator: int, floats: Any, exact: bool = True
) -> Any:
    """A ratio made from two. numerator: a function of both numerators, which are sizes or arrays."""
    first = b if a.base is None else a
    second = a if first is b else b
    comparable = (
        first.samples is not None and second.samples is not None and (second.base is None or second.base == first.base)
    )
    return SizeRatio(
        a.dtype,
        numerator(a.numerator, b.numerator),
        denominator,
        first.base,
        first.samples if comparable else None,
        numerator(a.numerators, b.numerators) if comparable else None,
        floats(a.floats, b.floats) if comparable else None,
        exact and a.exact and b.exact and denominator & (denominator - 1) == 0,
    )


def _linear(a: SizeRatio, b: SizeRatio, numerator: Callable[[Any, Any], Any], floats: Any) -> SizeRatio:
    """Combines two ratios over their common denominator."""
    denominator = math.lcm(a.denominator, b.denominator)
    if denominator > 1:
        _check_factor(a, b)
    x, y = denominator // a.denominator, denominator // b.denominator
    return _joined(a, b, lambda s, t: numerator(s * x, t * y), denominator, floats)


def _check_factor(a: SizeRatio, b: SizeRatio) -> None:
    """Raises SizeError for a constant so large that its product with a size could overflow."""
    for numerator in (n.numerator for n in (a, b) if n.base is None):
        if isinstance(numerator, int) and abs(numerator) > _NUMERATOR:
            raise SizeError(
                f"the factor {numerator} of a symbolic size is not a ratio of small integers", a.numerator, b.numerator
            )


def _add(a: SizeRatio, b: SizeRatio) -> SizeRatio:
    """a + b."""
    return _linear(a, b, lambda s, t: s + t, np.add)


def _sub(a: SizeRatio, b: SizeRatio) -> SizeRatio:
    """a - b."""
    return _linear(a, b, lambda s, t: s - t, np.subtract)


def _max(a: SizeRatio, b: SizeRatio) -> SizeRatio:
    """The maximum."""
    return _linear(a, b, _either(np.maximum, of_sizes.larger), np.maximum)


def _min(a: SizeRatio, b: SizeRatio) -> SizeRatio:
    """The minimum."""
    return _linear(a, b, _either(np.minimum, of_sizes.smaller), np.minimum)


def _either(of_arrays: Any, of_dims: Any) -> Any:
    return lambda s, t: (of_arrays if isinstance(s, np.ndarray) or isinstance(t, np.ndarray) else of_dims)(s, t)


def _mul(a: SizeRatio, b: SizeRatio) -> SizeRatio:
    """a · b."""
    if not is_float(a.dtype):
        return SizeRatio(a.dtype, a.numerator * b.numerator)
    a, b = (b, a) if a.base is None else (a, b)
    if b.base is not None:
        return _joined(a, b, lambda s, t: s * t, a.denominator * b.denominator, np.multiply)
    _check_factor(a, b)
    factor = Fraction(b.numerator, a.denominator * b.denominator)
    return _joined(a, b, lambda s, t: s * factor.numerator, factor.denominator, np.multiply)


def _div(a: SizeRatio, b: SizeRatio) -> SizeRatio | SizeError:
    """a / b, if that is a multiple of sizes; truncated for integers."""
    if b.base is None and b.numerator == 0:
        return SizeError(f"{a.numerator} is divided by 0", a.numerator)
    if not is_float(a.dtype):
        return SizeRatio(a.dtype, of_sizes.quotient(a.numerator, b.numerator))
    if b.base is None:
        _check_factor(a, b)
        factor = Fraction(b.denominator, a.denominator * b.numerator)
        return _joined(a, b, lambda s, t: s * factor.numerator, factor.denominator, np.divide)
    dividend, divisor = a.numerator * b.denominator, b.numerator * a.denominator
    if not of_sizes.greater_or_equal(divisor, 1):
        return SizeError(f"{dividend} is divided by {divisor}, which may be 0", divisor)
    ratio = dividend // divisor
    if ratio * divisor != dividend or not (a.exact and b.exact):
        return SizeError(f"{dividend} / {divisor} is not a multiple of a size", dividend, divisor)
    return of_size(ratio, a.dtype)  # a whole quotient is not rounded


def _pow(a: SizeRatio, b: SizeRatio) -> SizeRatio | SizeError:
    """a to a small whole power."""
    if b.base is not None or b.denominator != 1 or not 1 <= b.numerator <= 4:
        return SizeError(f"a power of {a.numerator} is not a multiple of a size", a.numerator)
    return functools.reduce(_mul, [a] * b.numerator)


def _neg(a: SizeRatio) -> SizeRatio:
    """-a."""
    return replace(
        a, numerator=-a.numerator, numerators=None if a.numerators is None else -a.numerators, floats=-a.floats
    )


def _sqrt(a: SizeRatio) -> SizeError:
    """The error: the square root of a size is not a size."""
    return SizeError(f"the square root of {a.numerator} is not a multiple of a size", a.numerator)


def _floor(a: SizeRatio) -> SizeRatio | SizeError:
    """The largest whole number at or below."""
    return _whole(a, lambda numerator: of_sizes.floored(numerator, a.denominator), np.floor)


def _ceil(a: SizeRatio) -> SizeRatio | SizeError:
    """The smallest whole number at or above."""
    return _whole(a, lambda numerator: of_sizes.ceiled(numerator, a.denominator), np.ceil)


def _round(a: SizeRatio) -> SizeRatio | SizeError:
    """The nearest whole number; ties go to the even one."""

    def rounded(numerator: Any) -> Any:
        if a.denominator == 1:
            return numerator
        twice, unit = 2 * numerator + a.denominator, 2 * a.denominator
        # The floor of x + 1/2 rounds ties up. If that gives an odd number (then phase is unit), the even one is 1 less.
        phase = twice % (2 * unit)
        return twice // unit - (phase // unit - phase // (unit + 1))

    return _whole(a, rounded, np.rint)


def _whole(a: SizeRatio, numerator: Callable[[Any], Any], rounded: Any) -> SizeRatio | SizeError:
    """The ratio rounded to an integer; the error if the float arithmetic rounds to another one for some size."""
    text = f"{a.numerator}" if a.denominator == 1 else f"({a.numerator}) / {a.denominator}"
    if a.samples is None:
        if not a.exact:
            problem = f"{text} is computed in {a.dtype.name} from several symbolic sizes, so rounding may change it"
            return SizeError(problem, a.numerator)
    else:
        # Larger numbers cannot be sizes in such a model: its floats do not hold them.
        representable = np.abs(a.numerators) <= a.denominator * 2 ** np.finfo(a.dtype).nmant
        wrong = np.flatnonzero(
            np.broadcast_to(representable & (rounded(a.floats) != numerator(a.numerators)), np.shape(a.samples))
        )
        if wrong.size:
            sample = a.samples[wrong[0]]
            return SizeError(f"{text} is rounded in {a.dtype.name} to another size where {a.base} is {sample}", a.base)
    return of_size(numerator(a.numerator), a.dtype)


def _cast(a: SizeRatio | bool, dtype: Any) -> SizeRatio | bool | SizeError:
    """The ratio in another type; truncated to integers. Booleans are 0 and 1."""
    if isinstance(a, bool):
        return a if dtype.kind == "b" else of_size(int(a), dtype)
    if dtype.kind == "b":
        return not of_sizes.equal(a.numerator, 0)
    if is_float(dtype):
        if not is_float(a.dtype):
            return of_size(a.numerator, dtype)
        if dtype.name not in _EXACT_TYPES:
            return SizeError(f"{dtype.name} does not hold every size that {a.numerator} may be", a.numerator)
        return replace(a, dtype=dtype, floats=None if a.floats is None else a.floats.astype(dtype))
    if not is_float(a.dtype):
        return replace(a, dtype=dtype)
    if a.denominator > 1 and not of_sizes.greater_or_equal(a.numerator, 0):
        return SizeError(f"({a.numerator}) / {a.denominator} is negative, so it is not a size", a.numerator)
    truncated = _whole(a, lambda numerator: of_sizes.floored(numerator, a.denominator), np.trunc)
    return truncated if isinstance(truncated, SizeError) else SizeRatio(dtype, truncated.numerator)


def _compared(fact: Callable[[Any, Any], bool], of_floats: Any) -> Callable[[Any, Any], bool | SizeError]:
    """A comparison of two ratios, or of two booleans; the error if rounding may change the answer for some size."""

    def compare(a: Any, b: Any) -> bool | SizeError:
        if isinstance(a, bool):
            return bool(of_floats(a, b))
        both = _linear(a, b, _either(of_floats, fact), of_floats)
        if not is_float(a.dtype) or (both.exact if both.samples is None else np.all(both.floats == both.numerators)):
            return both.numerator
        return SizeError(
            f"{a.numerator} and {b.numerator} are compared in {a.dtype.name}, which rounds them",
            a.numerator,
            b.numerator,
        )

    return compare


# The rules of operators on ratios.
RULES: dict[str, Callable[..., SizeRatio | bool | SizeError]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "max": _max,
    "min": _min,
    "pow": _pow,
    "neg": _neg,
    "sqrt": _sqrt,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
    "cast": _cast,
    "equal": _compared(of_sizes.equal, np.equal),
    "greater": _compared(of_sizes.greater, np.greater),
    "greater_or_equal": _compared(of_sizes.greater_or_equal, np.greater_equal),
    "less": _compared(lambda a, b: of_sizes.greater(b, a), np.less),
    "less_or_equal": _compared(lambda a, b: of_sizes.greater_or_equal(b, a), np.less_equal),
}


def scaled(size: Dim, scale: float) -> Dim:
    """floor(size · scale) in float32. Raises SizeError if the result is not a size."""
    one, factor = of_size(size, np.dtype(np.float32)), number_of(scale, np.dtype(np.float32))
    product = factor if isinstance(factor, SizeError) or isinstance(one, SizeError) else _floor(_mul(one, factor))
    if isinstance(product, SizeError):
        raise SizeError(product.problem, size)
    return product.numerator
