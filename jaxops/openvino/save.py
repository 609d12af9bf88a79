"""Saving: writes the IR of a loaded model with other weights in its `.bin`.

In the XML, only the offsets of constants change. A weight goes back to its Constant, in the type of the file. A weight
that a layer computes from constants becomes a Constant of its own.
"""

import copy
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement
from xml.parsers import expat

import numpy as np

from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.file_replacement import replace, target, unfinished
from jaxops.frontend.tensor_file import FileRange
from jaxops.graph.nodes import Graph, Node
from jaxops.openvino import texts
from jaxops.openvino.element_types import ElementType, element_type, name_of
from jaxops.openvino.ir import Layer, Net
from jaxops.openvino.linked import Linked, Place
from jaxops.openvino.open import Opened, Weights
from jaxops.openvino.read import Reader, is_constant, is_decompression, places_of

# Constants begin at multiples of this, for programs that map the file into memory.
_ALIGNMENT = 64


def save(
    path: str | os.PathLike[str],
    opened: Opened,
    text: bytes,
    graph: Graph,
    weights: Mapping[str, Any],
    dtypes: Mapping[str, np.dtype],
    original: Mapping[str, Any],
    sizes: Collection[str],
    ways_back: Mapping[str, Callable[[np.ndarray], np.ndarray]],
) -> None:
    """Writes an IR with other weights: its XML, and a `.bin` of the same name beside it.

    text: the XML of `opened`. graph: the model's, which says where each weight belongs. weights: by name, of any type.
    dtypes: their types in the model. original: the weights of the file that are known. sizes: as `read` takes them.
    ways_back: by name, for a constant in another form, turns its values into the numbers of the file.

    Existing files are replaced at the very end, the `.bin` first. Their names are fixed, so if the process ends between
    the two, the old XML stands beside the new `.bin`.
    Raises ArgumentError for a path that does not end in .xml, UnsupportedError for a changed weight that the file has
    no place for, PathError for a path where something other than a regular file is.
    """
    if Path(path).suffix.lower() != ".xml":
        raise ArgumentError(
            f"save: an OpenVINO IR is an .xml and a .bin beside it; give a path that ends in .xml, not '{path}'"
        )
    edited = _Edited(opened, _tree(text))
    _Places(edited, opened, graph, weights, dtypes, original, sizes, ways_back).write()
    # OpenVINO looks for the `.bin` beside the path that it is given, also if that is a link.
    text_file, data_file = target(path, "save"), target(Path(path).with_suffix(".bin"), "save")
    with unfinished(text_file) as texts_beside, unfinished(data_file) as data_beside:
        xml, data = texts_beside / "model.xml", data_beside / "model.bin"
        with data.open("wb") as file:
            for element, content in edited.contents(opened.weights):
                file.write(b"\0" * (-file.tell() % _ALIGNMENT if content else 0))
                element.set("offset", str(file.tell()))
                element.set("size", str(len(content)))
                file.write(content)
        ElementTree.ElementTree(edited.root).write(xml, encoding="utf-8", xml_declaration=True)
        if data_file.exists():  # the model may have been loaded from it, and reads a weight when it is needed
            list(map(original.__getitem__, original))
        replace(data, data_file)
        replace(xml, text_file)


def _tree(text: bytes) -> Element:
    """Reads XML as a tree. A colon in a name means nothing here, as in `parse`."""
    builder, parser = ElementTree.TreeBuilder(), expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(text, True)
    return builder.close()


class _Edited:
    """The XML of an IR as a tree. values: the `data` element of a Constant → its new values."""

    def __init__(self, opened: Opened, root: Element) -> None:
        self.root, self._where = root, opened.where
        self.values: dict[Element, np.ndarray] = {}
        self._elements: dict[
            int, tuple[Element, Element]
        ] = {}  # id() of a layer → its element, and the element of its net
        self._next: dict[Element, int] = {}  # net → an unused id for a layer
        self._edges: dict[tuple[Element, int, int], Element] = {}  # net, layer, input port → the edge that enters it
        self._walk(opened.net, root)

    def _walk(self, net: Net, element: Element) -> None:
        self._next[element] = max((layer.id for layer in net.layers), default=0) + 1
        for edge in element.iterfind("edges/edge"):
            self._edges[element, int(edge.get("to-layer", "")), int(edge.get("to-port", ""))] = edge
        for layer, child in zip(net.layers, element.iterfind("layers/layer"), strict=True):
            self._elements[id(layer)] = child, element
            for name, body in layer.bodies.items():
                inner = child.find(name)
                if body.net is not None and inner is not None:
                    self._walk(body.net, inner)

    def put(self, layer: Layer, values: np.ndarray) -> None:
        """Gives a Constant other values."""
        self.values[_data(self._elements[id(layer)][0])] = values

    def copied(self, layer: Layer) -> Element:
        """Adds a copy of a layer with an id of its own, which nothing reads yet; returns its element."""
        original, net = self._elements[id(layer)]
        element = copy.deepcopy(original)
        for port in element.iterfind("output/port"):
            port.attrib.pop("names", None)  # the name of a tensor must be unique
        return self._added(element, net)

    def constant(self, layer: Layer, position: int, values: np.ndarray, element: str) -> Element:
        """Adds a Constant for an output of a layer, which nothing reads yet; returns its element."""
        original, net = self._elements[id(layer)]
        name = layer.name if len(layer.outputs) == 1 else f"{layer.name}.{position}"
        made = Element("layer", {"name": name, "type": "Const", "version": "opset1"})
        shape = ",".join(map(str, values.shape))
        self.values[SubElement(made, "data", {"element_type": element, "shape": shape})] = values
        port = original.findall("output/port")[position]
        copied = SubElement(SubElement(made, "output"), "port", {**port.attrib, "id": "0"})
        port.attrib.pop("names", None)
        for size in values.shape:
            SubElement(copied, "dim").text = str(size)
        return self._added(made, net)

    def _added(self, element: Element, net: Element) -> Element:
        element.set("id", str(self._next[net]))
        self._next[net] += 1
        layers = net.find("layers")
        assert layers is not None
        layers.append(element)
        return element

    def connect(self, source: Element, layer: Layer, position: int) -> None:
        """Lets an input of a layer read the only output of an added layer."""
        _, net = self._elements[id(layer)]
        _leave(self._edges[net, layer.id, layer.inputs[position].id], source)

    def connect_added(self, source: Element, reader: Element, layer: Layer) -> None:
        """Adds an edge between two added layers. reader: the copy of `layer`."""
        _, net = self._elements[id(layer)]
        edges = net.find("edges")
        assert edges is not None
        edge = SubElement(edges, "edge", {"to-layer": reader.get("id", ""), "to-port": str(layer.inputs[0].id)})
        _leave(edge, source)

    def contents(self, weights: Weights) -> Iterator[tuple[Element, bytes]]:
        """Yields the `data` element of each Constant and its bytes, once for Constants that share unchanged bytes."""
        shared: dict[tuple[str, str], Element] = {}
        for layer in self.root.iter("layer"):
            if layer.get("type", "").lower() not in ("const", "constant"):
                continue
            data = layer.find("data")
            if data is None:  # of a layer that nothing reads
                continue
            subject = f"{self._where}: layer {layer.get('id')} '{layer.get('name')}'"
            if data in self.values:
                content = _bytes(self.values[data], element_type(data.get("element_type", ""), subject))
            else:
                key = data.get("offset", ""), data.get("size", "")
                if key in shared:
                    data.set("offset", shared[key].get("offset", ""))
                    continue
                shared[key] = data
                start, count = (texts.integer(number, subject) for number in key)
                # A layer that nothing reads may have a place outside of the weights.
                within = range(max(start, 0), min(start + count, weights.size))
                content = FileRange(weights.file, within).read() if within else b""
                content += b"\0" * (count - len(content) if len(content) < count <= 1 else 0)
            yield data, content


def _data(layer: Element) -> Element:
    data = layer.find("data")
    assert data is not None
    return data


def _leave(edge: Element, source: Element) -> None:
    port = source.find("output/port")
    assert port is not None
    edge.set("from-layer", source.get("id", ""))
    edge.set("from-port", port.get("id", ""))


def _bytes(values: np.ndarray, element: ElementType) -> bytes:
    values = np.asarray(values).astype(element.dtype)
    return (np.ascontiguousarray(values) if element.pack is None else element.pack(values)).tobytes()


class _Places:
    """Writes weights to their places in an IR."""

    def __init__(
        self,
        edited: _Edited,
        opened: Opened,
        graph: Graph,
        weights: Mapping[str, Any],
        dtypes: Mapping[str, np.dtype],
        original: Mapping[str, Any],
        sizes: Collection[str],
        ways_back: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    ) -> None:
        self._edited, self._graph, self._dtypes = edited, graph, dtypes
        self._weights, self._original, self._ways_back = weights, original, ways_back
        self._params = _params(graph)  # name of a value → name of its parameter
        reader = Reader(opened.weights, opened.where, sizes)
        reader.graph(opened.net)
        self._nets = reader.nets
        self._placed: set[str] = set()

    def write(self) -> None:
        """Writes each weight to its place."""
        for linked, names in self._nets:
            self._constants(linked, names)
            self._computed(linked, names)
        self._untied(*self._nets[0])
        for name in self._weights.keys() - self._placed:
            if not self._is_original(name):
                raise UnsupportedError(
                    f"save: the weight '{name}' was changed, or given by with_params, and no layer of the file "
                    "makes it, so the file has no place for it"
                )

    def _is_original(self, param: str) -> bool:
        """Returns True for a weight that the file has already."""
        weight = self._weights[param]
        return weight.dtype == canonical(self._dtypes[param]) and (
            param in self._original and _are_equal(weight, self._original[param])
        )

    def _values(self, name: str) -> np.ndarray:
        """Returns the weight for a value of the file."""
        self._placed.add(self._params[name])
        return np.asarray(self._weights[self._params[name]])

    def _numbers(self, name: str) -> np.ndarray:
        """Returns a weight in the form of the file."""
        values = self._values(name)
        return self._ways_back[name](values) if name in self._ways_back else values

    def _constants(self, linked: Linked, names: Mapping[Place, str]) -> None:
        """Writes the weights that are Constants, or that a Convert decompresses.

        A Constant that is read both ways is written twice if its two weights differ now.
        """
        claims: dict[
            int, dict[str, list[Place]]
        ] = {}  # Constant → the name of a weight made from it → the inputs that read it
        converts = dict.fromkeys(layer.id for layer in linked.needed if is_decompression(layer, linked))
        for (reader, position), (source, _) in linked.sources.items():
            direct = is_constant(linked.layers[source]) and names.get((source, 0)) in self._params
            if direct and reader not in converts:
                claims.setdefault(source, {}).setdefault(names[source, 0], []).append((reader, position))
        for convert in converts:
            if names[convert, 0] in self._params:
                constant = linked.sources[convert, 0][0]
                claims.setdefault(constant, {}).setdefault(names[convert, 0], []).append((convert, 0))
        for constant, readers in claims.items():
            self._placed.update(self._params[name] for name in readers)
            if all(self._is_original(self._params[name]) for name in readers):
                continue
            layer, contents = linked.layers[constant], {name: self._numbers(name) for name in readers}
            element = element_type(layer.data["element_type"], layer.title)
            first, *others = readers
            self._edited.put(layer, contents[first])
            for name in others:
                if _bytes(contents[name], element) != _bytes(contents[first], element):
                    added = self._edited.copied(layer)
                    self._edited.values[_data(added)] = contents[name]
                    for reader, position in readers[name]:
                        self._edited.connect(added, linked.layers[reader], position)

    def _computed(self, linked: Linked, names: Mapping[Place, str]) -> None:
        """Writes a Constant for each weight that a layer computes and that has changed."""
        for (layer_id, position), name in names.items():
            layer = linked.layers[layer_id]
            is_input = layer.type.lower() == "parameter"
            if name not in self._params or is_input or is_constant(layer) or is_decompression(layer, linked):
                continue
            values = self._values(name)
            sources = [names.get(linked.sources[layer_id, i], "") for i in range(len(layer.inputs))]
            operands = [self._weights[self._params[source]] for source in sources if source in self._params]
            if any(_are_equal(values, x) for x in operands) if operands else self._is_original(self._params[name]):
                continue
            made = self._constant(layer, position, name)
            for (reader, entry), source in linked.sources.items():
                if source == (layer_id, position):
                    self._edited.connect(made, linked.layers[reader], entry)

    def _constant(self, layer: Layer, position: int, name: str) -> Element:
        element = name_of(self._dtypes[self._params[name]])
        return self._edited.constant(layer, position, self._values(name), element)

    def _untied(self, linked: Linked, names: Mapping[Place, str]) -> None:
        """Writes a Constant of its own for each module whose weight has changed and was shared in the file."""
        places = places_of(names)
        elsewhere = places.keys() | self._ways_back.keys()
        for node, layer in _layers(self._graph.nodes, linked, places):
            for position, name in enumerate(node.inputs):
                source = linked.sources.get((layer.id, position))
                if source is None or name not in self._params or name in elsewhere or names[source] not in self._params:
                    continue
                values = self._values(name)
                if not _are_equal(values, self._values(names[source])):
                    self._edited.connect(self._another(linked, source, name), layer, position)

    def _another(self, linked: Linked, source: Place, name: str) -> Element:
        """Adds copies of the layers that compute a value, for a weight of its own; returns the last one."""
        layer = linked.layers[source[0]]
        if is_constant(layer):
            added = self._edited.copied(layer)
            self._edited.values[_data(added)] = self._values(name)
            return added
        if not is_decompression(layer, linked):
            return self._constant(layer, source[1], name)
        constant, convert = self._another(linked, linked.sources[layer.id, 0], name), self._edited.copied(layer)
        self._edited.connect_added(constant, convert, layer)
        return convert


def _layers(nodes: Sequence[Node], linked: Linked, places: Mapping[str, Place]) -> Iterator[tuple[Node, Layer]]:
    """Yields the nodes that are layers without bodies, with their layers."""
    for node in nodes:
        place = next((places[name] for name in node.outputs if name in places), None)
        if place is not None and not linked.layers[place[0]].bodies:
            yield node, linked.layers[place[0]]


def _params(graph: Graph) -> dict[str, str]:
    """Returns the names of the parameters inside a graph, by the names of their values there."""
    params = dict(graph.params)
    for inner in graph.nested:
        params |= _params(inner)
    return params


def _are_equal(one: Any, other: Any) -> bool:
    """Returns True if two arrays have the same bits."""
    a, b = (np.ascontiguousarray(x) for x in (one, other))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
