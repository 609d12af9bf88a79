"""Changes one field of a message, whatever it is: dropped, doubled, swapped, from elsewhere, another number or name."""

import random
import string
import struct
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from mutated_bytes import flipped
from onnx import defs

NUMBERS = (0, 1, -1, 2, 3, 7, 16, 100, 2**31 - 1, 2**31, -(2**31), 10**12, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e-45, -1.0, 0.5, 1e9)
WORDS = (
    "",
    " ",
    "\0",
    "x",
    "y",
    "é\u2028",
    "a" * 3000,
    "../up",
    "ai.onnx",
    "com.microsoft",
    "NOTSET",
    "linear",
    "{}",
    "%s",
)
OPERATORS = tuple(sorted({(s.name, s.domain) for s in defs.get_all_schemas()}))
# The fields through which a walk goes more often than through the others.
WEIGHTS = {
    "graph": 30,
    "node": 6,
    "attribute": 4,
    "initializer": 3,
    "functions": 6,
    "metadata_props": 0.1,
    "doc_string": 0.1,
}


def place_in(
    rng: random.Random, message: Message, only: set[str] | None = None
) -> tuple[Message, FieldDescriptor] | None:
    """A field that is set, found by going down from a message; `only` names the messages whose fields count."""
    found = None
    while True:
        fields = message.ListFields()
        if not fields:
            return found
        weights = [WEIGHTS.get(field.name, 1) for field, _ in fields]
        field, value = rng.choices(fields, weights)[0]
        if only is None or message.DESCRIPTOR.name in only:
            found = (message, field)
        inner = value if not is_repeated(field) else (rng.choice(value) if len(value) else None)
        if not isinstance(inner, Message) or (found and rng.random() < 0.12):
            return found
        message = inner


def is_repeated(field: FieldDescriptor) -> bool:
    return field.is_repeated


def _number(rng: random.Random, old: int, values: Sequence[int] = NUMBERS) -> int:
    return rng.choice((old + 1, old - 1, -old, *values))


def _scalar(
    rng: random.Random, field: FieldDescriptor, old: Any, donor: Message, values: Sequence[int] = NUMBERS
) -> Any:
    """Another value of a field that is no message."""
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((*FLOATS, -old, old * 2))
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return _bytes(rng, old)
        return _word(rng, donor)
    if kind == field.CPPTYPE_ENUM and field.enum_type is not None:
        return rng.choice([v.number for v in field.enum_type.values])  # protobuf writes no others
    if kind == field.CPPTYPE_INT32:
        return rng.choice(
            (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 16, 17, 21, 22, 23, 24, 25, 26, 27, 99, -1, 2**31 - 1)
        )
    return max(-(2**63), min(2**63 - 1, _number(rng, old, values)))


def _bytes(rng: random.Random, old: bytes) -> bytes:
    how = rng.randrange(6)
    if how == 0:
        return old[: rng.randrange(len(old) + 1)]
    if how == 1:
        return old + bytes(rng.randrange(1, 20))
    if how == 2:
        return flipped(rng, old, ())[0]
    if how == 3:
        return b"".join(struct.pack("<q", rng.choice(NUMBERS)) for _ in range(len(old) // 8))
    if how == 4:
        return rng.choice((b"\xff\xfe", b"", b"LEFT", b"constant", b"\0", b"ij,jk->ik", b"(", b"a*" * 20))
    return bytes(len(old))


def _word(rng: random.Random, donor: Message) -> str:
    """A name that the donor uses somewhere, or a strange one."""
    if rng.random() < 0.3:
        return rng.choice(WORDS)
    if rng.random() < 0.2:
        return rng.choice(OPERATORS)[0]
    for _ in range(5):
        found = place_in(rng, donor)
        if (
            found
            and found[1].cpp_type == FieldDescriptor.CPPTYPE_STRING
            and found[1].type != FieldDescriptor.TYPE_BYTES
        ):
            value = getattr(found[0], found[1].name)
            return rng.choice(value) if is_repeated(found[1]) else value
    return rng.choice(string.ascii_letters)


def changed(rng: random.Random, model: Message, donor: Message, only: set[str] | None = None) -> str:
    """Changes one field, whatever it is."""
    place = place_in(rng, model, only)
    if place is None:
        return "nothing to change"
    message, field = place
    what = f"{message.DESCRIPTOR.name}.{field.name}"
    value = getattr(message, field.name)
    same = same_type(rng, donor if rng.random() < 0.5 else model, message.DESCRIPTOR.name, field.name)
    if not is_repeated(field):
        if rng.random() < 0.1:
            message.ClearField(field.name)
            return f"{what} dropped"
        if isinstance(value, Message):
            if same is not None:
                value.CopyFrom(same)
            return f"{what} from elsewhere"
        new = _scalar(rng, field, value, donor if rng.random() < 0.3 else model)
        setattr(message, field.name, new)
        return f"{what}: {value!r:.60} is {new!r:.60}"
    at, how = rng.randrange(len(value)), rng.randrange(6)
    if how == 0:
        del value[at]
        return f"{what}[{at}] dropped"
    if how == 1:
        for _ in range(rng.choice((1, 1, 1, 40))):
            value.append(value[at])
        return f"{what}[{at}] doubled"
    if how == 2:
        other = rng.randrange(len(value))
        copies = list(value) if not isinstance(value[at], Message) else [copied(v) for v in value]
        copies[at], copies[other] = copies[other], copies[at]
        del value[:]
        value.extend(copies)
        return f"{what}[{at}] and [{other}] swapped"
    if how == 3 and isinstance(same, list) and same:
        value.append(rng.choice(same))
        return f"{what} has one from elsewhere"
    if how == 4:
        del value[rng.randrange(len(value)) :]
        return f"{what} cut"
    if isinstance(value[at], Message):
        value[at].CopyFrom(rng.choice(same) if isinstance(same, list) and same else value[rng.randrange(len(value))])
        return f"{what}[{at}] from elsewhere"
    value[at], old = _scalar(rng, field, value[at], donor if rng.random() < 0.3 else model), value[at]
    return f"{what}[{at}]: {old!r:.60} is {value[at]!r:.60}"


def copied(message: Any) -> Any:
    found = type(message)()
    found.CopyFrom(message)
    return found


def same_type(rng: random.Random, model: Message, message: str, field: str) -> Any:
    """The same field of another message of that type; None where a few walks find none."""
    for _ in range(6):
        place = place_in(rng, model, {message})
        if place and place[1].name == field:
            value = getattr(place[0], field)
            return [copied(v) if isinstance(v, Message) else v for v in value] if is_repeated(place[1]) else value
    return None
