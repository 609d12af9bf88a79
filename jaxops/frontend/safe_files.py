"""Opens files next to a model that hold the bytes of its tensors. The model is not trusted to name the right files.

A file is looked up when the model is loaded, and opened, without following links, each time it is read. It must be a
regular file below a folder of the model, and must still have the size that it had at load. The lookup may follow links:
download caches link a model and its data, separately, to a folder of files that are named by their content.
"""

import errno
import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxops.errors import ModelError, PathError, SignatureError
from jaxops.frontend.tensor_file import FileRange, bits

# These flags follow no link, and do not wait for a pipe. Windows has other flags, and no descriptors of folders: there,
# links are followed if the lookup allows them.
_FLAGS = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)


@dataclass(frozen=True)
class Folders:
    """The folders of a model, without links in their paths.

    searched: the folders where its files are looked for, in this order; empty if it can have no files. allowed: each
    file must be below one of these folders, after resolving links. noun, option: for messages, the name of such a file,
    and the option of `load` for another folder.
    """

    searched: tuple[Path, ...] = ()
    allowed: tuple[Path, ...] = ()
    noun: str = "data file"
    option: str = ""

    def __str__(self) -> str:
        return " and ".join(f"'{folder}'" for folder in self.allowed)


def folders(model: Path | None, chosen: Any = None, *, noun: str, option: str) -> Folders:
    """Returns the folders of a model's files: that of its path, and that of the file to which the path links.

    model: its path, if it has one. chosen: a folder that is searched in place of these. noun, option: see `Folders`.
    Raises PathError if `chosen` is not a folder, SignatureError if it is not a path.
    """
    beside = () if model is None else tuple(dict.fromkeys((model.parent.resolve(), model.resolve().parent)))
    if chosen is None:
        return Folders(beside, beside, noun, option)
    if not isinstance(chosen, str | os.PathLike):
        raise SignatureError(f"load: `{option}` is {chosen!r:.80}; it must be the path of a folder")
    try:
        folder = Path(chosen).resolve()
        exists = folder.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, too long a name, links in a circle
        raise PathError(f"load: `{option}` {os.fspath(chosen)!r} cannot be looked up: {error}") from error
    if not exists:
        raise PathError(f"load: `{option}` {os.fspath(chosen)!r} is not a folder")
    return Folders((folder,), tuple(dict.fromkeys((folder, *beside))), noun, option)


@dataclass(frozen=True)
class SafeFile:
    """A file below a folder of the model. what: its name in messages. root: the folder. parts: the path from there."""

    what: str
    root: Path
    parts: tuple[str, ...]
    size: int

    @property
    def path(self) -> Path:
        """The file."""
        return self.root.joinpath(*self.parts)

    def __str__(self) -> str:
        return str(self.path)

    def open(self, mode: Literal["rb"]) -> BufferedReader:
        """Checks the file again and opens it. Raises ModelError if it is missing or was replaced."""
        file = _opened(self.what, self.root, self.parts)
        size = os.fstat(file.fileno()).st_size
        if size != self.size:
            file.close()
            raise ModelError(
                f"{self.what}: its data is damaged: '{self}' has {size} bytes, but had {self.size} when the model was "
                "loaded"
            )
        return file


def find_data(
    tensor: str,
    dtype: np.dtype,
    sizes: Sequence[int],
    location: str,
    folders: Folders,
    offset: str | None = None,
    length: str | None = None,
) -> FileRange:
    """Returns the bytes of a tensor in a file next to the model.

    tensor: its name. location: the path of the file, relative to a folder of the model. offset, length: the texts in
    the model; by default, 0 and the size of the tensor.
    Raises ModelError if there is no such file, if it may not be read, or if it ends too early.
    """
    subject = f"tensor '{tensor}': {folders.noun} '{location}'"
    file = find_file(subject, f"tensor '{tensor}' of shape {tuple(sizes)}", location, folders)
    size = file.size
    needed = math.ceil(math.prod(sizes) * bits(dtype) / 8)
    start, count = _number(subject, "offset", offset, 0), _number(subject, "length", length, needed)
    if start + count > size:
        raise ModelError(f"{subject}: bytes {start} to {start + count} go past its end at {size}")
    if count != needed:
        raise ModelError(f"{subject}: {count} bytes cannot fill {dtype.name} {tuple(sizes)}, which takes {needed}")
    return FileRange(file, range(start, start + count))


def find_file(subject: str, what: str, location: str, folders: Folders) -> SafeFile:
    """Finds a file next to a model. location: its path, relative to a folder of the model. subject, what: for messages,
    now and when it is read.

    Raises ModelError if there is no such file, or if it may not be read.
    """
    hint = f"give the folder that has it: load(…, {folders.option}=folder)"
    if not folders.searched:
        raise ModelError(f"{subject} needs the model's folder; load the model from its path, or {hint}")
    try:
        paths = [(folder / location).resolve() for folder in folders.searched]
        inside = [(root, p) for p in paths for root in folders.allowed if p.is_relative_to(root)]
        existing = [(root, p) for root, p in inside if p.exists() and not p.is_dir()]
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, too long a name, links in a circle
        raise ModelError(f"{subject} cannot be looked up: {error}") from error
    if Path(location).is_absolute() or not inside:
        raise ModelError(f"{subject} lies outside the model's folder {folders}; it is refused")
    if not existing:
        raise ModelError(f"{subject} is missing: there is no file '{inside[0][1]}'; {hint}")
    root, path = existing[0]
    parts = path.relative_to(root).parts
    with _opened(subject, root, parts) as file:
        return SafeFile(what, root, parts, os.fstat(file.fileno()).st_size)


def _number(subject: str, key: str, text: str | None, default: int) -> int:
    """Returns the number in a text of the file. Raises ModelError for another text, and for a negative number."""
    if text is None:
        return default
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()):
        raise ModelError(f"{subject}: {key} must be a number, got {text!r:.40}")
    if text.startswith("-") or len(text) > 19:
        raise ModelError(f"{subject}: {key} must be non-negative, got {text:.40}")
    return int(text)


def _opened(subject: str, root: Path, parts: tuple[str, ...]) -> BufferedReader:
    """Opens a regular file below `root`, without following links; hard links are allowed."""
    try:
        descriptor = _descriptor(root, parts)
    except OSError as error:
        path = root.joinpath(*parts)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ModelError(f"{subject}: '{path}' has become a link, which is not followed") from error
        raise ModelError(f"{subject}: its file cannot be opened: {error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ModelError(f"{subject}: '{root.joinpath(*parts)}' is not a regular file")
    return os.fdopen(descriptor, "rb")


def _descriptor(root: Path, parts: tuple[str, ...]) -> int:
    if os.open not in os.supports_dir_fd:
        return os.open(root.joinpath(*parts), _FLAGS)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(parts[-1], _FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
