"""Values as texts: the same text means equal values, in this process and in others."""

import enum
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_PLAIN = {str, int, float, complex, bool, bytes, type(None)}


def said(x: Any, otherwise: Callable[[Any], str]) -> str:
    """A text that only an equal value has: 0.0 and -0.0 differ, and arrays are equal by their bytes.

    otherwise: what says all that is neither a number, a text, a type of elements nor an array, nor made of these.
    """
    if type(x) in _PLAIN or isinstance(x, enum.Enum | np.dtype | np.generic | type):
        return repr(x)
    if isinstance(x, tuple | list):
        return f"{type(x).__name__}[{','.join(said(item, otherwise) for item in x)}]"
    if isinstance(x, Mapping):
        return f"{{{','.join(f'{said(k, otherwise)}:{said(v, otherwise)}' for k, v in x.items())}}}"
    if hasattr(x, "__array__") and isinstance(x.dtype, np.dtype):
        array = np.asarray(x)
        content = said(array.tolist(), otherwise) if array.dtype == object else digest(array.tobytes())
        return f"{array.dtype.name}{array.shape}{content}"
    return otherwise(x)


def digest(content: bytes) -> str:
    """A short text that stands for bytes."""
    return hashlib.blake2b(content, digest_size=20).hexdigest()
