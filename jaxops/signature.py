"""Marks on the parameters of an operator's function, and traits of the function.

Front ends and tools read them, so that no table of operators is needed. A trait stands in the decorator `operator` of
the function, or, for all operators of a file, in `TRAITS` at its top. A function of your own takes them, too:

>>> @operator(kind="linear")
... def low_rank(x: Array, down: Weight[Array], up: Weight[Array], *, scale: Static = 1.0) -> Array:
...     return x @ down @ up * scale
>>> role(low_rank, 1), traits(low_rank).kind
('weight', 'linear')

`load(path, operators={("my.domain", "LowRank"): low_rank})` uses it. The marks that such a function may need:

Static         must be known while tracing; the function gets a NumPy value
ShapeOnly      only the sizes of the operand are looked at
ElementType    an attribute that names a type: np.float32, "int8", str
Weight, Bias   the operand has this role among the parameters of a model
Cache          holds what a decoder keeps of earlier tokens
Table          is made from positions, such as cosines of angles, and never trained
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

from jaxops.static import Array

__all__ = [
    "AllBits",
    "Bias",
    "Cache",
    "FourthOutput",
    "LowerBound",
    "RunningMean",
    "RunningVar",
    "SecondOutput",
    "ShapeOnly",
    "SizesKept",
    "SizesResult",
    "Static",
    "StaticInts",
    "StaticNumbers",
    "Subgraph",
    "Table",
    "UpperBound",
    "Weight",
]

STATIC, VECTOR, SHAPE_ONLY, STATISTICS, TABLE = "static", "1-D", "shape only", "statistics", "table"
ELEMENT_TYPE, RANDOM_KEYS = "element type", "random keys"
KEEPS_SIZES, SIZES_RESULT = "keeps sizes", "sizes the result"
OF_INPUTS = (STATIC, SHAPE_ONLY, STATISTICS, TABLE)  # of which an input has one at most
WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR = ROLES = ("weight", "bias", "running_mean", "running_var")  # PyTorch's words
CACHE, ALL_BITS, LOWER_BOUND, UPPER_BOUND = "cache", "all bits", "lower bound", "upper bound"
T = TypeVar("T")
# The marks that the front ends read off a signature.
Static: TypeAlias = Annotated[Any, STATIC]  # must be known while tracing
# Likewise, 1-D. A single number is a list of one in a file; in a direct call if the function allows it.
StaticInts: TypeAlias = Annotated[Any, STATIC, VECTOR]
StaticNumbers: TypeAlias = Annotated[Any, STATIC, VECTOR]
ShapeOnly: TypeAlias = Annotated[Any, SHAPE_ONLY]  # any array: only its sizes are looked at
SizesKept: TypeAlias = Annotated[T, KEEPS_SIZES]  # the first result has its sizes, whatever the other operands are
# Its values decide the size of the result; if no operand of an operator that takes a `size` is marked so, all do.
SizesResult: TypeAlias = Annotated[T, SIZES_RESULT]
RandomKeys: TypeAlias = Annotated[Any, RANDOM_KEYS]  # one key of JAX, or an array of them
ElementType: TypeAlias = Annotated[Any, ELEMENT_TYPE]  # an attribute that names a type: np.float32, "int8", str
# The role of an operand that is a parameter of the model, as in `w: Weight[Array]`. An operator that has a bias and no
# weight, such as an addition, has a bias only if another operator has its weight.
Weight: TypeAlias = Annotated[T, WEIGHT]
Bias: TypeAlias = Annotated[T, BIAS]
RunningMean: TypeAlias = Annotated[Array, STATISTICS, RUNNING_MEAN]  # gathered from data while training, not learned
RunningVar: TypeAlias = Annotated[Array, STATISTICS, RUNNING_VAR]
Table: TypeAlias = Annotated[T, TABLE]  # made from positions, such as cosines: not trained, one for all layers
Cache: TypeAlias = Annotated[T, CACHE]  # what a decoder keeps of earlier tokens
AllBits: TypeAlias = Annotated[T, ALL_BITS]  # each bit of an integer counts, also the upper 32 that are zero
LowerBound: TypeAlias = Annotated[T, LOWER_BOUND]  # a limit; a number beyond 32 bits, such as -(2**63), is none
UpperBound: TypeAlias = Annotated[T, UPPER_BOUND]


@dataclass(frozen=True)
class OutputFlag:
    """The mark of a flag: it is set if a node has the output at this position, or a later one."""

    position: int


SecondOutput: TypeAlias = Annotated[bool, OutputFlag(1)]
FourthOutput: TypeAlias = Annotated[bool, OutputFlag(3)]


@dataclass(frozen=True)
class Subgraph:
    """The mark of a callable parameter: the operands that enter it, and the way of its outputs.

    decided_by: the operands that decide whether it runs, or how often. first: the position of the operand that is its
    first input; None when it has no inputs. leading: the number of leading inputs and outputs that are not operands:
    Loop passes an iteration number in and gets a condition back. carries: its outputs are its inputs in the next
    iteration, except the last `not_carried` ones (an attribute). of_rows: the attributes with a value for each output
    after the state, which has a row for each iteration. modifies: it maps a value that the operator creates to its
    replacement; neither is an operand or an output of the node. several: it maps more than one such value; the
    operator says how many.
    """

    decided_by: tuple[str, ...] = ()
    first: int | None = None
    leading: int = 0
    carries: bool = False
    not_carried: str = ""
    of_rows: tuple[str, ...] = ()
    modifies: bool = False
    several: bool = False


F = TypeVar("F", bound=Callable[..., Any])
# (operands, element type of the result, attributes) → whether it grows. An operand is its value if that is static,
# else its element type; None if a type is not known.
Grows: TypeAlias = Callable[[Sequence[Any], Any, Mapping[str, Any]], bool]


@dataclass(frozen=True)
class DataSize:
    """A size that depends on data, of an operator that has a parameter `size` for a bound.

    true: (inputs, attributes, results for a `size`) → the true size, if it is not above `size`; None if no result has
    this size. most: (inputs, attributes) → its largest value for any data, None if there is none; None if it never has
    one. measuring: (inputs, attributes) → attributes for which the operator returns more results, after its
    outputs, that `true` reads; None if the outputs are enough.
    """

    true: Callable[[Sequence[Any], Mapping[str, Any], Sequence[Any]], Any]
    most: Callable[[Sequence[Any], Mapping[str, Any]], Any] | None = None
    measuring: Callable[[Sequence[Any], Mapping[str, Any]], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Traits:
    """The traits of an operator: what the marks of its parameters do not express.

    kind: attention, convolution, linear, recurrent, normalization, pooling, activation or embedding; form, if the
    result is the first operand in another form, element by element; movement, if elements of the operands go
    elsewhere.
    foldable: True if NumPy computes the result, in 64 bits, when all array operands are static.
    precision: float32, if it computes so in a narrower model unless the caller asks for another type; exact, if it
    always does, with unconverted parameters, since it counts, rounds to integers, compares or solves.
    grows: True if integers of the result may exceed 32 bits although those of the operands do not. What moves, chooses
    or compares elements, combines bits, gives indices or counts, or divides with remainder does not grow.
    differentiable: True if a small change of a floating-point operand changes a floating-point result a little.
    straight_through: a function with the same parameters and values, whose derivative treats rounding as the identity.
    data_size: of an operator whose result has a size that depends on data.
    """

    kind: str = ""
    foldable: bool = False
    precision: Literal["narrow", "float32", "exact"] = "narrow"
    grows: bool | Grows = False
    differentiable: bool = True
    straight_through: Callable[..., Any] | None = None
    data_size: DataSize | None = None


def operator(**changes: Any) -> Callable[[F], F]:
    """Gives a function traits of its own, in addition to those of its file.

    >>> @operator(kind="activation")
    ... def squared_relu(x): ...
    >>> traits(squared_relu).kind
    'activation'
    """

    def decorate(fn: F) -> F:
        cast(Any, fn).traits = replace(traits(fn), **changes)
        return fn

    return decorate


def like(fn: Callable[..., Any], without: Sequence[str] = ()) -> Callable[[F], F]:
    """Gives a function the signature of `fn`, which it calls, except for the parameters that it names itself.

    Its `*inputs` are the positional parameters of `fn`, its `**attributes` the keywords. without: those that it lacks.
    """
    theirs = inspect.signature(fn, eval_str=True).parameters.values()

    def decorate(caller: F) -> F:
        named = {p.name: p for p in inspect.signature(caller, eval_str=True).parameters.values()}
        lists = [p.name for p in named.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        inputs = [p for p in theirs if p.kind is not p.KEYWORD_ONLY and "inputs" in lists]
        attributes = [p for p in theirs if p.kind is p.KEYWORD_ONLY and p.name not in {*named, *without}]
        own = [p for name, p in named.items() if name not in lists]
        parameters = sorted([*inputs, *own, *attributes], key=lambda p: p.kind)
        cast(Any, caller).__signature__ = inspect.Signature(parameters)
        return caller

    return decorate


def traits(fn: Callable[..., Any] | None) -> Traits:
    """The traits of an operator by its function; default traits if a graph defines it."""
    file = sys.modules.get(getattr(fn, "__module__", None) or "")
    candidates = (getattr(fn, "traits", None), getattr(file, "TRAITS", None))
    return next((t for t in candidates if isinstance(t, Traits)), Traits())


def marks(annotation: Any) -> tuple[Any, ...]:
    """The marks that `Annotated` carries, also inside a union with None."""
    metadata = tuple(getattr(annotation, "__metadata__", ()))
    for part in get_args(annotation):
        metadata += tuple(getattr(part, "__metadata__", ()))
    return metadata


def choices(annotation: Any) -> tuple[Any, ...]:
    """The values that a `Literal`, also inside a union with None, allows; empty for another annotation."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((get_args(part) for part in get_args(annotation) if get_origin(part) is Literal), ())


def operand_marks(fn: Callable[..., Any] | None, position: int) -> tuple[Any, ...]:
    """The marks of the operand at a position; the last parameter stands for all that follow."""
    parameters = inspect.signature(fn, eval_str=True).parameters.values() if fn else ()
    positional = [p for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    return marks(positional[min(position, len(positional) - 1)].annotation) if positional else ()


def role(fn: Callable[..., Any] | None, position: int) -> str | None:
    """The role of the operand at a position, if it is a parameter of the model: one of ROLES."""
    return next((mark for mark in operand_marks(fn, position) if mark in ROLES), None)
