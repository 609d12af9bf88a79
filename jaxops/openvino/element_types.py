"""The element types of OpenVINO: their names in files, how a file packs their elements, and NumPy's types for them."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from jaxops.errors import ModelError, amount

# The numbers that the 16 codes of nf4 stand for: quantiles of the normal distribution (QLoRA, appendix E).
NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)


class ElementType(NamedTuple):
    """An element type. dtype: of arrays. bits: of an element in a file.

    unpack: (bytes of a file, number of elements) → array, for types that NumPy cannot read. pack: array → bytes.
    """

    dtype: np.dtype
    bits: int
    unpack: Callable[[np.ndarray, int], np.ndarray] | None = None
    pack: Callable[[np.ndarray], np.ndarray] | None = None

    def file_bytes(self, count: int) -> int:
        """Returns the number of bytes that `count` elements take in a file; for strings, the smallest possible one."""
        if self.dtype == object:
            return 4 + 4 * (count + 1)
        if self.bits in (3, 6):  # in blocks of 24 bits
            per_block = 24 // self.bits
            return -(-count // per_block) * 3
        return -(-count * self.bits // 8)


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    """Returns numbers below 256 as uint8 in one row, padded with zeros to a multiple of `count`."""
    flat = values.reshape(-1).astype(np.uint8)
    return np.concatenate([flat, np.zeros(-flat.size % count, np.uint8)])


def _packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Packs numbers of `bits` bits into bytes, low bits first."""
    fields = _padded(values, 8 // bits).reshape(-1, 8 // bits) & np.uint8(2**bits - 1)
    return np.bitwise_or.reduce(fields << np.arange(0, 8, bits, dtype=np.uint8), axis=1)


def _fields(data: np.ndarray, count: int, bits: int) -> np.ndarray:
    """Unpacks numbers of `bits` bits from bytes, low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (data[:, None] >> shifts & (2**bits - 1)).reshape(-1)[:count]


def _u1(data: np.ndarray, count: int) -> np.ndarray:
    return np.unpackbits(data)[:count]


def _unsigned_4(data: np.ndarray, count: int) -> np.ndarray:
    return _fields(data, count, 4).astype(ml_dtypes.uint4)


def _signed_4(data: np.ndarray, count: int) -> np.ndarray:
    values = _fields(data, count, 4).astype(np.int8)
    return np.where(values > 7, values - 16, values).astype(ml_dtypes.int4)


def _nf4(data: np.ndarray, count: int) -> np.ndarray:
    return NF4[_fields(data, count, 4)]


def _f4(data: np.ndarray, count: int) -> np.ndarray:
    return _fields(data, count, 4).view(ml_dtypes.float4_e2m1fn)


def _split(data: np.ndarray, count: int, low: int, high: int) -> np.ndarray:
    """Unpacks blocks of 3 bytes, from high bits to low: 2 with the low bits of the numbers, 1 with their high bits."""
    blocks = data.reshape(-1, 3)
    lows = (blocks[:, :2, None] >> np.arange(8 - low, -1, -low, dtype=np.uint8) & (2**low - 1)).reshape(len(blocks), -1)
    highs = blocks[:, 2:] >> np.arange(8 - high, -1, -high, dtype=np.uint8) & (2**high - 1)
    return (lows | highs << low).reshape(-1)[:count]


def _joined(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Packs numbers into the blocks that `_split` unpacks."""
    blocks = _padded(values, 8 // high).reshape(-1, 8 // high)
    lows = (blocks & np.uint8(2**low - 1)).reshape(len(blocks), 2, -1) << np.arange(8 - low, -1, -low, dtype=np.uint8)
    highs = (blocks >> np.uint8(low))[:, None] << np.arange(8 - high, -1, -high, dtype=np.uint8)
    return np.concatenate([np.bitwise_or.reduce(part, axis=2) for part in (lows, highs)], axis=1).reshape(-1)


def _packed_4(values: np.ndarray) -> np.ndarray:
    return _packed(values.astype(np.int8), 4)


def _nf4_codes(values: np.ndarray) -> np.ndarray:
    """Returns the code of the closest number of nf4."""
    return _packed(np.searchsorted((NF4[1:] + NF4[:-1]) / 2, values.reshape(-1)), 4)


def _strings(data: np.ndarray, count: int) -> np.ndarray:
    """Unpacks strings: a count, count + 1 offsets of 32 bits, and the characters in UTF-8."""
    head = data[: 4 * (count + 2)].view("<i4").astype(np.int64)
    characters = data[4 * (count + 2) :].tobytes()
    offsets = head[1:]
    if head[0] != count or (np.diff(offsets) < 0).any() or offsets[0] < 0 or offsets[-1] > len(characters):
        raise ModelError(
            f"its strings are damaged: {amount(int(head[0]), 'string')} at {offsets[:4].tolist()}… in {data.size} bytes"
        )
    values = np.empty(count, object)
    try:
        values[:] = [characters[a:b].decode() for a, b in itertools.pairwise(offsets)]
    except UnicodeDecodeError as error:
        raise ModelError(f"its strings are damaged: {error}") from error
    return values


_PLAIN = {
    **{f"{name[0]}{bits}": f"{name}{bits}" for name in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{"f16": "float16", "f32": "float32", "f64": "float64", "boolean": "bool"},
}  # fmt: skip
TYPES: dict[str, ElementType] = {
    **{name: ElementType(np.dtype(dtype), 8 * np.dtype(dtype).itemsize) for name, dtype in _PLAIN.items()},
    "bf16": ElementType(np.dtype(ml_dtypes.bfloat16), 16),
    "f8e4m3": ElementType(np.dtype(ml_dtypes.float8_e4m3fn), 8),
    "f8e5m2": ElementType(np.dtype(ml_dtypes.float8_e5m2), 8),
    "f8e8m0": ElementType(np.dtype(ml_dtypes.float8_e8m0fnu), 8),
    "f4e2m1": ElementType(np.dtype(ml_dtypes.float4_e2m1fn), 4, _f4, lambda x: _packed(x.view(np.uint8), 4)),
    "nf4": ElementType(np.dtype(np.float32), 4, _nf4, _nf4_codes),
    "u1": ElementType(np.dtype(np.uint8), 1, _u1, np.packbits),
    "u2": ElementType(np.dtype(np.uint8), 2, lambda data, n: _fields(data, n, 2), lambda x: _packed(x, 2)),
    "u3": ElementType(np.dtype(np.uint8), 3, lambda data, n: _split(data, n, 2, 1), lambda x: _joined(x, 2, 1)),
    "u4": ElementType(np.dtype(ml_dtypes.uint4), 4, _unsigned_4, _packed_4),
    "u6": ElementType(np.dtype(np.uint8), 6, lambda data, n: _split(data, n, 4, 2), lambda x: _joined(x, 4, 2)),
    "i4": ElementType(np.dtype(ml_dtypes.int4), 4, _signed_4, _packed_4),
    "string": ElementType(np.dtype(object), 8, _strings),
}  # fmt: skip
_OF_PORTS = {"BOOL": "boolean", "FP64": "f64", "FP32": "f32", "FP16": "f16", "BIN": "u1"}
# NumPy's type → the first name with it. nf4, u1 and others share a wide type, and get the name of that.
_NAMES = {element.dtype: name for name, element in reversed(TYPES.items())}


def element_type(name: str, subject: str) -> ElementType:
    """The element type of a name in a file. Raises ModelError, which begins with `subject`, for another name."""
    found = TYPES.get(name.lower()) or TYPES.get(_OF_PORTS.get(name.upper(), ""))
    if found is None:
        raise ModelError(f"{subject}: unknown element type {name!r:.40}; OpenVINO has {', '.join(TYPES)}")
    return found


def port_type(precision: str) -> np.dtype | None:
    """Returns the element type that a port states; None if it states none."""
    found = TYPES.get(_OF_PORTS.get(precision, precision.lower()))
    return found and found.dtype


def name_of(dtype: np.dtype) -> str:
    """Returns OpenVINO's name of an element type."""
    return _NAMES.get(np.dtype(dtype), np.dtype(dtype).name)
