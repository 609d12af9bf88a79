"""The weights in a model's own file. They stay there until they are needed, and protobuf gets the rest.

protobuf takes a whole file at once, copies each tensor out of it, and gives copies of those: a model of 400 MB had
1.1 GB in memory. So a file is cut first. Only lengths are followed here, as protobuf's wire format has them
(https://protobuf.dev/programming-guides/encoding); what they do not fit is left to protobuf, whole, to take or refuse.
"""

import io
import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

# The numbers of onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data and .data_location.
_GRAPH, _INITIALIZER, _RAW_DATA, _DATA_LOCATION = 7, 5, 9, 14
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
# Tensors of fewer bytes stay in the model, as onnx itself leaves them where it writes others beside it.
_SMALL = 1024


class Cut(NamedTuple):
    """A model without the bytes of its large initializers. data: position among the initializers → where they are."""

    rest: bytes
    data: dict[int, range]


class _Unusual(Exception):
    """The file is damaged, or says in an unusual way what protobuf alone can put together."""


class _Field(NamedTuple):
    number: int
    kind: int
    start: int  # of its tag
    content: int
    end: int


def cut(file: BinaryIO) -> Cut:
    """Reads a model. file: one that can be sought in."""
    size = file.seek(0, os.SEEK_END)
    try:
        return _cut(file, size)
    except _Unusual:
        file.seek(0)
        return Cut(file.read(size), {})  # files of /proc, which have more than they say, may have no end


def _cut(file: BinaryIO, size: int) -> Cut:
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
    return Cut(remainder, data)


def _raw_data(file: BinaryIO, tensor: _Field) -> _Field | None:
    """The one field with all data of a large tensor."""
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
    """(the number at `start`, where it ends): seven bits a byte, the lowest first; the eighth says that it goes on."""
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
