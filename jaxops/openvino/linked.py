"""The layers of a net joined by its edges: what each port reads, and which layers its results need."""

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from jaxops.errors import ModelError, amount
from jaxops.openvino.ir import Layer, Net

# The id of a layer, and the position of a port among its inputs or outputs (not the id of the port, which can be any).
Place: TypeAlias = tuple[int, int]
_SINKS = {"result", "readvalue", "assign"}


@dataclass(frozen=True)
class Linked:
    """A net with its edges joined. sources: input → the output that it reads.

    needed: the layers that a Result or variable needs, and all Parameters, in the order of the file.
    """

    layers: Mapping[int, Layer]
    sources: Mapping[Place, Place]
    needed: tuple[Layer, ...]

    @functools.cached_property
    def readers(self) -> Counter[Place]:
        """Counts the inputs of needed layers that read each output."""
        needed = {layer.id for layer in self.needed}
        return Counter(source for (reader, _), source in self.sources.items() if reader in needed)

    def assigned(self, assign: Layer) -> Place:
        """The output that an Assign reads, through any Assigns before it."""
        place = self.sources[assign.id, 0]
        while self.layers[place[0]].type.lower() == "assign":
            place = self.sources[place[0], 0]
        return place

    def of_type(self, name: str) -> list[Layer]:
        """The needed layers of a type, in lower case."""
        return [layer for layer in self.needed if layer.type.lower() == name]


def link(net: Net, where: str) -> Linked:
    """Joins the layers of a net. where: the file in messages.

    Raises ModelError for two layers or ports of one id, an edge from or to a missing layer or port, an input with no
    or several edges, a net without Result, a Result that does not have exactly one input, and a cycle.
    """
    layers: dict[int, Layer] = {}
    for layer in net.layers:
        if layers.setdefault(layer.id, layer) is not layer:
            raise ModelError(f"{where}: {layer.title} has the id of {layers[layer.id].title}")
    sources = _sources(net, layers, where)
    needed = _needed(layers, sources, where)
    chosen = tuple(layer for layer in net.layers if layer.id in needed or layer.type.lower() == "parameter")
    return Linked(layers, sources, chosen)


def _sources(net: Net, layers: Mapping[int, Layer], where: str) -> dict[Place, Place]:
    inputs: dict[tuple[int, int], int] = {}
    outputs: dict[tuple[int, int], int] = {}
    for layer in net.layers:
        for noun, ports, positions in (("inputs", layer.inputs, inputs), ("outputs", layer.outputs, outputs)):
            for position, port in enumerate(ports):
                if positions.setdefault((layer.id, port.id), position) != position:
                    raise ModelError(f"{where}: {layer.title} has two {noun} of port id {port.id}")
    sources: dict[Place, Place] = {}
    for source, source_port, reader, reader_port in net.edges:
        edge = f"{where}: the edge from layer {source}, port {source_port}, to layer {reader}, port {reader_port}"
        for layer_id in (source, reader):
            if layer_id not in layers:
                raise ModelError(f"{edge}: there is no layer {layer_id}")
        if (source, source_port) not in outputs:
            raise ModelError(f"{edge}: {layers[source].title} has no such output")
        if (reader, reader_port) not in inputs:
            raise ModelError(f"{edge}: {layers[reader].title} has no such input")
        place = reader, inputs[reader, reader_port]
        if place in sources:
            raise ModelError(f"{edge}: another edge enters that port of {layers[reader].title}")
        sources[place] = source, outputs[source, source_port]
    return sources


def _needed(layers: Mapping[int, Layer], sources: Mapping[Place, Place], where: str) -> set[int]:
    """Returns the ids of the layers that a Result or variable needs."""
    sinks = [layer for layer in layers.values() if layer.type.lower() in _SINKS]
    if not any(layer.type.lower() == "result" for layer in sinks):
        raise ModelError(f"{where}: the model has no Result, so it computes nothing")
    for sink in sinks:
        if sink.type.lower() == "result" and len(sink.inputs) != 1:
            raise ModelError(f"{where}: {sink.title} has {amount(len(sink.inputs), 'input')}; it takes one")
    finished: set[int] = set()
    for sink in sinks:
        # The layers on the path from the sink to here, each with the position of its next input.
        path, on_path = [(sink, 0)], {sink.id}
        while path:
            layer, position = path.pop()
            if layer.id in finished:
                on_path.discard(layer.id)
                continue
            if position == len(layer.inputs):
                finished.add(layer.id)
                on_path.discard(layer.id)
                continue
            path.append((layer, position + 1))
            if (layer.id, position) not in sources:
                raise ModelError(f"{where}: {layer.title}: no edge enters its input {position}")
            source = layers[sources[layer.id, position][0]]
            if source.id in on_path:
                raise ModelError(
                    f"{where}: the layers have a cycle: {layer.title} reads {source.title}, which needs it"
                )
            if source.id not in finished:
                on_path.add(source.id)
                path.append((source, 0))
    return finished
