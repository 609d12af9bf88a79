"""Strings as bytes, with the places where each begins and ends: the only form that a compiled program can hold."""

__all__ = ["string_tensor_pack", "string_tensor_unpack"]

from typing import Any

import numpy as np

from jaxops.dtypes import is_string, require_integers
from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, describe
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import Static, Traits
from jaxops.static import array, known

TRAITS = Traits(foldable=True)


def string_tensor_pack(begins: Static, ends: Static, symbols: Static) -> np.ndarray:
    """Makes strings from bytes in UTF-8.

    begins, ends: static, any sizes, integers: where each string begins and ends in symbols, (n,), uint8, static.
    Returns strings, in the sizes of begins.
    Raises ShapeError, DTypeError, BoundsError; ArgumentError for bytes that are not UTF-8; StaticError.
    Source: OpenVINO StringTensorPack-15.

    >>> string_tensor_pack((0, 5), (5, 13), np.frombuffer(b"IntelOpenVINO", np.uint8)).tolist()
    ['Intel', 'OpenVINO']
    """
    first, last, text = (known(n, v) for n, v in (("begins", begins), ("ends", ends), ("symbols", symbols)))
    require_integers("begins", first)
    require_integers("ends", last)
    if text.dtype != np.uint8:
        raise DTypeError(f"`symbols` must be uint8, got {describe(text)}")
    must_fit("symbols", text.shape, ("n",))
    must_fit("ends", last.shape, first.shape)
    if ((first < 0) | (last < first) | (last > text.size)).any():
        raise BoundsError(f"`begins` and `ends` must be in order, and in [0, {text.size}], the number of symbols")
    strings, content = np.empty(first.shape, object), text.tobytes()
    for index in np.ndindex(*first.shape):
        part = content[int(first[index]) : int(last[index])]
        try:
            strings[index] = part.decode()
        except UnicodeDecodeError as error:
            raise ArgumentError(f"the string at {index} is {part!r:.80}, which is not UTF-8") from error
    return strings


def string_tensor_unpack(data: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the bytes of strings in UTF-8, and where each string begins and ends.

    data: strings (static), any sizes. Returns begins and ends, int32, in the sizes of data, and symbols, (n,), uint8.
    Raises DTypeError for anything but strings; ShapeError. Source: OpenVINO StringTensorUnpack-15.

    >>> [part.tolist() for part in string_tensor_unpack(np.array(["ab", "", "c"]))]
    [[0, 2, 2], [2, 2, 3], [97, 98, 99]]
    """
    texts = array(data)
    if not isinstance(texts, np.ndarray) or not is_string(texts):
        raise DTypeError(f"`data` must be strings, in a NumPy array, but is {describe(texts)}")
    parts = [text if isinstance(text, bytes) else str(text).encode() for text in texts.flat]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    if len(parts) and ends[-1] > np.iinfo(np.int32).max:
        raise ShapeError(f"{ends[-1]} bytes are more than the int32 of the results can count")
    begins = ends - np.asarray([len(part) for part in parts], np.int64)
    begins, ends = (v.astype(np.int32).reshape(texts.shape) for v in (begins, ends))
    return begins, ends, np.frombuffer(b"".join(parts), np.uint8).copy()
