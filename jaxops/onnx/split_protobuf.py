"""Leaves the weights of a model in its file until they are needed, and gives protobuf the rest.

protobuf takes a whole file at once and copies each tensor twice: a model of 400 MB had 1.1 GB in memory. So the large
tensors are cut out of the file first. This module only follows the lengths in protobuf's wire format
(https://protobuf.dev/programming-guides/encoding). If they do not fit, protobuf gets the whole file, and takes or
refuses it.
"""

import io
import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

# The numbers of onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data and .data_location.
_GRAPH, _INITIALIZER, _RAW_DATA, _DATA_LOCATION = 7, 5, 9, 14
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
# Tensors of fewer bytes stay in the model, as in files that onnx writes with external data.
_SMALL = 1024


class SplitModel(NamedTuple):
    """A model without the bytes of its large initializers. data: position of an initializer → where its bytes are."""

    rest: bytes
    data: dict[int, range]


class _Unusual(Exception):
    """The file is damaged, or has an unusual layout that only protobuf can read."""


class _Field(NamedTuple):
    number: int
    kind: int
    start: int  # of its tag
    content: int
    end: int


def split(file: BinaryIO) -> SplitModel:
    """Reads a model. file: must be seekable."""
    size = file.seek(0, os.SEEK_END)
    try:
        return _split(file, size)
    except _Unusual:
        file.seek(0)
        return SplitModel(file.read(size), {})  # files of /proc hold more than their stated size, and may have no end


def _split(file: BinaryIO, size: int) -> SplitModel:
    graphs = [field for field in _fields(file, 0, size) if field.number == _GRAPH]
    if len(graphs) != 1 or graphs[0].kind != _LENGTH:
        raise _Unusual
    (graph,) = graphs
    graph_bytes, data, count, last = io.BytesIO(), {}, 0, graph.content
    for field in _fields(file, graph.content, graph.end):
        if field.number != _INITIALIZER:
            continue
        raw = _raw_data(file, field)
        if raw is not None:
            graph_bytes.write(_read(file, last, field.start))
            header = _read(file, field.content, raw.start) + _read(file, raw.end, field.end)
            graph_bytes.write(_message(_INITIALIZER, header))
            data[count] = range(raw.content, raw.end)
            last = field.end
        count += 1
    graph_bytes.write(_read(file, last, graph.end))
    remainder = _read(file, 0, graph.start) + _message(_GRAPH, graph_bytes.getvalue()) + _read(file, graph.end, size)
    return SplitModel(remainder, data)


def _raw_data(file: BinaryIO, tensor: _Field) -> _Field | None:
    """Returns the field that holds all data of a large tensor; None if there is no such field."""
    if tensor.kind != _LENGTH:
        raise _Unusual
    if tensor.end - tensor.content < _SMALL:
        return None
    fields = list(_fields(file, tensor.content, tensor.end))
    raw_fields = [field for field in fields if field.number == _RAW_DATA]
    if len(raw_fields) != 1 or any(field.number == _DATA_LOCATION for field in fields):
        return None
    (raw,) = raw_fields
    return raw if raw.kind == _LENGTH and raw.end - raw.content >= _SMALL else None


def _fields(file: BinaryIO, start: int, end: int) -> Iterator[_Field]:
    """The fields of a message."""
    while start < end:
        file.seek(start)
        head = file.read(min(20, end - start))  # a tag and a length, of ten bytes each at most
        tag, used = _varint(head, 0)
        kind = tag & 7
        content = start + used
        if kind == _LENGTH:
            length, used = _varint(head, used)
            content = start + used
            stop = content + length
        elif kind == _VARINT:
            stop = start + _varint(head, used)[1]
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            stop = content + (8 if kind == _EIGHT_BYTES else 4)
        else:
            raise _Unusual
        if stop > end:
            raise _Unusual
        yield _Field(tag >> 3, kind, start, content, stop)
        start = stop


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """Returns (the number at `start`, where it ends). Each byte has seven bits, lowest first, and a bit for "more"."""
    number = 0
    for position, byte in enumerate(data[start : start + 10]):
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return number, start + position + 1
    raise _Unusual


def _message(number: int, content: bytes) -> bytes:
    head = bytearray()
    for value in (number << 3 | _LENGTH, len(content)):
        while value >= 0x80:
            head.append(value & 0x7F | 0x80)
            value >>= 7
        head.append(value)
    return bytes(head) + content


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)
