"""External data: the bytes of a tensor in a file beside the model, which nothing vouches for.

The file is looked up when the model is loaded, and opened, without following links, each time it is read. What is
found must be a regular file below a folder of the model that has the size that it had at first. A link may lead there:
caches of downloads link a model and its data, each alone, to a folder of files that are named by their content.
"""

import errno
import math
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxops.errors import ModelError, PathError, SignatureError

# No link is followed, and a pipe is not waited for. Windows has other flags, and no descriptors of folders: there links
# are followed, where the lookup allows them.
_FLAGS = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)


@dataclass(frozen=True)
class Folders:
    """The folders of a model, without links in their paths.

    searched: where external data is looked for, in this order; none where there can be none. allowed: below one of
    these a file must lie, whatever links lead to it.
    """

    searched: tuple[Path, ...] = ()
    allowed: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return " and ".join(f"'{folder}'" for folder in self.allowed)


def folders(model: Path | None, given: Any = None) -> Folders:
    """The folders of a model's external data: beside its path, and beside the file that this path is a link to.

    model: its path, if it has one. given: a folder that is searched in place of these.
    Raises PathError where `given` is no folder, SignatureError where it is no path.
    """
    own = () if model is None else tuple(dict.fromkeys((model.parent.resolve(), model.resolve().parent)))
    if given is None:
        return Folders(own, own)
    if not isinstance(given, str | os.PathLike):
        raise SignatureError(f"load: `external_data` is {given!r:.80}; it must be the path of a folder")
    try:
        folder = Path(given).resolve()
        exists = folder.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, too long a name, links in a circle
        raise PathError(f"load: `external_data` {os.fspath(given)!r} cannot be looked up: {error}") from error
    if not exists:
        raise PathError(f"load: `external_data` {os.fspath(given)!r} is no folder")
    return Folders((folder,), tuple(dict.fromkeys((folder, *own))))


@dataclass(frozen=True)
class ExternalData:
    """Where the bytes of one tensor are. what: in messages; root: a folder of the model; parts: the way from there."""

    what: str
    root: Path
    parts: tuple[str, ...]
    offset: int
    length: int
    size: int  # of the whole file

    @property
    def path(self) -> Path:
        """The file."""
        return self.root.joinpath(*self.parts)

    def __str__(self) -> str:
        return str(self.path)

    def open(self, mode: Literal["rb"]) -> BufferedReader:
        """The file, checked again. Raises ModelError for one that is gone, or is another now."""
        file = _opened(self.what, self.root, self.parts)
        size = os.fstat(file.fileno()).st_size
        if size != self.size:
            file.close()
            raise ModelError(
                f"{self.what}: its data is damaged: '{self}' has {size} bytes, but had {self.size} when the model was "
                "loaded"
            )
        return file

    def read(self) -> bytes:
        """The bytes. Raises ModelError as `open`."""
        with self.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.length)


def external_data(
    name: str, dtype: np.dtype, sizes: Sequence[int], entries: Mapping[str, str], folders: Folders
) -> ExternalData:
    """Where the data of the tensor `name` is. entries: what the model says of it; folders: the model's.

    Raises ModelError where there is no such file, or one that may not be read, or one that ends too early.
    """
    location = entries.get("location", "")
    what = f"tensor '{name}': external data '{location}'"
    hint = "give the folder that has it: load(…, external_data=folder)"
    if not folders.searched:
        raise ModelError(f"{what} needs the model's folder; load the model from its path, or {hint}")
    try:
        paths = [(folder / location).resolve() for folder in folders.searched]
        inside = [(root, p) for p in paths for root in folders.allowed if p.is_relative_to(root)]
        found = [(root, p) for root, p in inside if p.exists() and not p.is_dir()]
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, too long a name, links in a circle
        raise ModelError(f"{what} cannot be looked up: {error}") from error
    if Path(location).is_absolute() or not inside:
        raise ModelError(f"{what} lies outside the model's folder {folders}; it is refused")
    if not found:
        raise ModelError(f"{what} is missing: there is no file '{inside[0][1]}'; {hint}")
    root, path = found[0]
    parts = path.relative_to(root).parts
    with _opened(what, root, parts) as file:
        size = os.fstat(file.fileno()).st_size
    needed = math.ceil(math.prod(sizes) * bits(dtype) / 8)
    offset, length = _number(what, entries, "offset", 0), _number(what, entries, "length", needed)
    if offset + length > size:
        raise ModelError(f"{what}: bytes {offset} to {offset + length} go past its end at {size}")
    if length != needed:
        raise ModelError(f"{what}: {length} bytes cannot fill {dtype.name} {tuple(sizes)}, which takes {needed}")
    return ExternalData(f"tensor '{name}' of shape {tuple(sizes)}", root, parts, offset, length, size)


def bits(dtype: np.dtype) -> int:
    """How many bits of a file an element takes; the small types are packed."""
    if dtype.name.startswith("float6_"):
        return 6
    packed = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
    return packed.get(dtype.name, 8 * dtype.itemsize)


def _number(what: str, entries: Mapping[str, str], key: str, default: int) -> int:
    given = entries.get(key)
    if given is None:
        return default
    if not (given.removeprefix("-").isascii() and given.removeprefix("-").isdigit()):
        raise ModelError(f"{what}: {key} must be a number, got {given!r:.40}")
    if given.startswith("-") or len(given) > 19:
        raise ModelError(f"{what}: {key} must be non-negative, got {given:.40}")
    return int(given)


def _opened(what: str, root: Path, parts: tuple[str, ...]) -> BufferedReader:
    """A regular file below `root`, found without following a link; it may have further names (hard links)."""
    try:
        found = _descriptor(root, parts)
    except OSError as error:
        path = root.joinpath(*parts)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ModelError(f"{what}: '{path}' has become a link, which is not followed") from error
        raise ModelError(f"{what}: its file cannot be opened: {error}") from error
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise ModelError(f"{what}: '{root.joinpath(*parts)}' is no regular file")
    return os.fdopen(found, "rb")


def _descriptor(root: Path, parts: tuple[str, ...]) -> int:
    if os.open not in os.supports_dir_fd:
        return os.open(root.joinpath(*parts), _FLAGS)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], _FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
