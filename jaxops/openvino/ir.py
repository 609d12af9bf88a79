"""Reads the XML of an OpenVINO IR as plain data: its elements and attributes, without their meaning.

The text is read once, from front to back, without a tree. Declarations of entities are refused, so none can expand.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, TypeAlias
from xml.parsers import expat

from jaxops.errors import ModelError

VERSIONS = (10, 11)
# The deepest nesting of bodies. Each takes three levels of elements: <layers>, <layer> and <body>.
DEEPEST_BODY = 32
_DEEPEST = 16 + 3 * DEEPEST_BODY
_FIRST_PIECE = 1 << 16
# The elements that a net, or a layer, has once.
_ONCE = {"layers", "edges", "data", "input", "output", "back_edges", "port_map", "then_port_map", "else_port_map"}
# A larger number of digits than any id, size or offset has.
_LONGEST_NUMBER = 20
_COMMA = re.compile(r"(?<!\\),")


@dataclass(slots=True)
class Port:
    """An input or output of a layer. names: of its tensor. sizes: -1 for a free size."""

    id: int
    precision: str = ""
    names: tuple[str, ...] = ()
    sizes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class MappedPort:
    """An entry of a port map: it joins a port of a layer to a layer of its body. attributes: axis, stride and so on."""

    external: int
    internal: int
    attributes: Mapping[str, str]


@dataclass(slots=True)
class Body:
    """A net inside a layer. inputs, outputs: its port map. back_edges: (id of a Result, id of a Parameter)."""

    net: "Net | None" = None
    inputs: list[MappedPort] = field(default_factory=list)
    outputs: list[MappedPort] = field(default_factory=list)
    back_edges: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Layer:
    """A layer as in the file. data: the attributes of the operation. marks: the names in its `rt_info`."""

    id: int
    name: str
    type: str
    version: str
    output_names: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    bodies: dict[str, Body] = field(default_factory=dict)  # body, then_body, else_body

    @property
    def title(self) -> str:
        """The layer as messages name it."""
        return f"layer {self.id} '{self.name}' ({self.type})"


Edge: TypeAlias = tuple[int, int, int, int]  # layer and port that it leaves, layer and port that it enters


@dataclass(slots=True)
class Net:
    """The layers and edges of a file or body, in the order of the file."""

    name: str
    version: int
    layers: list[Layer] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


def parse(file: IO[bytes], where: str) -> Net:
    """Reads the XML of an IR. where: the file in messages.

    Raises ModelError for a text that is damaged, is not an IR, has a version other than those of VERSIONS, declares
    a document type or entities, or nests too deeply.
    """
    return _Parser(where).parse(file)


class _Parser:
    """Handles the events of expat. `_open` holds a handler of child elements for each element that is open."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._root: Net | None = None
        self._nets: list[Net] = []
        self._layers: list[Layer] = []  # the open layers; each but the first is in a body of the one before it
        self._parts: list[set[str]] = []  # the elements inside each open net and layer, of those that occur once
        self._ports: list[Port] = []
        self._text: list[str] | None = None
        self._open: list[Mapping[str, Callable[[Mapping[str, str]], Any]]] = [{"net": self._net}]
        in_layers, in_edges, in_marks = {"layer": self._layer}, {"edge": self._edge}, {"attribute": self._mark}
        in_input, in_output, self._in_port = {"port": self._input}, {"port": self._output}, {"dim": self._dim}
        in_back_edges = {"edge": self._back_edge}
        self._in_net = {"layers": lambda _: in_layers, "edges": lambda _: in_edges}
        self._in_layer: dict[str, Callable[[Mapping[str, str]], Any]] = {
            "data": self._data,
            "input": lambda _: in_input,
            "output": lambda _: in_output,
            "rt_info": lambda _: in_marks,
            "back_edges": lambda _: in_back_edges,
        }
        for prefix in ("", "then_", "else_"):
            name = f"{prefix}body"
            self._in_layer[name] = lambda _, name=name: self._body(name)
            self._in_layer[f"{prefix}port_map"] = lambda _, name=name: self._port_map(name)

    def parse(self, file: IO[bytes]) -> Net:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        try:
            # expat reads an unfinished attribute or comment again with each piece, so each is as long as all before it.
            length = _FIRST_PIECE
            while piece := file.read(length):
                parser.Parse(piece, False)
                length *= 2
            parser.Parse(b"", True)
        except (expat.ExpatError, ValueError, LookupError) as error:  # or an encoding unknown to Python
            if isinstance(error, ModelError):
                raise
            hint = "\n  hint    jaxops.onnx.load reads ONNX files" if self._where.lower().endswith(".onnx") else ""
            raise self._problem(f"it is damaged, or not XML: {error}{hint}") from error
        if self._root is None:
            raise self._problem("it has no <net>")
        return self._root

    def _problem(self, problem: str) -> ModelError:
        return ModelError(f"{self._where}: {problem}")

    def _refuse(self, name: str, *_: Any) -> None:
        raise self._problem(
            f"it declares '{name[:40]}', a document type or entity; an IR never has one, so the file is refused"
        )

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if len(self._open) > _DEEPEST:
            raise self._problem(f"its elements nest deeper than {_DEEPEST}; at most {DEEPEST_BODY} bodies may nest")
        if len(self._open) == 1 and name != "net":
            raise self._problem(f"not an OpenVINO IR: its root is <{name[:40]}>, not <net>")
        inside = self._open[-1]
        handle = inside.get(name)
        if handle and name in _ONCE and (inside is self._in_net or inside is self._in_layer):
            if name in self._parts[-1]:
                owner = self._layers[-1].title if self._layers else "the model"
                raise self._problem(f"{owner} has two <{name}>")
            self._parts[-1].add(name)
        opened = (handle and handle(attributes)) or {}
        if opened is self._in_net or opened is self._in_layer:
            self._parts.append(set())
        self._open.append(opened)

    def _end(self, name: str) -> None:
        inside = self._open.pop()
        if inside is self._in_layer:
            self._layers.pop()
            self._parts.pop()
        elif inside is self._in_net:
            self._nets.pop()
            self._parts.pop()
        elif self._text is not None:
            self._ports[-1].sizes.append(self._number("".join(self._text), "<dim>"))
            self._text = None

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _net(self, attributes: Mapping[str, str]) -> Any:
        text = attributes.get("version", "")
        if text not in map(str, VERSIONS):
            raise self._problem(
                f"IR version {text or '(none)'}: jaxops reads versions 10 and 11; convert the model again with a newer "
                "OpenVINO, or read and save it with openvino.Core().read_model and openvino.save_model"
            )
        self._root = Net(attributes.get("name", ""), int(text))
        self._nets.append(self._root)
        return self._in_net

    def _body(self, name: str) -> Any:
        layer = self._layers[-1]
        net = Net(layer.name, self._nets[-1].version)
        body = layer.bodies.setdefault(name, Body())
        if body.net is not None:
            raise self._problem(f"{layer.title} has two <{name}>")
        body.net = net
        self._nets.append(net)
        return self._in_net

    def _layer(self, attributes: Mapping[str, str]) -> Any:
        name = attributes.get("name", "")
        if "type" not in attributes:
            raise self._problem(f"<layer name={name!r:.80}> has no type")
        layer = Layer(
            self._number(attributes.get("id"), "id of a layer called", name),
            name,
            attributes["type"],
            attributes.get("version", "opset1"),
            _names(attributes.get("output_names", "")),
        )
        self._nets[-1].layers.append(layer)
        self._layers.append(layer)
        return self._in_layer

    def _data(self, attributes: Mapping[str, str]) -> None:
        self._layers[-1].data = attributes

    def _mark(self, attributes: Mapping[str, str]) -> None:
        self._layers[-1].marks.add(attributes.get("name", ""))

    def _input(self, attributes: Mapping[str, str]) -> Any:
        return self._port(self._layers[-1].inputs, attributes)

    def _output(self, attributes: Mapping[str, str]) -> Any:
        return self._port(self._layers[-1].outputs, attributes)

    def _port(self, ports: list[Port], attributes: Mapping[str, str]) -> Any:
        number = self._number(attributes.get("id"), "port id of", self._layers[-1])
        ports.append(Port(number, attributes.get("precision", ""), _names(attributes.get("names", ""))))
        self._ports = ports
        return self._in_port

    def _dim(self, _: Mapping[str, str]) -> None:
        self._text = []

    def _edge(self, attributes: Mapping[str, str]) -> None:
        source, port = (
            self._number(attributes.get(name), "the source of an edge") for name in ("from-layer", "from-port")
        )
        reader, entry = (
            self._number(attributes.get(name), "the target of an edge") for name in ("to-layer", "to-port")
        )
        self._nets[-1].edges.append((source, port, reader, entry))

    def _back_edge(self, attributes: Mapping[str, str]) -> None:
        names = "from-layer", "to-layer"
        result, parameter = (self._number(attributes.get(name), f"{name} of a back edge") for name in names)
        self._layers[-1].bodies.setdefault("body", Body()).back_edges.append((result, parameter))

    def _port_map(self, name: str) -> Any:
        body = self._layers[-1].bodies.setdefault(name, Body())
        return {
            "input": lambda attributes: self._mapped(body.inputs, attributes),
            "output": lambda attributes: self._mapped(body.outputs, attributes),
        }

    def _mapped(self, ports: list[MappedPort], attributes: Mapping[str, str]) -> None:
        external, internal = (
            self._number(attributes.get(name), f"{name} of the port map of", self._layers[-1])
            for name in ("external_port_id", "internal_layer_id")
        )
        ports.append(MappedPort(external, internal, attributes))

    def _number(self, text: str | None, subject: str, owner: Any = "") -> int:
        """Returns a whole number. subject, owner: the number and the part that has it, as a message names them."""
        if text is not None and len(text) < _LONGEST_NUMBER and text.isascii() and text.isdigit():
            return int(text)
        subject = f"{subject} {owner.title if isinstance(owner, Layer) else repr(owner)}" if owner else subject
        digits = (text or "").strip()
        if not (digits.removeprefix("-").isascii() and digits.removeprefix("-").isdigit()):
            raise self._problem(f"{subject} must be a number, got {text!r:.40}")
        if len(digits) > _LONGEST_NUMBER:
            raise self._problem(f"{subject} is out of range: {digits:.40}")
        return int(digits)


def _names(text: str) -> tuple[str, ...]:
    r"""Returns the names in a list; `\,` is a comma inside a name."""
    if "\\" not in text:
        return tuple(text.split(",")) if text else ()
    return tuple(name.replace("\\,", ",") for name in _COMMA.split(text))
