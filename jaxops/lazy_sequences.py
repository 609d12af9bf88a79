"""Sequences whose number of arrays is not known. Every other sequence is a Python list of arrays."""

from dataclasses import dataclass
from functools import partial

import jax

from jaxops.errors import SizeError, StaticError, describe
from jaxops.static import Array, Dim, FromSizes


@partial(jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=["each", "axis", "keepdims"])
@dataclass(frozen=True, repr=False)
class SplitSequence:
    """The pieces of one array along an axis, not yet taken apart: their number follows from symbolic sizes.

    data: the array. each: the length of a piece, of which the last one may have less. axis: in [0, n).
    keepdims: whether the pieces, then of length 1, still have the axis.
    """

    data: jax.Array | FromSizes
    each: Dim
    axis: int
    keepdims: bool

    def __repr__(self) -> str:
        return f"a sequence of pieces of {describe(self.data)}"

    def problem(self, text: str = "") -> SizeError:
        """The error of an operation that needs the number of arrays; it begins with `text`."""
        size, each = self.data.shape[self.axis], self.each
        problem = f"the length of the sequence is unknown, as an axis of size {size} is split into pieces of {each}"
        return SizeError(f"{text}: {problem}" if text else problem, size, each, fix=128)


@dataclass(frozen=True, repr=False)
class GrowingSequence:
    """A sequence in the body of a loop, of which one iteration is traced for all: nothing can be read of it.

    before: the arrays before the loop. added: those that this iteration has appended.
    """

    before: tuple[Array, ...]
    added: tuple[Array, ...] = ()

    def __repr__(self) -> str:
        return "a sequence that a loop appends to"

    def problem(self, text: str = "") -> StaticError:
        """The error of an operation that needs the arrays; it begins with `text`."""
        problem = "a loop over a symbolic number of iterations can only append to a sequence"
        return StaticError(f"{text}: {problem}" if text else problem)
