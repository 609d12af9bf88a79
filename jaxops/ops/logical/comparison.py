"""Elementwise comparisons."""

__all__ = ["equal", "greater", "greater_or_equal", "less", "less_or_equal"]

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from jaxops.dtypes import as_traced
from jaxops.errors import SizeError
from jaxops.ops.elementwise import broadcast_reduce, on_facts, operands, symbolic
from jaxops.shapes import arithmetic as of_sizes
from jaxops.static import A, Array, foldable, tracing


@foldable
def equal(a: A, b: A) -> A:
    """Whether a = b, element by element; the operands broadcast to each other.

    a, b: any one dtype; strings are static. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Equal, opsets 7–19 (strings from 19).

    >>> equal(np.array([1, 2, 3]), 2)
    array([False,  True, False])
    """
    return _compared("equal", operands("equal", (a, b)), _equal, lax.eq)


def _equal(a: Any, b: Any) -> Any:
    return on_facts(of_sizes.equal, a, b) if symbolic(a, b) else np.asarray(np.equal(a, b), bool)


@foldable
def greater(a: A, b: A) -> A:
    """Whether a > b, element by element; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Greater, opsets 7–13.

    >>> greater(np.array([1, 2, 3]), 2)
    array([False, False,  True])
    """
    return _compared("greater", operands("greater", (a, b), "real numbers"), _greater, lax.gt)


def _greater(a: Any, b: Any) -> Any:
    return on_facts(of_sizes.greater, a, b) if symbolic(a, b) else np.greater(a, b)


@foldable
def less(a: A, b: A) -> A:
    """Whether a < b, element by element; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX Less, opsets 7–13.

    >>> less(np.array([1, 2, 3]), 2)
    array([ True, False, False])
    """
    return _compared("less", operands("less", (a, b), "real numbers"), _less, lax.lt)


def _less(a: Any, b: Any) -> Any:
    return _greater(b, a)


@foldable
def greater_or_equal(a: A, b: A) -> A:
    """Whether a ≥ b, element by element; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX GreaterOrEqual, opsets 12–16.

    >>> greater_or_equal(np.array([1, 2, 3]), 2)
    array([False,  True,  True])
    """
    arrays = operands("greater_or_equal", (a, b), "real numbers")
    return _compared("greater_or_equal", arrays, _greater_or_equal, lax.ge)


def _greater_or_equal(a: Any, b: Any) -> Any:
    if symbolic(a, b):
        return on_facts(of_sizes.greater_or_equal, a, b)
    return np.greater_equal(a, b)


@foldable
def less_or_equal(a: A, b: A) -> A:
    """Whether a ≤ b, element by element; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ.
    Source: ONNX LessOrEqual, opsets 12–16.

    >>> less_or_equal(np.array([1, 2, 3]), 2)
    array([ True,  True, False])
    """
    arrays = operands("less_or_equal", (a, b), "real numbers")
    return _compared("less_or_equal", arrays, _less_or_equal, lax.le)


def _less_or_equal(a: Any, b: Any) -> Any:
    return _greater_or_equal(b, a)


def _compared(op: str, arrays: tuple[Array, ...], static_fn: Callable[..., Any], traced_fn: Callable[..., Any]) -> Any:
    """Traced where the answer depends on the value of a symbolic size, so that the program decides when it runs."""
    try:
        return broadcast_reduce(arrays, op, static_fn, traced_fn)
    except SizeError:
        if not (symbolic(*arrays) and tracing()):
            raise
        return broadcast_reduce(tuple(map(as_traced, arrays)), op, static_fn, traced_fn)
