"""Arithmetic on sizes where one of them may be symbolic: it answers for every size, or raises.

Python's own operators do for addition, subtraction and multiplication.
"""

from jaxops.errors import ShapeError
from jaxops.static import Dim, Undecided, is_symbolic

CONSTRAIN = "constraints of `jax.export.symbolic_shape` can settle it"


def quotient(a: Dim, b: Dim) -> Dim:
    """Division that truncates; a symbolic dividend whose sign is not known is rounded down."""
    try:
        a, b = (-a, -b) if b < 0 else (a, b)
        return -(-a // b) if a < 0 else a // b
    except Undecided:
        # Sizes are not negative, so a difference like `b - 3` is taken for one, as it is in a convolution.
        return a // b


def larger(a: Dim, b: Dim) -> Dim:
    """The maximum."""
    return a.max(b) if is_symbolic(a) else b.rmax(a) if is_symbolic(b) else max(a, b)


def smaller(a: Dim, b: Dim) -> Dim:
    """The minimum."""
    return a.min(b) if is_symbolic(a) else b.rmin(a) if is_symbolic(b) else min(a, b)


def equal(a: Dim, b: Dim) -> bool:
    """Whether two sizes are equal; `==` on symbolic ones answers False when it cannot tell."""
    if a == b:
        return True
    try:
        # For integers one of the two decides; a symbolic size may decide on either side only.
        return not (a - b > 0 or a - b < 0)
    except Undecided as error:
        raise _undecided("equal", a, b) from error


def greater(a: Dim, b: Dim) -> bool:
    """Whether a > b."""
    try:
        return bool(a > b)
    except Undecided as error:
        raise _undecided("greater", a, b) from error


def greater_or_equal(a: Dim, b: Dim) -> bool:
    """Whether a >= b."""
    try:
        return bool(a >= b)
    except Undecided as error:
        raise _undecided("greater_or_equal", a, b) from error


def _undecided(op: str, a: Dim, b: Dim) -> ShapeError:
    return ShapeError(f"{op}: whether it holds for {a} and {b} depends on the value of a symbolic size")
