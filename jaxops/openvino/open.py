"""Opens an IR, given as a path, bytes or an openvino.Model: its XML as plain data, its weights to be read later."""

import functools
import io
import math
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jaxops.errors import ModelError, SignatureError
from jaxops.frontend.model_file import opened
from jaxops.frontend.safe_files import Folders, SafeFile, find_file, folders
from jaxops.frontend.tensor_file import FileRange, InMemory
from jaxops.graph.nodes import Tensor
from jaxops.openvino.element_types import ElementType
from jaxops.openvino.ir import Net, parse

Readable: TypeAlias = str | os.PathLike[str] | bytes | Any  # or an openvino.Model
# The largest number of elements of an array, and of an axis.
_MOST = 1 << 60
_folders = functools.partial(folders, noun="weights", option="weights")


@dataclass(frozen=True)
class Weights:
    """The bytes of all constants. name: of the file. problem: the reason, if there are none."""

    source: Path | bytes | None
    name: str = ""
    folders: Folders = field(default_factory=Folders)

    @functools.cached_property
    def file(self) -> SafeFile | InMemory:
        """The file of the weights. Raises ModelError if there is none, or if it may not be read."""
        if isinstance(self.source, bytes):
            return InMemory(self.source)
        subject = f"weights '{self.name}'"
        if self.source is None:
            raise ModelError("the model has constants, which need weights; give them: load(…, weights=path or bytes)")
        return find_file(subject, subject, self.name, self.folders)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.file.data) if isinstance(self.file, InMemory) else self.file.size

    def tensor(
        self, name: str, subject: str, element: ElementType, sizes: tuple[int, ...], offset: int, size: int
    ) -> Tensor:
        """Returns a constant of `size` bytes at `offset`, checked now and read when it is needed.

        Raises ModelError, which begins with `subject`, for bytes beyond the end of the file, or too few for the shape.
        """
        if any(not 0 <= d < _MOST for d in sizes) or math.prod(d or 1 for d in sizes) >= _MOST:
            raise ModelError(f"{subject}: shape {list(sizes)} has a negative size or is too large")
        count = math.prod(sizes)
        needed = element.file_bytes(count) if count or element.dtype == object else 0
        if offset < 0 or size < 0:
            raise ModelError(f"{subject}: offset {offset} and size {size} must not be negative")
        if size < needed:
            raise ModelError(f"{subject}: {size} bytes cannot fill shape {list(sizes)}, which takes {needed}")
        if needed and offset + size > self.size:
            end = offset + size
            raise ModelError(f"{subject}: bytes {offset} to {end} go past the end of its weights at {self.size}")
        if not count:
            return Tensor(element.dtype, sizes, functools.partial(np.empty, sizes, element.dtype))
        span = FileRange(self.file, range(offset, offset + (size if element.dtype == object else needed)))
        if element.unpack is None:
            return span.tensor(name, element.dtype, sizes)
        load = functools.partial(_unpacked, span, subject, element, sizes)
        if element.bits == 4:
            return PackedTensor(element.dtype, sizes, load, packed=functools.partial(_bytes, span, subject))
        return Tensor(element.dtype, sizes, load)


@dataclass(frozen=True)
class PackedTensor(Tensor):
    """A constant with elements of four bits. packed: reads the bytes; the low half holds the first element."""

    packed: Callable[[], np.ndarray] = field(kw_only=True, repr=False)


def _bytes(span: FileRange, subject: str) -> np.ndarray:
    data = np.frombuffer(span.read(), np.uint8)
    if data.size < len(span.span):
        raise ModelError(f"{subject}: its weights '{span.file}' have become shorter since the model was loaded")
    return data


def _unpacked(span: FileRange, subject: str, element: ElementType, sizes: tuple[int, ...]) -> np.ndarray:
    assert element.unpack is not None
    data = _bytes(span, subject)
    try:
        return element.unpack(data, math.prod(sizes)).reshape(sizes)
    except ModelError as error:
        raise ModelError(f"{subject}: {error}") from error


@dataclass(frozen=True)
class Opened:
    """An IR. where: its name in messages. source: the file, or its bytes."""

    net: Net
    weights: Weights
    where: str
    source: Path | bytes


def open_ir(model: Readable, weights: str | os.PathLike[str] | bytes | None = None) -> Opened:
    """Reads the XML of an IR.

    model: the path of the XML, its bytes, or an openvino.Model. weights: the path of the `.bin`, or its bytes; by
    default it lies next to the path of the XML, under the same name.
    Raises PathError, a FileNotFoundError; ModelError for a file that is damaged or not an IR; SignatureError for any
    other object.
    """
    if isinstance(model, bytes | bytearray | memoryview):
        data = bytes(model)
        return Opened(parse(io.BytesIO(data), "the bytes"), _weights(weights, None), "the bytes", data)
    if isinstance(model, str | os.PathLike):
        path = Path(os.fspath(model))
        with opened(model, path) as file:
            net = parse(file, str(path))
        return Opened(net, _weights(weights, path), str(path), path.absolute())
    if "openvino" in sys.modules and isinstance(model, sys.modules["openvino"].Model):
        return replace(_serialized(model), where="the openvino.Model")
    raise SignatureError(
        "load: a model is the path of an .xml, its bytes, or an openvino.Model, not "
        f"{type(model).__name__}: {model!r:.80}"
    )


def _weights(chosen: Any, model: Path | None) -> Weights:
    if isinstance(chosen, bytes | bytearray | memoryview):
        return Weights(bytes(chosen))
    if chosen is not None and not isinstance(chosen, str | os.PathLike):
        raise SignatureError(f"load: `weights` is {chosen!r:.80}; it must be the path of a .bin, or its bytes")
    if chosen is not None:
        path = Path(os.fspath(chosen))
        return Weights(path, path.name, _folders(path))
    # The name is that of the path as given. If the path is a link, its target may be named after its content.
    return Weights(None) if model is None else Weights(model, f"{model.stem}.bin", _folders(model))


def _serialized(model: Any) -> Opened:
    with tempfile.TemporaryDirectory() as folder:
        xml, weights = Path(folder, "model.xml"), Path(folder, "model.bin")
        sys.modules["openvino"].serialize(model, str(xml), str(weights))
        return open_ir(xml.read_bytes(), weights.read_bytes())
