"""Reading a part of a tensor from a file: no more of it is ever in memory than the part and one block."""

import math
from io import BufferedReader
from typing import Literal, Protocol

import numpy as np

from jaxops.errors import ModelError
from jaxops.graph.on_host import shareable

# Bytes that are read at once, where the part has gaps in the file.
_BLOCK = 1 << 24


class File(Protocol):
    """A path, or what opens its file with checks of its own."""

    def open(self, mode: Literal["rb"], /) -> BufferedReader:
        """The file, to be read."""
        ...


def read_part(
    name: str, path: File, offset: int, dtype: np.dtype, sizes: tuple[int, ...], index: tuple[slice, ...]
) -> np.ndarray:
    """The elements at `index`, a slice of step 1 for each axis, of the tensor `name` at `offset` of a file.

    The file has the array as ONNX stores it and as JAX's hosts have it: in C order, little-endian.
    Raises ModelError where the file ends too early.
    """
    if not sizes:
        return read_part(name, path, offset, dtype, (1,), (slice(None),)).reshape(())
    ranges = [range(size)[part] for size, part in zip(sizes, index, strict=True)]
    found = shareable(tuple(map(len, ranges)), dtype)
    if found.size == 0:
        return found
    rows, inner = ranges[0], sizes[1:]
    bytes_of_row = math.prod(inner) * dtype.itemsize
    whole = found.shape[1:] == inner
    step = len(rows) if whole else max(1, _BLOCK // bytes_of_row)
    with path.open("rb") as file:
        for first in range(0, len(rows), step):
            target = found[first : first + step]
            block = target if whole else np.empty((len(target), *inner), dtype)
            file.seek(offset + (rows.start + first) * bytes_of_row)
            if file.readinto(block.reshape(-1).view(np.uint8).data) != block.nbytes:
                end = offset + math.prod(sizes) * dtype.itemsize
                raise ModelError(
                    f"tensor '{name}' of shape {sizes}: its data is damaged: '{path}' ends before byte {end}"
                )
            if not whole:
                target[...] = block[(slice(None), *index[1:])]
    return found
