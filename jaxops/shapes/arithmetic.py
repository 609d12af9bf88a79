"""Arithmetic on sizes that may be symbolic. A result holds for all values of the symbols; where none
does, the function raises an error.

Addition, subtraction and multiplication are Python's own operators.
"""

from jaxops.errors import ShapeError, SizeError, shape_text, symbols_in
from jaxops.jax_internals import is_counted, may_be_none, note_equal, terms
from jaxops.static import Dim, Sizes, Undecided, is_symbolic
from jaxops.symbolic import (
    arguments_of,
    at_zero,
    operations,
    quotient_in,
    recomputed,
    without_shared_operations,
)


def quotient(a: Dim, b: Dim) -> Dim:
    """Truncating division; rounds down if the sign of a symbolic dividend is unknown."""
    try:
        a, b = (-a, -b) if b < 0 else (a, b)
        return -(-a // b) if a < 0 else floored(a, b)
    except Undecided:
        # Assume that a difference such as `b - 3` is a size, so not negative, as in a convolution.
        return floored(a, b)


def floored(a: Dim, b: Dim) -> Dim:
    """floor(a / b), in one form if JAX has several: (s - 2) // 2 + 1 is s // 2, s // 2 // 3 is s // 6, and
    (1 - s) // 2 is -(s // 2)."""
    if not (is_symbolic(a) and isinstance(b, int)):
        return a // b
    if b > 0 and all(term.number < 0 for term in terms(a) if term.factors):
        return -ceiled(-a, b)
    base = at_zero(a) // b
    remaining = a - base * b
    inner = quotient_in(remaining) if b > 0 else None
    return (floored(inner[0], inner[1] * b) if inner else remaining // b) + base


def ceiled(a: Dim, b: Dim) -> Dim:
    """ceil(a / b), in one form; b is positive."""
    return floored(a + b - 1, b)


def remainder(a: Dim, b: Dim) -> Dim:
    """a modulo b, computed by a quotient, so that a size padded to a multiple of 4 has the form 4·c."""
    return a - floored(a, b) * b if isinstance(b, int) else a % b


def larger(a: Dim, b: Dim) -> Dim:
    """The maximum."""
    a, b = (b, a) if isinstance(a, int) and is_counted(b) else (a, b)
    # One form, as JAX does not see that n - min(n, 1) and max(n - 1, 0) are equal.
    return _maximum(a - b, 0) + b if isinstance(b, int) and is_counted(a) else _maximum(a, b)


@may_be_none
def _maximum(a: Dim, b: Dim) -> Dim:
    return a.max(b) if is_symbolic(a) else b.rmax(a) if is_symbolic(b) else max(a, b)


def smaller(a: Dim, b: Dim) -> Dim:
    """The minimum."""
    a, b = (b, a) if isinstance(a, int) and is_counted(b) else (a, b)
    return a - _maximum(a - b, 0) if isinstance(b, int) and is_counted(a) else _minimum(a, b)


@may_be_none
def _minimum(a: Dim, b: Dim) -> Dim:
    return a.min(b) if is_symbolic(a) else b.rmin(a) if is_symbolic(b) else min(a, b)


@may_be_none
def equal(a: Dim, b: Dim) -> bool:
    """Returns True if two sizes are equal. Raises SizeError if that depends on a symbolic size, where `==` is False."""
    if a == b:
        return True
    if _in_one_form(a) == _in_one_form(b):
        note_equal(a, b)
        return True
    try:
        # A symbolic comparison may be decidable in one direction only, so try both.
        return not (a - b > 0 or a - b < 0)
    except Undecided as error:
        raise _undecided(*((b, a) if isinstance(a, int) else (a, b)), 1, equality=True) from error


# The functions in the text of a symbolic size.
FUNCTIONS = {"floordiv": floored, "mod": remainder, "max": larger, "min": smaller}


def _in_one_form(size: Dim) -> Dim:
    """Returns a size whose quotients all have the form that `floored` gives them.

    JAX is very slow to find (s - 3) // 2 + 1 and (s + 1) // 2 - 1 equal if s is a quotient of quotients.
    """
    return recomputed(size, FUNCTIONS) if any(f.name == "floordiv" for f in operations(size)) else size


def with_value(size: Dim, symbol: Dim, value: Dim) -> Dim:
    """Returns a size with another size in place of one of its symbols."""
    return recomputed(size, FUNCTIONS, {str(symbol): value}) if is_symbolic(size) else int(size)


@may_be_none
def greater(a: Dim, b: Dim) -> bool:
    """Returns True if a > b."""
    try:
        return bool(a > b)
    except Undecided as error:
        raise _undecided(a, b, 1) from error


@may_be_none
def greater_or_equal(a: Dim, b: Dim) -> bool:
    """Returns True if a >= b."""
    try:
        return bool(a >= b)
    except Undecided as error:
        raise _undecided(a, b, 0) from error


def _undecided(a: Dim, b: Dim, more: int, *, equality: bool = False) -> SizeError:
    """Returns the error of an undecided comparison. more: if b is a number, all a >= b + more give the same answer."""
    # A comparison with 0 or 1 asks for a special case; the error proposes a program for all other sizes.
    needs = ""
    if isinstance(b, int) and 0 <= b <= 1:
        needs = f"{a} >= {b + more}"
    elif isinstance(a, int) and 0 <= a <= 1:
        needs = f"{b} >= {a + 1 - more}"
    otherwise = f"{a} == {b}" if needs and equality else ""
    problem = f"the answer for {a} and {b} depends on the value of a symbolic size"
    return SizeError(problem, a, b, needs=needs, otherwise=otherwise)


def at_least(problem: str, size: Dim, least: Dim) -> bool:
    """Returns True if a size is at least another one.

    Raises SizeError with the text `problem` if that depends on a symbolic size.
    """
    try:
        return bool(size >= least)
    except Undecided as error:
        raise SizeError(problem, size, least, needs=f"{size} >= {least}") from error


def agree(problem: str, a: Dim, b: Dim, *, broadcasts: bool = False) -> bool:
    """Returns True if two sizes that should be equal are equal.

    Raises SizeError, which begins with `problem`, if that depends on a symbolic size. broadcasts: True if a size of 1
    fits any size; then the error does not ask for a size of 1.
    """
    if a is b or a == b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    try:
        return equal(a, b)
    except SizeError as error:
        if isinstance(a, int):
            a, b = b, a
        raise SizeError(
            f"{problem}: {a} and {b} must be equal",
            a,
            b,
            needs="" if broadcasts and isinstance(b, int) and b == 1 else _equation(a, b),
            fix=_least_fit(a, b) if isinstance(b, int) else None,
            broadcasts=broadcasts,
        ) from error


def _least_fit(size: Dim, number: int) -> int | None:
    """Returns the least value up to 4,096 of the only symbol in a size for which it equals `number`; else None."""
    symbols = symbols_in(size)
    if str(size) in symbols:
        return number
    for value in range(1, 4097) if len(symbols) == 1 else ():
        try:
            if recomputed(size, FUNCTIONS, {symbols[0]: value}) == number:
                return value
        except ZeroDivisionError:  # a size that does not exist for this value
            continue
    return None


def all_agree(problem: str, sizes: Sizes, expected: Sizes) -> bool:
    """Returns True if two lists of sizes have one length, and their sizes `agree`."""
    return len(sizes) == len(expected) and all(agree(problem, a, b) for a, b in zip(sizes, expected, strict=True))


def must_agree(problem: str, sizes: Sizes, expected: Sizes) -> None:
    """Raises ShapeError with the text `problem` unless two lists of sizes agree.

    Raises SizeError if that depends on a symbolic size.
    """
    if not all_agree(problem, sizes, expected):
        raise ShapeError(problem)


def must_fit(operand: str, sizes: Sizes | None, *allowed: tuple[Dim | str, ...], reason: str = "") -> None:
    """Raises ShapeError, which names the operand, unless its sizes fit one of the allowed ones: see `sizes_fit`.

    reason: the end of the message, after the allowed sizes.
    """
    if sizes is not None and sizes not in allowed:
        choices = " or ".join(map(shape_text, allowed))
        problem = f"`{operand}` of {shape_text(sizes)} must be {choices}{reason}"
        if not sizes_fit(problem, sizes, *allowed):
            raise ShapeError(problem)


def sizes_fit(problem: str, sizes: Sizes | None, *allowed: tuple[Dim | str | None, ...]) -> bool:
    """Returns True if `sizes` fit one of the allowed ones, or if `sizes` is None because the operand was left out.

    In the allowed ones, None or a string stands for any size; messages show the string.
    Raises SizeError, which begins with `problem`, if they fit only for some values of a symbolic size.
    """
    if sizes is None:
        return True
    pairs = [
        (sizes, tuple(d if e is None or isinstance(e, str) else e for d, e in zip(sizes, expected, strict=True)))
        for expected in allowed
        if len(expected) == len(sizes)
    ]
    if any(a == b for a, b in pairs):
        return True
    problems = []
    for a, b in pairs:
        try:
            if all_agree(problem, a, b):
                return True
        except SizeError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return False


def divided(problem: str, size: Dim, count: Dim) -> Dim:
    """Returns size / count.

    Raises ShapeError unless that is an integer, SizeError if that depends on a symbolic size, with the text `problem`.
    """
    whole, by = without_shared_operations(size, count)
    part = whole // by
    if part * by == whole:
        return part
    if isinstance(size, int) and isinstance(count, int):
        raise ShapeError(problem)
    raise SizeError(problem, size, count, needs=f"{part * count} == {size}")


def _equation(a: Dim, b: Dim) -> str:
    """The condition for two sizes to be equal: `s <= 512` for `min(s, 512)` and `s`."""
    for least, minimum in ((a, b), (b, a)):
        operands = arguments_of("min", least)
        bounds = [bound for bound in operands if bound != minimum]
        if operands and len(bounds) == 1:
            return f"{minimum} <= {bounds[0]}"
    return f"{b} == {a}" if str(b).isidentifier() and not str(a).isidentifier() else f"{a} == {b}"
