"""Damaged models: bytes that are flipped, cut, spliced; messages whose fields are changed, doubled, swapped, dropped.

`mutant(seed, number, pool)` is one of them. The kinds are the rows of the table that `run.py` prints.
"""

import random
import string
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, TensorProto, defs

NUMBERS = (0, 1, -1, 2, 3, 7, 16, 100, 2**31 - 1, 2**31, -(2**31), 10**12, 2**40, 2**62, 2**63 - 1, -(2**63))
HUGE = (10**6, 10**9, 2**31 - 1, 2**31, 2**32, 10**12, 2**40, 2**48, 2**60, 2**62, 2**63 - 1, -(2**63), -1, 0)
FLOATS = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e-45, -1.0, 0.5, 1e9)
WORDS = ("", " ", "\0", "x", "y", "é\u2028", "a" * 3000, "../up", "ai.onnx", "com.microsoft", "NOTSET", "linear", "{}", "%s")
PLACES = ("w.bin", "nope.bin", "../w.bin", "/etc/hostname", "", ".", "a\0b", "/dev/zero", "link.bin", "w.bin/x", "\ud7ff")
OPERATORS = tuple(sorted({(s.name, s.domain) for s in defs.get_all_schemas()}))
# The fields through which a walk goes more often than through the others.
WEIGHTS = {"graph": 30, "node": 6, "attribute": 4, "initializer": 3, "functions": 6, "metadata_props": 0.1, "doc_string": 0.1}


class Mutant(NamedTuple):
    """kind: the row of the table. steps: what was done to which model."""

    kind: str
    data: bytes
    steps: tuple[str, ...]


def mutant(seed: int, number: int, pool: Sequence[bytes], kind: str | None = None) -> Mutant:
    """The mutant of this number, from the models of `pool`."""
    rng = random.Random(f"{seed} {number}")
    kind = kind or KINDS[number % len(KINDS)]
    at = rng.randrange(len(pool))
    steps = [f"model {at} of the pool"]
    if kind == "bytes":
        data = pool[at]
        for _ in range(rng.choice((1, 1, 2, 5))):
            data, step = rng.choice(BYTES)(rng, data, pool)
            steps.append(step)
        return Mutant(kind, data, tuple(steps))
    model = onnx.ModelProto.FromString(pool[at])
    donor = onnx.ModelProto.FromString(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        steps.append(rng.choice(STEPS[kind])(rng, model, donor))
    try:
        return Mutant(kind, model.SerializeToString(), tuple(steps))
    except (ValueError, DecodeError) as error:  # a message that protobuf does not write
        return Mutant(kind, pool[at], (*steps, f"not written: {error}"))


# Bytes.


def _flipped(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found), "bits flipped"


def _byte_set(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    """A length, a tag or a number becomes another."""
    at = rng.randrange(len(data) + 1)
    new = rng.choice((b"\0", b"\x7f", b"\xff", b"\x80", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x01"))
    return data[:at] + new + data[at + rng.choice((1, len(new))) :], f"{new!r} at {at}"


def _cut(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    at = rng.randrange(len(data) + 1)
    return data[:at], f"cut at {at}"


def _dropped(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    at, count = rng.randrange(len(data) + 1), rng.choice((1, 2, 8, 50))
    return data[:at] + data[at + count :], f"{count} bytes dropped at {at}"


def _doubled(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    at, count = rng.randrange(len(data) + 1), rng.choice((1, 4, 30, 300))
    return data[: at + count] + data[at:], f"{count} bytes doubled at {at}"


def _spliced(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    other = rng.choice(pool)
    at, start = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
    return data[:at] + other[start:], f"spliced at {at} with another from {start}"


BYTES = (_flipped, _flipped, _byte_set, _byte_set, _cut, _dropped, _doubled, _spliced)


# Messages.


def _place(rng: random.Random, message: Message, only: set[str] | None = None) -> tuple[Message, FieldDescriptor] | None:
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
        inner = value if not _repeated(field) else (rng.choice(value) if len(value) else None)
        if not isinstance(inner, Message) or (found and rng.random() < 0.12):
            return found
        message = inner


def _repeated(field: FieldDescriptor) -> bool:
    return field.is_repeated


def _number(rng: random.Random, old: int, values: Sequence[int] = NUMBERS) -> int:
    return rng.choice((old + 1, old - 1, -old, *values))


def _scalar(rng: random.Random, field: FieldDescriptor, old: Any, donor: Message, values: Sequence[int] = NUMBERS) -> Any:
    """Another value of a field that is no message."""
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((*FLOATS, -old, old * 2))
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return _bytes(rng, old)
        return _word(rng, donor)
    if kind == field.CPPTYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])  # protobuf writes no others
    if kind == field.CPPTYPE_INT32:
        return rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 16, 17, 21, 22, 23, 24, 25, 26, 27, 99, -1, 2**31 - 1))
    return max(-(2**63), min(2**63 - 1, _number(rng, old, values)))


def _bytes(rng: random.Random, old: bytes) -> bytes:
    how = rng.randrange(6)
    if how == 0:
        return old[: rng.randrange(len(old) + 1)]
    if how == 1:
        return old + bytes(rng.randrange(1, 20))
    if how == 2:
        return _flipped(rng, old, ())[0]
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
        found = _place(rng, donor)
        if found and found[1].cpp_type == FieldDescriptor.CPPTYPE_STRING and found[1].type != FieldDescriptor.TYPE_BYTES:
            value = getattr(found[0], found[1].name)
            return rng.choice(value) if _repeated(found[1]) else value
    return rng.choice(string.ascii_letters)


def _changed(rng: random.Random, model: Message, donor: Message, only: set[str] | None = None) -> str:
    """Changes one field, whatever it is."""
    place = _place(rng, model, only)
    if place is None:
        return "nothing to change"
    message, field = place
    what = f"{message.DESCRIPTOR.name}.{field.name}"
    value = getattr(message, field.name)
    same = _same_type(rng, donor if rng.random() < 0.5 else model, message.DESCRIPTOR.name, field.name)
    if not _repeated(field):
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
        copies = list(value) if not isinstance(value[at], Message) else [_copy(v) for v in value]
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


def _copy(message: Any) -> Any:
    found = type(message)()
    found.CopyFrom(message)
    return found


def _same_type(rng: random.Random, model: Message, message: str, field: str) -> Any:
    """The same field of another message of that type; None where a few walks find none."""
    for _ in range(6):
        place = _place(rng, model, {message})
        if place and place[1].name == field:
            value = getattr(place[0], field)
            return [_copy(v) if isinstance(v, Message) else v for v in value] if _repeated(place[1]) else value
    return None


def _nodes(model: Any) -> list[Any]:
    """All nodes, of subgraphs and functions too."""
    found, left = [], [model.graph, *model.functions]
    while left:
        for node in left.pop().node:
            found.append(node)
            left += [a.g for a in node.attribute if a.HasField("g")] + [g for a in node.attribute for g in a.graphs]
    return found


def _in_a_node(rng: random.Random, model: Any, donor: Any) -> str:
    nodes = _nodes(model)
    return _changed(rng, rng.choice(nodes), donor) if nodes else "no node"


def _operator(rng: random.Random, model: Any, donor: Any) -> str:
    nodes = _nodes(model)
    if not nodes:
        return "no node"
    node = rng.choice(nodes)
    old = node.op_type
    node.op_type, node.domain = rng.choice(OPERATORS)
    return f"{old} is {node.op_type}"


def _attribute(rng: random.Random, model: Any, donor: Any) -> str:
    """An attribute of the donor, one that the operator has, or one doubled."""
    nodes = _nodes(model)
    if not nodes:
        return "no node"
    node = rng.choice(nodes)
    given = [a for n in _nodes(donor) for a in n.attribute]
    names = sorted(defs.get_schema(node.op_type, node.domain).attributes) if defs.has(node.op_type, node.domain) else []
    if names and rng.random() < 0.6:
        new = AttributeProto(name=rng.choice(names), type=rng.choice((1, 2, 3, 6, 7, 8)))
        new.f, new.i, new.s = rng.choice(FLOATS), rng.choice(NUMBERS), rng.choice(WORDS).encode()
        new.floats.extend(rng.choices(FLOATS, k=rng.randrange(5)))
        new.ints.extend(rng.choices(NUMBERS, k=rng.randrange(5)))
        new.strings.extend(w.encode() for w in rng.choices(WORDS, k=rng.randrange(3)))
    elif given:
        new = _copy(rng.choice(given))
    else:
        return "no attribute"
    if rng.random() < 0.9:  # in place of one of that name
        kept = [_copy(a) for a in node.attribute if a.name != new.name]
        del node.attribute[:]
        node.attribute.extend(kept)
    node.attribute.append(new)
    return f"{node.op_type} has `{new.name}` of type {new.type}: {new!s:.80}"


def _tensors(model: Any) -> list[Any]:
    return [*model.graph.initializer, *(a.t for n in _nodes(model) for a in n.attribute if a.HasField("t"))]


def _in_a_tensor(rng: random.Random, model: Any, donor: Any) -> str:
    tensors = _tensors(model)
    return _changed(rng, rng.choice(tensors), donor) if tensors else _in_a_node(rng, model, donor)


# Sizes.


def _huge_number(rng: random.Random, model: Any, donor: Any) -> str:
    """A declared size, a size of a tensor, an integer attribute or an element of an integer tensor.

    Trip counts stay: a Loop that asks for 2^40 iterations gets them.
    """
    trips = {n.input[0] for n in _nodes(model) if n.op_type == "Loop" and n.input}
    places: list[Callable[[int], str]] = []

    def element(owner: Any, at: int, what: str) -> Callable[[int], str]:
        def put(value: int) -> str:
            owner[at] = value
            return f"{what}[{at}] is {value}"

        return put

    for attribute in (a for n in _nodes(model) for a in n.attribute):
        if attribute.type == AttributeProto.INT:
            places.append(lambda v, a=attribute: (setattr(a, "i", v), f"`{a.name}` is {v}")[1])
        places += [element(attribute.ints, k, attribute.name) for k in range(len(attribute.ints))]
    constants = [a.t for n in _nodes(model) for a in n.attribute if a.HasField("t") and trips.isdisjoint(n.output)]
    for tensor in (*constants, *(t for t in model.graph.initializer if t.name not in trips)):
        places += [element(tensor.dims, k, f"dims of {tensor.name}") for k in range(len(tensor.dims))]
        if tensor.data_type == TensorProto.INT64 and tensor.raw_data:
            places += [_raw_element(tensor, k) for k in range(min(len(tensor.raw_data) // 8, 16))]
        places += [element(tensor.int64_data, k, tensor.name) for k in range(len(tensor.int64_data))]
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            places.append(lambda v, d=dim: (setattr(d, "dim_value", v), f"a declared size is {v}")[1])
    return rng.choice(places)(rng.choice(HUGE)) if places else "no number"


def _raw_element(tensor: TensorProto, at: int) -> Callable[[int], str]:
    def put(value: int) -> str:
        raw = bytearray(tensor.raw_data)
        raw[8 * at : 8 * at + 8] = struct.pack("<q", value)
        tensor.raw_data = bytes(raw)
        return f"{tensor.name}[{at}] is {value}"

    return put


def _constant_sizes(rng: random.Random, model: Any, donor: Any) -> str:
    """An input of integers becomes an initializer, whose numbers may then be changed."""
    trips = {n.input[0] for n in _nodes(model) if n.op_type == "Loop" and n.input}
    inputs = [v for v in model.graph.input if v.type.tensor_type.elem_type == TensorProto.INT64 and v.name not in trips]
    if not inputs:
        return "no integers"
    value = rng.choice(inputs)
    sizes = [min(d.dim_value, 8) for d in value.type.tensor_type.shape.dim]
    count = 1
    for size in sizes:
        count *= max(size, 0)
    numbers = [rng.choice((1, 2, 3, rng.choice(HUGE))) for _ in range(count)]
    tensor = TensorProto(name=value.name, data_type=TensorProto.INT64, dims=sizes)
    tensor.raw_data = struct.pack(f"<{count}q", *numbers)
    model.graph.initializer.append(tensor)
    model.graph.input.remove(value)
    return f"{value.name} is {numbers}"


# Structure.


def _around(rng: random.Random, model: Any, donor: Any) -> str:
    """A graph, a function, what is imported: fields that are no node's."""
    return _changed(rng, model, donor, {"ModelProto", "GraphProto", "FunctionProto", "OperatorSetIdProto", "ValueInfoProto",
                                        "TypeProto", "SparseTensorProto"})  # fmt: skip


def _subgraph(rng: random.Random, model: Any, donor: Any) -> str:
    graphs = [a.g for n in _nodes(model) for a in n.attribute if a.HasField("g")] or [model.graph]
    return _changed(rng, rng.choice(graphs), donor, {"GraphProto", "ValueInfoProto", "NodeProto"})


def _renamed(rng: random.Random, model: Any, donor: Any) -> str:
    """A name among the inputs and outputs of nodes becomes another: cycles, doubles, what nobody makes."""
    nodes = [n for n in _nodes(model) if n.input or n.output]
    if not nodes:
        return "no node"
    node, other = rng.choice(nodes), rng.choice(nodes)
    names = [*other.input, *other.output, rng.choice(WORDS)]
    owner = node.input if node.input and (not node.output or rng.random() < 0.7) else node.output
    at = rng.randrange(len(owner))
    owner[at], old = rng.choice(names), owner[at]
    return f"'{old}' is '{owner[at]:.60}'"


def _function(rng: random.Random, model: Any, donor: Any) -> str:
    """Some nodes become functions, which may call themselves, or a function of the donor comes in."""
    nodes = _nodes(model)
    if donor.functions and rng.random() < 0.3:
        model.functions.append(rng.choice(donor.functions))
        return "a function of another model"
    if not nodes:
        return "no node"
    node = rng.choice(nodes)
    body = model.functions.add(name=node.op_type, domain=rng.choice((node.domain, "loc", "")))
    body.input.extend(dict.fromkeys(node.input) if rng.random() < 0.8 else node.input)
    body.output.extend(node.output)
    body.node.append(node)
    body.attribute.extend(a.name for a in node.attribute if rng.random() < 0.3)
    body.opset_import.extend(model.opset_import)
    if rng.random() < 0.5:
        node.domain = body.domain
        model.opset_import.add(domain="loc", version=1)
    return f"{node.op_type} is a function of domain '{body.domain}'"


def _external(rng: random.Random, model: Any, donor: Any) -> str:
    tensors = _tensors(model)
    if not tensors:
        return "no tensor"
    tensor = rng.choice(tensors)
    tensor.data_location = TensorProto.EXTERNAL
    if rng.random() < 0.8:
        for field in ("raw_data", "float_data", "int64_data", "int32_data"):
            tensor.ClearField(field)
    entries = [("location", rng.choice(PLACES))]
    for key in ("offset", "length", "checksum", "location", "nonsense"):
        if rng.random() < 0.35:
            entries.append((key, rng.choice(("0", "4", "-1", "", "x", "1e3", " 8", str(2**63), str(2**70), "4096", "w.bin", "１"))))
    rng.shuffle(entries)
    for key, value in entries:
        tensor.external_data.add(key=key, value=value)
    return f"{tensor.name} is external: {entries}"


def _grafted(rng: random.Random, model: Any, donor: Any) -> str:
    """A node of the donor, as it is, or with operands of this model."""
    own, theirs = _nodes(model), _nodes(donor)
    if not own or not theirs:
        return "no node"
    node = _copy(rng.choice(theirs))
    names = [name for n in own for name in n.input]
    for k in range(len(node.input)):
        if names and rng.random() < 0.7:
            node.input[k] = rng.choice(names)
    model.graph.node.append(node)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    domains = {o.domain for o in model.opset_import}
    model.opset_import.extend(o for o in donor.opset_import if o.domain not in domains)
    return f"{node.op_type} grafted"


STEPS = {
    "nodes": (_in_a_node, _in_a_node, _operator, _attribute, _attribute, _in_a_tensor, _renamed, _grafted),
    "sizes": (_huge_number, _huge_number, _huge_number, _constant_sizes),
    "structure": (_around, _around, _subgraph, _renamed, _function, _external, _grafted),
}
KINDS = ("bytes", "nodes", "sizes", "structure")
