"""Sizes of a slice."""

from jaxops.errors import ArgumentError, SizeError, symbols_in
from jaxops.jax_internals import is_counted
from jaxops.shapes.arithmetic import at_least, ceiled, equal, greater, larger, smaller
from jaxops.static import LIMITING, Dim, Undecided, is_symbolic
from jaxops.symbolic import at_zero

_BILLION = 10**9


def slice_range(size: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """(first index, number of elements) of a slice of an axis, clamped as the standard says.

    For a symbolic size, a bound beyond any 32-bit size, such as INT64_MAX, means the end of the axis. With a
    negative step the start is clamped to an element of the axis (ONNX Slice-13), where Python would select none.
    """
    if step == 0:
        raise ArgumentError("`steps` holds 0; a step must not be zero")
    if isinstance(size, int) and size == 0:
        return 0, 0
    if is_symbolic(size) and LIMITING.get():
        _limit(size, start, end)
    low, high = (0, size) if step > 0 else (-1, size - 1)
    try:
        first = _clamp(size, start, max(low, 0), high)
        stop = _clamp(size, end, low, high)
        span = stop - first if step > 0 else first - stop
        count = ceiled(larger(span, 0), abs(step))
        return first, _one(count) if abs(step) > 1 else count
    except Undecided as error:
        bound = start if _open(start) else end
        raise SizeError(
            f"{start} and {end} count from the start of an axis of size {size} for some sizes, and from its end "
            f"for others",
            bound,
            needs=f"{-bound} >= 1" if _never_positive(bound) else f"{bound} >= 0",
        ) from error


def _limit(size: Dim, *bounds: Dim) -> None:
    """Raises SizeError for a symbolic size that a bound -1 or ±1,000,000,000 may not fit.

    -1 asks for a last element. A billion is what TensorFlow writes for the end of an axis.
    """
    if -1 in bounds:
        at_least(f"an axis of size {size} may have no last element", size, 1)
    if any(isinstance(bound, int) and abs(bound) == _BILLION for bound in bounds):
        at_least(f"an axis of size {size} may have more than {_BILLION} elements", _BILLION, size)


def _one(count: Dim) -> Dim:
    """Returns a number of elements, as the integer 1 if it is 1. TensorFlow writes x[i] as a slice with a huge step."""
    try:
        return 1 if equal(count, 1) else count
    except SizeError:
        return count


def _open(bound: Dim) -> bool:
    """Returns True if the sign of a bound depends on the value of a symbolic size."""
    try:
        return not (bound < 0 or bound >= 0)
    except Undecided:
        return True


def _never_positive(bound: Dim) -> bool:
    """Returns True for a bound such as -(s // 4), which is meant to count from the end."""
    try:
        return bool(bound <= 0)
    except Undecided:
        return False


def _clamp(size: Dim, bound: Dim, low: Dim, high: Dim) -> Dim:
    if isinstance(bound, int) and not isinstance(size, int) and abs(bound) >= 2**31 - 1:
        return high if bound > 0 else low
    bound = bound + size if _is_negative(bound, size) else bound
    return smaller(larger(bound, low), high)


def _is_negative(bound: Dim, size: Dim) -> bool:
    """Returns whether a bound counts from the end of an axis.

    n - 1 does so for n = 0 alone, and -n for all other n. That makes no difference to an axis that is empty then.
    """
    symbols = symbols_in(bound)
    is_empty = len(symbols) == 1 and symbols_in(size) == symbols and at_zero(size) == 0
    if is_counted(bound) and not is_empty:
        try:
            return greater(0, bound)
        except SizeError as error:
            raise Undecided(str(error)) from error
    return bool(bound < 0)
