"""Values as texts: the same text means equal values, in this process and in others."""

import enum
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_PLAIN = {str, int, float, complex, bool, bytes, type(None)}


def fingerprint(x: Any, otherwise: Callable[[Any], str]) -> str:
    """Returns a text that only an equal value has: 0.0 and -0.0 differ, and arrays are equal if their bytes are.

    otherwise: returns the text of any value except numbers, strings, dtypes, arrays, and containers of these.
    """
    if type(x) in _PLAIN or isinstance(x, enum.Enum | np.dtype | np.generic | type):
        return repr(x)
    if isinstance(x, tuple | list):
        return f"{type(x).__name__}[{','.join(fingerprint(item, otherwise) for item in x)}]"
    if isinstance(x, Mapping):
        return f"{{{','.join(f'{fingerprint(k, otherwise)}:{fingerprint(v, otherwise)}' for k, v in x.items())}}}"
    if hasattr(x, "__array__") and isinstance(x.dtype, np.dtype):
        array = np.asarray(x)
        content = fingerprint(array.tolist(), otherwise) if array.dtype == object else digest(array.tobytes())
        return f"{array.dtype.name}{array.shape}{content}"
    return otherwise(x)


def digest(content: bytes) -> str:
    """Returns a short text that stands for bytes."""
    return hashlib.blake2b(content, digest_size=20).hexdigest()
