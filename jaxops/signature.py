"""The marks in the signature of an operator: what a caller, a front end or a tool needs to know of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

from jaxops.static import A, Array

__all__ = [
    "Quantizable",
    "ShapeOnly",
    "SizesKept",
    "Static",
    "StaticInts",
    "StaticNumbers",
    "Statistics",
    "Subgraph",
]

STATIC, VECTOR, SHAPE_ONLY, STATISTICS, ELEMENT_TYPE = "static", "1-D", "shape only", "statistics", "element type"
QUANTIZABLE, KEEPS_SIZES = "quantizable", "keeps sizes"
OF_INPUTS = (STATIC, SHAPE_ONLY, STATISTICS)  # of which an input has one at most
# The marks that the front ends read off a signature.
Static: TypeAlias = Annotated[Any, STATIC]  # must be known while tracing
# Likewise, 1-D. A single number is a list of one in a file; in a direct call where the function says so.
StaticInts: TypeAlias = Annotated[Any, STATIC, VECTOR]
StaticNumbers: TypeAlias = Annotated[Any, STATIC, VECTOR]
ShapeOnly: TypeAlias = Annotated[Any, SHAPE_ONLY]  # any array: only its sizes are looked at
Statistics: TypeAlias = Annotated[Array, STATISTICS]  # gathered from data while training, and not learned
Quantizable: TypeAlias = Annotated[Array, QUANTIZABLE]  # a `Dequantized` array comes as it is
SizesKept: TypeAlias = Annotated[A, KEEPS_SIZES]  # the first result has its sizes, whatever the other operands are
ElementType: TypeAlias = Annotated[Any, ELEMENT_TYPE]  # an attribute that names a type: np.float32, "int8", str


@dataclass(frozen=True)
class Subgraph:
    """The mark of a callable parameter: which operands enter it, and where its outputs go.

    decided_by: the operands that decide whether it runs, or how often. first: the position of the operand that is its
    first input; None when it has no inputs. own: the number of leading inputs and outputs that are not operands:
    Loop passes an iteration number in and gets a condition back. carries: its outputs are its inputs in the next
    iteration, except for the last ones, as many as the attribute `not_carried` says. of_rows: the attributes with a
    value for each output behind the state, which has a row for each iteration. modifies: it takes one value that
    the operator makes and gives one in its place; neither is an operand or an output of the node. several: it takes and
    gives more than one such value; the operator says how many.
    """

    decided_by: tuple[str, ...] = ()
    first: int | None = None
    own: int = 0
    carries: bool = False
    not_carried: str = ""
    of_rows: tuple[str, ...] = ()
    modifies: bool = False
    several: bool = False


F = TypeVar("F", bound=Callable[..., Any])


def foldable(fn: F) -> F:
    """Marks an operator that NumPy computes, in 64 bits, if all array operands are static."""
    cast(Any, fn).foldable = True
    return fn


def marks(annotation: Any) -> tuple[Any, ...]:
    """What `Annotated` carries, also inside a union with None."""
    found = tuple(getattr(annotation, "__metadata__", ()))
    for part in get_args(annotation):
        found += tuple(getattr(part, "__metadata__", ()))
    return found


def choices(annotation: Any) -> tuple[Any, ...]:
    """What a `Literal`, also inside a union with None, allows; empty for another annotation."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((get_args(part) for part in get_args(annotation) if get_origin(part) is Literal), ())
