"""Reading a part of a tensor from a file: no more of it is ever in memory than the part and one block."""

import io
import math
import os
import weakref
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from jaxops.compiler.numpy_interpreter import shareable
from jaxops.errors import ModelError

# Bytes that are read at once, where the part has gaps in the file.
_BLOCK = 1 << 24


class File(Protocol):
    """A path, or what opens its file with checks of its own."""

    def open(self, mode: Literal["rb"], /) -> BufferedReader:
        """The file, to be read."""
        ...


@dataclass(frozen=True)
class InMemory:
    """The bytes of a file."""

    data: bytes

    def open(self, mode: Literal["rb"]) -> BufferedReader:
        """The bytes, to be read."""
        return BufferedReader(io.BytesIO(self.data))  # type: ignore[arg-type]  # it reads as a raw one


class Held:
    """A file that stays open, so that it can be read when its name is gone.

    where: what messages call it.
    """

    def __init__(self, file: BufferedReader, where: str) -> None:
        self._descriptor = os.dup(file.fileno())
        self._where, self._stamp = where, _stamp(self._descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    def __str__(self) -> str:
        return self._where

    def open(self, mode: Literal["rb"]) -> BufferedReader:
        """The file, to be read from its start. Raises ModelError where its content is another now."""
        if _stamp(self._descriptor) != self._stamp:
            raise ModelError(f"'{self}' has changed since the model was loaded from it; load it again")
        return BufferedReader(_Reader(self))

    def read_at(self, place: int, buffer: Any) -> int:
        """Fills a buffer with what is at a place, as far as the file goes: the number of bytes."""
        return os.preadv(self._descriptor, [buffer], place)


class _Reader(io.RawIOBase):
    """Reads a file at a place of its own: descriptors of one file share theirs."""

    def __init__(self, file: Held) -> None:
        self._file, self._place = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + (self._place if whence == os.SEEK_CUR else 0)
        return self._place

    def readinto(self, buffer: Any) -> int:
        count = self._file.read_at(self._place, buffer)
        self._place += count
        return count


def held(file: BufferedReader, where: str) -> File:
    """An open file, for later."""
    return Held(file, where) if hasattr(os, "preadv") else InMemory(file.read())


class Data(NamedTuple):
    """Bytes in a file."""

    file: File
    place: range

    def read(self) -> bytes:
        """The bytes. Raises what `file.open` raises."""
        with self.file.open("rb") as file:
            file.seek(self.place.start)
            return file.read(len(self.place))


def _stamp(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns


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
    found.flags.writeable = False  # an array of JAX may share its memory
    return found
