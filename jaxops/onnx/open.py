"""Opens a model, given as a path, bytes, an open file or a ModelProto, as protobuf."""

import functools
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import onnx
from google.protobuf.message import DecodeError

from jaxops.errors import ArgumentError, ModelError, PathError, SignatureError
from jaxops.frontend.model_file import is_device, opened
from jaxops.frontend.safe_files import Folders, folders
from jaxops.frontend.tensor_file import File, FileRange, InMemory, hold
from jaxops.onnx.split_protobuf import split

# Also an object with a `model_proto`, such as torch.onnx.export returns.
Readable: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto | BinaryIO | Any


_OF_TORCH = "\n  hint    export the PyTorch module: load(torch.onnx.export(module, (x,), dynamo=True))"
_OF_ORT = "\n  hint    it is a file of onnxruntime's own format (.ort); load the .onnx file from which it was made"
# Hints for files of other formats, by the end of their names.
_HINTS = {".xml": "\n  hint    jaxops.openvino.load reads OpenVINO IRs", ".pt": _OF_TORCH, ".pth": _OF_TORCH}

_folders = functools.partial(folders, noun="external data", option="external_data")


@dataclass(frozen=True, eq=False)
class Parsed:
    """A model as a protobuf object, without the bytes of its large initializers.

    data: position of an initializer → where its bytes are. folders: where external data lies. where: the name of the
    model in messages. source: the whole model, as a path, bytes or a ModelProto.
    """

    proto: onnx.ModelProto
    data: Mapping[int, FileRange]
    folders: Folders
    where: str
    source: Path | bytes | onnx.ModelProto


def parsed(model: Readable, external_data: str | os.PathLike[str] | None = None) -> Parsed:
    """Parses a model by protobuf. external_data: as in `jaxops.onnx.load`.

    Raises PathError; ModelError for a file that is damaged or not an ONNX model; ArgumentError for another object.
    """
    model = getattr(model, "model_proto", model)  # a torch.onnx.ONNXProgram
    if isinstance(model, onnx.ModelProto):
        copied = onnx.ModelProto()  # weights are read later, and the caller may change the original before that
        copied.CopyFrom(model)
        return Parsed(copied, {}, _folders(None, external_data), "the ModelProto", copied)
    if isinstance(model, bytes | bytearray | memoryview):
        data = bytes(model)
        return _of_bytes(data, _folders(None, external_data), "the bytes")
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        with opened(model, path) as file:
            if not file.seekable():  # a pipe
                return _of_bytes(file.read(), _folders(path, external_data), str(path))
            return _parsed(file, hold(file, str(path)), _folders(path, external_data), str(path), path.absolute())
    try:
        if is_device(model):
            raise OSError("it is a device")
        data = model.read() if hasattr(model, "read") else None
    except (OSError, ValueError) as error:
        raise ArgumentError(f"load: the file cannot be read: {error}") from error
    if not isinstance(data, bytes):
        other = "a file opened as text" if isinstance(data, str) else f"{type(model).__name__}: {model!r:.80}"
        raise SignatureError(
            f"load: a model is a path, a file opened as binary, its bytes, a ModelProto or an ONNXProgram, not {other}"
        )
    name = getattr(model, "name", None)  # of a file on disk; external data lies in its folder
    path = Path(name) if isinstance(name, str) and Path(name).is_file() else None
    return _of_bytes(data, _folders(path, external_data), str(path or "the file"))


def whole(source: Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """Returns a whole model, weights included, as a copy that the caller may change. Raises what `parsed` raises."""
    if isinstance(source, onnx.ModelProto):
        return parsed(source).proto
    if isinstance(source, bytes):
        return _proto(source, "the bytes")
    with opened(source, source) as file:
        return _proto(file.read(), str(source))


def carried(name: str) -> Path:
    """Returns the path of a model in the onnx package, such as 'light_resnet50'. These models have random weights.

    Raises PathError, which lists the names, for any other name.

    >>> carried("light_squeezenet").name
    'light_squeezenet.onnx'
    """
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    path = folder / f"{name}.onnx"
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in folder.glob("*.onnx")))
        raise PathError(f"the onnx package carries no model {name!r}; it has {names}")
    return path


def _of_bytes(data: bytes, data_folders: Folders, where: str) -> Parsed:
    return _parsed(io.BytesIO(data), InMemory(data), data_folders, where, data)


def _parsed(file: BinaryIO, later: File, data_folders: Folders, where: str, source: Path | bytes) -> Parsed:
    """later: the same file, from which large initializers are read later."""
    try:
        halves = split(file)
    except OSError as error:  # a file of /proc, or a failing disk
        raise PathError(f"load: '{where}' cannot be read: {error}") from error
    data = {position: FileRange(later, span) for position, span in halves.data.items()}
    return Parsed(_proto(halves.rest, where), data, data_folders, where, source)


def _proto(data: bytes, where: str) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except DecodeError as error:
        # The identifier of onnxruntime's own format, a FlatBuffer.
        hint = _OF_ORT if data[4:8] == b"ORTM" else _HINTS.get(Path(where).suffix.lower(), "")
        raise ModelError(f"{where}: not an ONNX model, or a truncated one: {error}{hint}") from error
