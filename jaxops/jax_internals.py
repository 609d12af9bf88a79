"""The inside of JAX: names for those who extend it, and what has no public name, such as the structure of symbolic
sizes, the bounds that a scope keeps, and error texts.

A new release of JAX may change all of it. `tests/test_jax_internals.py` has a test for each function.
"""

import functools
import math
import os
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from jax import enable_x64
from jax._src.source_info_util import register_exclusion as exclude_from_source_info
from jax._src.traceback_util import register_exclusion as exclude_from_tracebacks
from jax.core import ShapedArray, Tracer, max_dim
from jax.errors import (
    ConcretizationTypeError,
    InconclusiveDimensionOperation as Undecided,
    JaxRuntimeError,
    JAXTypeError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from jax.export import is_symbolic_dim
from jax.extend.core import Primitive, get_opaque_trace_state, jaxpr_as_fun, mapped_aval, unmapped_aval
from jax.extend.core.primitives import closed_call_p
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import ad, batching, mlir, partial_eval

__all__ = [
    "ConcretizationTypeError",
    "JAXTypeError",
    "JaxRuntimeError",
    "Primitive",
    "ShapedArray",
    "Tracer",
    "TracerArrayConversionError",
    "TracerIntegerConversionError",
    "Undecided",
    "UnexpectedTracerError",
    "ad",
    "batching",
    "closed_call_p",
    "enable_x64",
    "get_opaque_trace_state",
    "ir",
    "jaxpr_as_fun",
    "mapped_aval",
    "max_dim",
    "mlir",
    "partial_eval",
    "stablehlo",
    "unmapped_aval",
]

Dim: TypeAlias = Any  # int, or a symbolic dimension of `jax.export`, whose class is private to JAX
Bounds: TypeAlias = Callable[[Dim], tuple[float, float] | None]

# A user's own line stands in tracebacks, which JAX_TRACEBACK_FILTERING=off shows in full, and in the source info of
# equations, as with JAX's own files.
_PACKAGE = os.path.dirname(__file__) + os.sep
exclude_from_tracebacks(_PACKAGE)
exclude_from_source_info(_PACKAGE)

# The sizes in the message about a comparison that JAX cannot decide.
_COMPARISON = re.compile(r"'([^']+)' (<=|>=|<|>) '([^']+)'")
# The divisor in the message about a quotient of sizes.
_DIVISION = re.compile(r"division by 0 in division by (.+)$")
_OPPOSITES = {"<": ">=", ">": "<="}


class Factor(NamedTuple):
    """A factor of a term: a symbol, or a function of two sizes (`floordiv`, `mod`, `max`, `min`).

    name: of the symbol or the function. operands: of the function; empty for a symbol. size: the factor itself.
    """

    name: str
    operands: tuple[Dim, ...]
    power: int
    size: Dim


class Term(NamedTuple):
    """A term of a sum: the product of a number and factors. size: the product without the number."""

    number: int
    factors: tuple[Factor, ...]
    size: Dim


def terms(size: Dim) -> list[Term]:
    """The terms of a size, the constant last.

    >>> from jax.export import symbolic_shape
    >>> sorted((term.number, str(term.size)) for term in terms(symbolic_shape("2*b*s - floordiv(s, 4) + 3")[0]))
    [(-1, 'floordiv(s, 4)'), (2, 'b*s'), (3, '1')]
    """
    if not is_symbolic_dim(size):
        return [Term(int(size), (), 1)]
    size_of_term, scope = type(size)._from_term, size.scope

    def factor_of(term: Any, f: Any, power: int) -> Factor:
        operands = tuple(o._sorted_terms[0][1] if o._is_constant else o for o in f.operands)
        return Factor(f.var or f.operation, operands, power, size_of_term(type(term).from_factor(f, 1), 1, scope))

    return [
        Term(number, tuple(factor_of(t, *factor) for factor in sorted(t._factors)), size_of_term(t, 1, scope))
        for t, number in size._sorted_terms
    ]


def extent(size: Dim) -> tuple[int, int]:
    """The number of terms in a size, or of factors in one of them if that is more; and the largest number, unsigned.

    >>> from jax.export import symbolic_shape
    >>> extent(symbolic_shape("3*b^4 - s")[0])
    (4, 3)
    """
    factors = (sum(power for _, power in term._factors) for term, _ in size._sorted_terms)
    return max(len(size._sorted_terms), *factors), max(abs(number) for _, number in size._sorted_terms)


def evaluated(size: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """A symbolic dimension with numbers, or other sizes, for its symbols."""
    value = size._evaluate(dict(sizes))
    return value if is_symbolic_dim(value) else int(value)


def size_as_value(size: Dim, sizes: Mapping[str, Any]) -> Any:
    """A symbolic dimension with traced integers for its symbols: of 64 bits with x64 on, else of 32."""
    return size._evaluate(dict(sizes))


class _Bounds(dict[Any, Any]):
    """The bounds of sizes that JAX has computed; `exact` computes those that it has not.

    with_none: the bounds if a size that JAX takes for positive may be 0, where they differ; else None.
    """

    precision = SimpleNamespace(value=math.inf)

    def __init__(self, exact: Bounds, with_none: "_Bounds | None") -> None:
        self.exact, self.with_none = exact, with_none

    def get(self, size: Dim, default: Any = None) -> Any:
        if size not in self:
            bounds = self.exact(size)
            if bounds is None:
                return default
            self[size] = (*bounds, self.precision)
        return self[size]


def bounded_by(scope: Any, exact: Bounds, with_none: Bounds | None = None) -> None:
    """Makes JAX compare the sizes of a scope by the bounds from `exact`; if that gives None, JAX computes them.

    with_none: the bounds if sizes that JAX takes for positive may be 0, for `may_be_none`.
    """
    scope._bounds_cache = _Bounds(exact, None if with_none is None else _Bounds(with_none, None))


def bounds_of(scope: Any) -> Bounds:
    """The function that `bounded_by` got for a scope; None for every size without one."""
    bounds = scope._bounds_cache
    return bounds.exact if isinstance(bounds, _Bounds) else lambda size: None


def is_counted(size: Dim) -> bool:
    """Returns True for a symbolic dimension whose symbols may be 0."""
    bounds = size.scope._bounds_cache if is_symbolic_dim(size) else None
    return isinstance(bounds, _Bounds) and bounds.with_none is not None


def may_be_none(fn: Callable[[Dim, Dim], Any]) -> Callable[[Dim, Dim], Any]:
    """Runs `fn(a, b)` with the bounds of sizes that may be 0, such as the number of nonzero elements.

    JAX takes every symbol for positive. That is harmless where it rejects empty arrays, but not in a model's own
    arithmetic on sizes, where `n > 0` may be a question.
    """

    @functools.wraps(fn)
    def run(a: Dim, b: Dim) -> Any:
        if not is_counted(a) and not is_counted(b):
            return fn(a, b)
        scope: Any = a.scope if is_symbolic_dim(a) else b.scope
        bounds = scope._bounds_cache
        scope._bounds_cache = bounds.with_none
        try:
            return fn(a, b)
        finally:
            scope._bounds_cache = bounds

    return run


def note_equal(a: Dim, b: Dim) -> None:
    """Records in JAX's cache that two dimensions are equal; JAX may need minutes to find out."""
    for difference in (a - b, b - a):
        bounds = difference.scope._bounds_cache if is_symbolic_dim(difference) else None
        if bounds:  # any entry's precision will do
            bounds[difference] = (0, 0, next(iter(bounds.values()))[2])


def first_line(error: BaseException) -> str:
    """The message of an error of JAX, without the explanations that follow it."""
    return str(error).partition("\n")[0]


def question(error: BaseException) -> tuple[str, ...]:
    """The two sizes of an undecided comparison, or the divisor of an undecided quotient, and the condition under which
    JAX goes on, as texts: ("s - 2", "0", "s - 2 >= 0"); empty for an error that asks for nothing.

    JAX mostly compares sizes to reject wrong ones, such as a size below 0; so the condition is the opposite comparison.
    """
    text = first_line(error)
    if divided := _DIVISION.search(text):
        return divided[1], f"{divided[1]} >= 1"
    if asked := _COMPARISON.search(text):
        a, sign, b = asked.groups()
        return a, b, f"{a} {_OPPOSITES.get(sign, sign)} {b}"
    return ()


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True for the error of a device that has no memory left."""
    return "RESOURCE_EXHAUSTED" in str(error)


def lowered_equation(error: BaseException) -> Any:
    """The equation that JAX was lowering to a program when it raised; None if it was not."""
    equation, frames = None, error.__traceback__
    while frames:
        equation = frames.tb_frame.f_locals.get("eqn", equation)
        frames = frames.tb_next
    return equation


def scan_operands(params: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the number of constants among the operands of a `scan`, and of its carried values, from its equation."""
    if "ft_in" in params:  # as JAX 0.12 has it
        constants, carry, _ = map(len, params["ft_in"].unpack())
        return constants, carry
    return params["num_consts"], params["num_carry"]
