"""Bits of numbers as words of 32 bits.

JAX, too, can cast a number of 64 bits to two words and back. But in a program with symbolic sizes, `jax.export` cannot
give that cast its sizes later (shape refinement).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax


def words_of(x: Any) -> list[Any]:
    """The words of an array of 32 or 64 bits, the lowest first: one or two arrays of uint32."""
    if x.dtype.itemsize == 4:
        return [lax.bitcast_convert_type(x, np.uint32)]
    bits = lax.bitcast_convert_type(x, np.uint64)
    return [bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)]


def from_words(words: Sequence[Any], dtype: Any) -> Any:
    """Numbers made of one or two words, the lowest first. dtype: a type of 32 bits for one word, of 64 for two."""
    bits = [lax.bitcast_convert_type(word, np.uint32) for word in words]
    if len(bits) == 1:
        return lax.bitcast_convert_type(bits[0], dtype)
    low, high = (word.astype(np.uint64) for word in bits)
    return lax.bitcast_convert_type(low | high << np.uint64(32), dtype)
