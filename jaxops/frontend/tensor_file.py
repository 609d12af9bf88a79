"""Reads tensors, and parts of them, from files. The memory holds at most the part and one block of the file."""

import functools
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
from jaxops.graph.nodes import Tensor

# If a part is not contiguous in the file, it is read in blocks of this many bytes.
_BLOCK = 1 << 24


class File(Protocol):
    """A path, or an object that checks and opens its file."""

    def open(self, mode: Literal["rb"], /) -> BufferedReader:
        """Opens the file for reading."""
        ...


@dataclass(frozen=True)
class InMemory:
    """The bytes of a file."""

    data: bytes

    def open(self, mode: Literal["rb"]) -> BufferedReader:
        """Opens the bytes for reading."""
        return BufferedReader(io.BytesIO(self.data))  # type: ignore[arg-type]  # it reads as a raw one


class HeldFile:
    """A file that stays open, so that it can be read after its name was removed. where: its name in messages."""

    def __init__(self, file: BufferedReader, where: str) -> None:
        self._descriptor = os.dup(file.fileno())
        self._where, self._stamp = where, _stamp(self._descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    def __str__(self) -> str:
        return self._where

    def open(self, mode: Literal["rb"]) -> BufferedReader:
        """Opens the file for reading from its start. Raises ModelError if its content has changed."""
        if _stamp(self._descriptor) != self._stamp:
            raise ModelError(f"'{self}' has changed since the model was loaded from it; load it again")
        return BufferedReader(_Reader(self))

    def read_at(self, offset: int, buffer: Any) -> int:
        """Reads into a buffer from an offset on, up to the end of the file; returns the number of bytes."""
        return os.preadv(self._descriptor, [buffer], offset)


class _Reader(io.RawIOBase):
    """Reads a file from its own position; duplicated descriptors of a file would share one."""

    def __init__(self, file: HeldFile) -> None:
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = self._file.read_at(self._position, buffer)
        self._position += count
        return count


def hold(file: BufferedReader, where: str) -> File:
    """Returns an open file in a form that can be read later."""
    return HeldFile(file, where) if hasattr(os, "preadv") else InMemory(file.read())


class FileRange(NamedTuple):
    """Bytes in a file. span: their positions."""

    file: File
    span: range

    def read(self) -> bytes:
        """Reads the bytes. Raises what `file.open` raises."""
        with self.file.open("rb") as file:
            file.seek(self.span.start)
            return file.read(len(self.span))

    def tensor(self, name: str, dtype: np.dtype, sizes: tuple[int, ...]) -> Tensor:
        """Returns the bytes as a tensor, in C order, little-endian and not packed, that is read when it is needed."""
        part = functools.partial(read_part, name, self.file, self.span.start, dtype, sizes)
        return Tensor(dtype, sizes, functools.partial(part, (slice(None),) * len(sizes)), part)


def is_packed(dtype: np.dtype) -> bool:
    """Returns True if a byte of a file may hold more than one element of this type."""
    return bits(dtype) != 8 * dtype.itemsize


def bits(dtype: np.dtype) -> int:
    """The number of bits of an element in a file; small types are packed."""
    if dtype.name.startswith("float6_"):
        return 6
    packed = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
    return packed.get(dtype.name, 8 * dtype.itemsize)


def _stamp(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def read_part(
    name: str, file: File, offset: int, dtype: np.dtype, sizes: tuple[int, ...], index: tuple[slice, ...]
) -> np.ndarray:
    """Reads the elements at `index`, a slice of step 1 for each axis, of the tensor `name` at `offset` of a file.

    The file has the array in C order, little-endian. Raises ModelError if the file ends too early.
    """
    if not sizes:
        return read_part(name, file, offset, dtype, (1,), (slice(None),)).reshape(())
    ranges = [range(size)[part] for size, part in zip(sizes, index, strict=True)]
    values = shareable(tuple(map(len, ranges)), dtype)
    if values.size == 0:
        return values
    rows, trailing = ranges[0], sizes[1:]
    bytes_of_row = math.prod(trailing) * dtype.itemsize
    contiguous = values.shape[1:] == trailing
    step = len(rows) if contiguous else max(1, _BLOCK // bytes_of_row)
    with file.open("rb") as opened:
        for first in range(0, len(rows), step):
            target = values[first : first + step]
            block = target if contiguous else np.empty((len(target), *trailing), dtype)
            opened.seek(offset + (rows.start + first) * bytes_of_row)
            if opened.readinto(block.reshape(-1).view(np.uint8).data) != block.nbytes:
                end = offset + math.prod(sizes) * dtype.itemsize
                raise ModelError(
                    f"tensor '{name}' of shape {sizes}: its data is damaged: '{file}' ends before byte {end}"
                )
            if not contiguous:
                target[...] = block[(slice(None), *index[1:])]
    values.flags.writeable = False  # a JAX array may share its memory
    return values
