"""Arithmetic on sizes that may be symbolic. The result holds for every size, else the function raises.

Addition, subtraction and multiplication are Python's own operators.
"""

from jaxops.errors import ShapeError
from jaxops.static import Dim, Undecided, is_symbolic

CONSTRAIN = "constraints of `jax.export.symbolic_shape` can settle it"


def quotient(a: Dim, b: Dim) -> Dim:
    """Truncating division; rounds down if the sign of a symbolic dividend is unknown."""
    try:
        a, b = (-a, -b) if b < 0 else (a, b)
        return -(-a // b) if a < 0 else a // b
    except Undecided:
        # Assume that a difference such as `b - 3` is a size, so not negative, as in a convolution.
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
        # A symbolic comparison may be decidable in one direction only, so try both.
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
