"""Converts arguments of OpenVINO's operations to those of the operators."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from jaxops import ops
from jaxops.attributes import axis as axis_of
from jaxops.errors import ArgumentError, ShapeError, amount, shape_text
from jaxops.signature_errors import errors_of
from jaxops.static import array, is_symbolic, known

Word: TypeAlias = Any  # an attribute that is one of the words that `opsets.json` lists
_AUTO_PADS: dict[str, Any] = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def laid_beside(op: str, a: Any, b: Any, auto_broadcast: Word) -> Any:
    """Returns `b` reshaped so that NumPy's broadcasting gives the result of `auto_broadcast`.

    With 'pdpd' the axes of `b` align with the first axes of `a`, after its trailing axes of size 1 are dropped.
    """
    a, b = array(a), array(b)
    if auto_broadcast == "none" and a.shape != b.shape:
        raise ShapeError(f"{op}: {shape_text(a.shape)} and {shape_text(b.shape)} differ, but `auto_broadcast` is none")
    if auto_broadcast != "pdpd" or b.ndim == a.ndim:
        return b
    sizes = list(b.shape)
    while sizes and isinstance(sizes[-1], int) and sizes[-1] == 1:
        sizes.pop()
    if len(sizes) > a.ndim:
        raise ShapeError(f"{op}: {shape_text(b.shape)} has more axes than {shape_text(a.shape)} for pdpd broadcasting")
    return ops.reshape(b, (*sizes, *[1] * (a.ndim - len(sizes))), allowzero=1)


def vector(op: str, name: str, values: Any) -> np.ndarray:
    """Returns static integers, one or a list, as a 1-D array."""
    with errors_of(op):
        return np.reshape(np.asarray(known(name, values)), -1)


def single(op: str, name: str, value: Any) -> Any:
    """Returns one static number."""
    values = vector(op, name, value)
    if values.size != 1:
        raise ShapeError(f"{op}: `{name}` must be one number, got {values.size}")
    return values[0] if is_symbolic(values) else values[0].item()


def resolve_axis(op: str, value: Any, rank: int) -> int:
    """Returns the axis in [0, rank) that `value` names."""
    with errors_of(op):
        return axis_of(value, rank)


def with_axes(op: str, name: str, value: Any, least: int) -> Any:
    """Returns an array. Raises ShapeError for fewer than `least` axes."""
    x = array(value)
    if x.ndim < least:
        raise ShapeError(f"{op}: `{name}` of {shape_text(x.shape)} must have at least {amount(least, 'axis', 'axes')}")
    return x


def of_axes(op: str, rank: int, **numbers: Sequence[Any]) -> None:
    """Raises ArgumentError for a list that does not have one number per spatial axis."""
    for name, values in numbers.items():
        if len(values) != rank:
            raise ArgumentError(
                f"{op}: `{name}` has {amount(len(values), 'number')}; it must have {rank}, one per spatial axis"
            )


def scalar_like(x: Any, value: Any) -> np.ndarray:
    """Returns a number in the element type of an array."""
    return np.asarray(value, array(x).dtype)


def padding(auto_pad: Word, pads_begin: Sequence[int], pads_end: Sequence[int], rank: int) -> dict[str, Any]:
    """Returns padding as attributes of ONNX; pads_begin and pads_end have an effect only if `auto_pad` is explicit."""
    if auto_pad != "explicit":
        return {"auto_pad": _AUTO_PADS[auto_pad]}
    begin, end = (tuple(pads or ()) or (0,) * rank for pads in (pads_begin, pads_end))
    if len(begin) != len(end):
        raise ArgumentError(f"`pads_begin` has {amount(len(begin), 'number')}, `pads_end` {len(end)}")
    return {"pads": (*begin, *end)}
