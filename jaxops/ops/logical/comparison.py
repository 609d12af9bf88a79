"""Elementwise comparisons."""

__all__ = ["equal", "greater", "greater_or_equal", "less", "less_or_equal"]

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from jax import lax

from jaxops.dtypes import as_traced
from jaxops.errors import SizeError
from jaxops.ops.common.chosen_strings import compares_strings
from jaxops.ops.common.elementwise import broadcast_reduce, on_facts, operands, symbolic
from jaxops.ops.common.size_tracking import facts, tracks_sizes
from jaxops.shapes import arithmetic as of_sizes
from jaxops.signature import Traits
from jaxops.static import A, Array, Operand, tracing

TRAITS = Traits(foldable=True)


@compares_strings
@tracks_sizes
def equal(a: Operand[A], b: Operand[A]) -> A:
    """Returns True for each element with a = b; the operands broadcast to each other.

    a, b: any one dtype; strings are static. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Equal, opsets 7–19 (strings from 19).

    >>> equal(np.array([1, 2, 3]), 2)
    array([False,  True, False])
    """
    return _compared(operands((a, b)), of_sizes.equal, _equal, lax.eq)


def _equal(a: Any, b: Any) -> Any:
    return np.asarray(np.equal(a, b), bool)  # for strings np.equal gives an array of objects


@tracks_sizes
def greater(a: Operand[A], b: Operand[A]) -> A:
    """Returns True for each element with a > b; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Greater, opsets 7–13.

    >>> greater(np.array([1, 2, 3]), 2)
    array([False, False,  True])
    """
    return _compared(operands((a, b), "real numbers"), of_sizes.greater, np.greater, lax.gt)


@tracks_sizes
def less(a: Operand[A], b: Operand[A]) -> A:
    """Returns True for each element with a < b; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Less, opsets 7–13.

    >>> less(np.array([1, 2, 3]), 2)
    array([ True, False, False])
    """
    return _compared(operands((a, b), "real numbers"), lambda x, y: of_sizes.greater(y, x), np.less, lax.lt)


@tracks_sizes
def greater_or_equal(a: Operand[A], b: Operand[A]) -> A:
    """Returns True for each element with a ≥ b; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX GreaterOrEqual, opsets 12–16.

    >>> greater_or_equal(np.array([1, 2, 3]), 2)
    array([False,  True,  True])
    """
    arrays = operands((a, b), "real numbers")
    return _compared(arrays, of_sizes.greater_or_equal, np.greater_equal, lax.ge)


@tracks_sizes
def less_or_equal(a: Operand[A], b: Operand[A]) -> A:
    """Returns True for each element with a ≤ b; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX LessOrEqual, opsets 12–16.

    >>> less_or_equal(np.array([1, 2, 3]), 2)
    array([ True,  True, False])
    """
    arrays = operands((a, b), "real numbers")
    return _compared(arrays, lambda x, y: of_sizes.greater_or_equal(y, x), np.less_equal, lax.le)


def _compared(
    arrays: tuple[Array, ...],
    fact: Callable[[Any, Any], bool],
    static_fn: Callable[..., Any],
    traced_fn: Callable[..., Any],
) -> Any:
    """Compares element by element. fact: the comparison of two sizes.

    If the value of a symbolic size decides the answer, the program compares when it runs.
    """
    if not symbolic(*arrays):
        return broadcast_reduce(arrays, static_fn, traced_fn)
    try:
        return broadcast_reduce(arrays, functools.partial(on_facts, fact), traced_fn)
    except SizeError:
        if not tracing():
            raise
        traced = broadcast_reduce(tuple(map(as_traced, arrays)), static_fn, traced_fn)
        return facts(fact, traced, *cast(tuple[np.ndarray, ...], arrays))
