"""Operators on optionals; an optional is a value or None."""

__all__ = ["optional", "optional_get_element", "optional_has_element"]

from typing import Any

import numpy as np

from jaxops.errors import ArgumentError, SignatureError
from jaxops.signature import ShapeOnly, Traits

TRAITS = Traits(foldable=True)


def optional(input: Any = None, *, type: Any = None) -> Any:
    """An optional that holds `input`, an array or a sequence; without `input` an empty optional (None).

    type: the type that an empty optional may hold, as ONNX writes it: 'seq(tensor(float))'; None does not record it.
    Raises SignatureError when both are missing.
    Source: ONNX Optional, opsets 15–28.

    >>> optional(type="tensor(float)") is None
    True
    """
    if input is None and type is None:
        raise SignatureError("give `input`, or the `type` of an empty optional")
    return input


def optional_get_element(input: Any) -> Any:
    """The content of an optional; an array or a sequence is returned unchanged.

    Raises ArgumentError for an empty one (None).
    Source: ONNX OptionalGetElement, opsets 15–28.

    >>> optional_get_element(np.ones(2))
    array([1., 1.])
    """
    if input is None:
        raise ArgumentError("the optional is empty; check it with optional_has_element first")
    return input


def optional_has_element(input: ShapeOnly = None) -> np.ndarray:
    """Returns a static boolean: True if an optional holds a value, and for any array or sequence.

    Source: ONNX OptionalHasElement, opsets 15–28.

    >>> optional_has_element(None)
    array(False)
    """
    return np.array(input is not None)
