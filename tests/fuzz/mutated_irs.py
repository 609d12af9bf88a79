"""Damaged IRs: texts and weights whose bytes change; layers of other types and attributes; numbers; edges and ports;
and files of one operation with operands and attributes that may fit.

`mutant(seed, number, pool)` is one of them: (the text, the weights).
"""

import copy
import random
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
from mutants import Mutant
from mutated_bytes import BYTES, flipped
from openvino_files import OWN_OPERATORS, of_own_operator, single
from openvino_models import branches, cache, counter, iterator, loop, perceptron

from jaxops.openvino import schemas

KINDS = ("text", "weights", "layers", "numbers", "edges", "operations", "structure")
_NUMBERS = ("0", "1", "-1", "2", "3", "7", "100", "2147483647", "4294967296", "1099511627776", "9223372036854775807")
_NUMBERS += ("-9223372036854775808", "18446744073709551612", "99999999999999999999999", "?", "-1..3", "5..2", "...")
_WORDS = (
    "",
    " ",
    "x",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "0.5",
    "-0.0",
    "true",
    "false",
    "1,2",
    "1,,2",
    "é\u2028",
    "a" * 999,
)
_WORDS += ("f32", "f16", "i64", "i4", "u1", "u3", "nf4", "string", "dynamic", "boolean", "f8e4m3", "opset1", "opset99")
# Texts of other forms that Python's readers of numbers take, and names in which paths are looked for.
_WORDS += ("１", "²", "1_0", " 1 ", "+1", "-0", "0x1", "1e3", "1.0", "9" * 5000, ".." * 999, "__module." + "a." * 999)
_WORDS += ("\\", "a\\,b", "a/b/c", "\t", "*", "class", "[1,2]", "1..", "..1", "1.. 2", "{1}", ",", "-")
_CLASSES = schemas.classes()


def pool(seed: int, count: int) -> list[tuple[bytes, bytes]]:
    """IRs to be damaged: of each operator that only OpenVINO has, with bodies, with variables; and of random types."""
    files = [branches(), cache(), counter(), iterator(0, -1, 1, 1), loop(3), loop(9, 20.0), perceptron()] * 4
    files += [of_own_operator(name)[1] for name in OWN_OPERATORS]
    made = [(file.xml, file.bin) for file in files]
    rng = random.Random(f"pool {seed}")
    return made + [_of_class(rng, rng.choice(_CLASSES)) for _ in range(count)]


def _of_class(rng: random.Random, name: str) -> tuple[bytes, bytes]:
    """A file of one operation, with operands and attributes that may fit."""
    op_type, _, since = name.rpartition("-")
    schema = schemas.find_schema(op_type, int(since))
    operands = [
        _operand(rng, formal.types) for formal in schema.inputs if formal.option != "optional" or rng.random() < 0.5
    ]
    attributes = _attributes(rng, schema)
    file, _ = single(op_type, int(since), operands, attributes, max(len(schema.outputs), 1), free=rng.random() < 0.3)
    return file.xml, file.bin


def _operand(rng: random.Random, types: Any) -> Any:
    sizes = rng.choice([(), (1,), (2,), (3,), (2, 3), (1, 2, 4, 5), (2, 2, 3), (1, 1, 4, 4, 4), (0, 2)])
    names = [name for name in ("f32", "i64", "i32", "boolean", "u8", "f16") if name in types] or ["f32"]
    dtype = {"boolean": "?", "f32": "f4", "i64": "i8", "i32": "i4", "u8": "u1", "f16": "f2"}[rng.choice(names[:3])]
    values = np.random.RandomState(rng.randrange(2**31)).randint(-1 if dtype in ("f4", "i8", "i4") else 0, 4, sizes)
    return (values.astype(dtype),) if rng.random() < 0.5 else values.astype(dtype)


def _attributes(rng: random.Random, schema: Any) -> dict[str, str]:
    """Attributes of an operation: most of the right kind, some left out."""
    return {
        name: _value(rng, attribute)
        for name, attribute in schema.attributes.items()
        if attribute.required or rng.random() < 0.5
    }


def _value(rng: random.Random, attribute: Any) -> str:
    if rng.random() < 0.1:
        return rng.choice((*_NUMBERS, *_WORDS))
    if attribute.words:
        return rng.choice(attribute.words)
    small = lambda: str(rng.choice((0, 1, 1, 2, 2, 3, -1)))  # noqa: E731
    count = rng.randrange(5)
    return {
        "int": small,
        "ints": lambda: ",".join(small() for _ in range(count)),
        "float": lambda: rng.choice(("0.5", "1", "0", "-1")),
        "floats": lambda: ",".join(rng.choice(("0.5", "1", "2")) for _ in range(count)),
        "bool": lambda: rng.choice(("true", "false")),
        "type": lambda: rng.choice(("f32", "i64", "i32", "boolean")),
    }.get(attribute.kind, lambda: rng.choice(_WORDS))()


def mutant(seed: int, number: int, pool: Sequence[tuple[bytes, bytes]], kind: str | None = None) -> Mutant:
    """The mutant of this number, from the IRs of `pool`."""
    rng = random.Random(f"{seed} {number}")
    kind = kind or KINDS[number % len(KINDS)]
    if kind == "operations":
        name = _CLASSES[number // len(KINDS) % len(_CLASSES)]
        return Mutant(kind, _of_class(rng, name), (name,))
    place = rng.randrange(len(pool))
    (text, weights), steps = pool[place], [f"IR {place} of the pool"]
    if kind in ("text", "weights"):
        texts = [pair[kind == "weights"] for pair in pool]
        for _ in range(rng.choice((1, 1, 2, 5))):
            changed, step = rng.choice(BYTES)(rng, weights if kind == "weights" else text, texts)
            text, weights = (text, changed) if kind == "weights" else (changed, weights)
            steps.append(step)
        return Mutant(kind, (text, weights), tuple(steps))
    root, donor = ElementTree.fromstring(text), ElementTree.fromstring(rng.choice(pool)[0])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        steps.append(rng.choice(_STEPS[kind])(rng, root, donor))
    if rng.random() < 0.1:
        weights, step = flipped(rng, weights, ())
        steps.append(step)
    return Mutant(kind, (ElementTree.tostring(root), weights), tuple(steps))


def _parents(root: Element) -> list[tuple[Element, Element]]:
    return [(parent, child) for parent in root.iter() for child in parent]


def _set(element: Element, name: str, value: str) -> str:
    old = element.get(name)
    element.set(name, value)
    return f"<{element.tag} {name}>: {old!r:.60} is {value!r:.60}"


def _another_type(rng: random.Random, root: Element, donor: Element) -> str:
    """A layer of another type, with attributes of that."""
    layers = list(root.iter("layer"))
    if not layers:
        return "no layer"
    layer = rng.choice(layers)
    op_type, _, since = rng.choice(_CLASSES).rpartition("-")
    step = f"layer {layer.get('id')} ({layer.get('type')}) is {op_type}-{since}"
    layer.set("type", op_type)
    layer.set("version", f"opset{since}")
    data = layer.find("data")
    if data is not None and rng.random() < 0.8:
        data.attrib.update(_attributes(rng, schemas.find_schema(op_type, int(since))))
    return step


def _attribute(rng: random.Random, root: Element, donor: Element) -> str:
    """Any attribute: dropped, another word, or that of an element of the donor."""
    owners = [element for element in root.iter() if element.attrib]
    if not owners:
        return "no attribute"
    element = rng.choice(owners)
    name = rng.choice(list(element.attrib))
    if rng.random() < 0.2:
        del element.attrib[name]
        return f"<{element.tag} {name}> dropped"
    values = [other.get(name, "") for other in donor.iter() if name in other.attrib]
    return _set(
        element, name, rng.choice(values) if values and rng.random() < 0.4 else rng.choice((*_NUMBERS, *_WORDS))
    )


def _element(rng: random.Random, root: Element, donor: Element) -> str:
    """Any element: dropped, doubled, moved, or one of the donor in its place."""
    pairs = _parents(root)
    if not pairs:
        return "nothing to change"
    (parent, child), how = rng.choice(pairs), rng.randrange(4)
    if how == 0:
        parent.remove(child)
        return f"<{child.tag}> dropped"
    if how == 1:
        for _ in range(rng.choice((1, 1, 40))):
            parent.append(copy.deepcopy(child))
        return f"<{child.tag}> doubled"
    others = list(donor.iter(child.tag if how == 2 else None))
    place = list(parent).index(child)
    parent.remove(child)
    parent.insert(place if how == 2 else 0, copy.deepcopy(rng.choice(others)) if others else child)
    return f"<{child.tag}> has one of the donor in its place"


def _number(rng: random.Random, root: Element, donor: Element) -> str:
    """A size, an offset, a shape, a number of an attribute."""
    places: list[tuple[Element, str]] = [(dim, "") for dim in root.iter("dim")]
    for element in root.iter():
        places += [(element, name) for name, value in element.attrib.items() if any(c.isdigit() for c in value)]
    if not places:
        return "no number"
    element, name = rng.choice(places)
    value = rng.choice(_NUMBERS)
    if not name:
        element.text = value
        return f"<dim> is {value}"
    parts = element.get(name, "").split(",")
    parts[rng.randrange(len(parts))] = value
    return _set(element, name, ",".join(parts))


def _edge(rng: random.Random, root: Element, donor: Element) -> str:
    """The end of an edge, a back edge or a port map, a port id or a layer id: another one of the file."""
    names = ("from-layer", "from-port", "to-layer", "to-port", "external_port_id", "internal_layer_id", "id")
    places = [(element, name) for element in root.iter() for name in names if name in element.attrib]
    if not places:
        return "no edge"
    element, name = rng.choice(places)
    return _set(element, name, rng.choice([other.get(n, "") for other, n in places]))


_CONTAINERS = ("layers", "edges", "data", "input", "output", "rt_info", "body", "port_map", "back_edges", "dim", "port")


def _container(rng: random.Random, root: Element, donor: Element) -> str:
    """An element that others are in: doubled, emptied, divided in two, moved, in a namespace or under another name."""
    pairs = [(parent, child) for parent, child in _parents(root) if child.tag in _CONTAINERS]
    if not pairs:
        return "no container"
    (parent, child), how = rng.choice(pairs), rng.randrange(7)
    if how == 0:
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(child))
        return f"<{child.tag}> doubled"
    if how == 1:
        for part in list(child):
            child.remove(part)
        return f"<{child.tag}> emptied"
    if how == 2:
        other = Element(child.tag, dict(child.attrib))
        for part in list(child)[len(child) // 2 :]:
            child.remove(part)
            other.append(part)
        parent.insert(rng.randrange(len(parent) + 1), other)
        return f"<{child.tag}> divided"
    if how == 3:
        parent.remove(child)
        rng.choice(list(root.iter())).append(child)
        return f"<{child.tag}> moved"
    if how == 4:
        name = rng.choice(("xmlns", "xmlns:a", "a:b", "xml:lang", "id", "é"))
        rng.choice((root, parent, child)).set(name, rng.choice(("", "urn:x", "1")))
        return f"{name} in <{child.tag}>"
    if how == 5:
        child.tag = rng.choice((f"a:{child.tag}", *_CONTAINERS))
        return f"<{child.tag}> in the place of another"
    parent.append(Element("rt_info"))
    parent[-1].append(copy.deepcopy(rng.choice(pairs)[1]))
    return f"<{parent[-1][0].tag}> in an <rt_info>"


def _unread(rng: random.Random, root: Element, donor: Element) -> str:
    """A layer that nothing reads."""
    nets = list(root.iter("layers"))
    layers = list(donor.iter("layer"))
    if not nets or not layers:
        return "no layers"
    layer = copy.deepcopy(rng.choice(layers))
    layer.set("id", str(rng.randrange(1000, 2000)))
    layer.set("type", rng.choice(("Const", "Constant", layer.get("type", ""))))
    data = layer.find("data")
    if data is not None:
        for name in rng.sample(("offset", "size", "shape", "element_type"), 2):
            data.set(name, rng.choice((*_NUMBERS, *_WORDS)))
        if rng.random() < 0.2:
            layer.remove(data)
    rng.choice(nets).append(layer)
    return f"a {layer.get('type')} that nothing reads"


_STEPS = {
    "structure": (_container, _container, _unread),
    "layers": (_another_type, _another_type, _attribute, _attribute, _element),
    "numbers": (_number, _number, _number, _attribute),
    "edges": (_edge, _edge, _element),
}
