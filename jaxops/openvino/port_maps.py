"""Turns the bodies of layers into subgraphs of nodes. A body reads outer values by their names, as in its port map.

If becomes a node with two graphs without inputs. Loop and TensorIterator become ONNX's Loop, whose body gets the number
of the iteration, a condition and the state. The body slices a sliced value by that number. Slices to be joined are
stacked by the loop, and joined after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from jaxops.errors import ModelError, amount
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.openvino import texts
from jaxops.openvino.element_types import element_type
from jaxops.openvino.ir import Body, Layer, MappedPort
from jaxops.openvino.linked import Linked, link
from jaxops.openvino.versions.iteration import (
    IDENTITY,
    IF,
    ITERATION_NUMBER,
    JOIN_SLICES,
    LAST_SLICE,
    LOOP,
    SCALAR,
    SLICE_AT,
    SLICE_COUNT,
)


class BodyReader(Protocol):
    """Reads the bodies, and gives new names to values. where: the file in messages."""

    where: str

    def body(self, net: Linked, outer: Mapping[int, str], inputs: Sequence[int], outputs: Sequence[int]) -> Graph: ...

    def unused(self, name: str) -> str: ...

    def problem(self, layer: Layer, problem: str) -> ModelError: ...


def branches(reader: BodyReader, layer: Layer, node: Node) -> list[Node]:
    """Returns the node of an If."""
    graphs = {}
    for name in ("then_body", "else_body"):
        body = layer.bodies.get(name)
        if body is None or body.net is None:
            raise reader.problem(layer, f"it has no <{name}>")
        maps = _Maps(reader, layer, node, name, body)
        missing = [p.title for p in maps.linked.of_type("parameter") if p.id not in maps.outer]
        if missing:
            raise reader.problem(layer, f"no <input> of the port map of <{name}> leads to {missing[0]}")
        graphs[name.replace("body", "branch")] = reader.body(
            maps.linked, maps.outer, (), [port.internal for port in maps.results()]
        )
    return [replace(node, operator=IF, inputs=node.inputs[:1], attributes=graphs)]


def iterations(reader: BodyReader, layer: Layer, node: Node) -> list[Node]:
    """Returns the nodes of a Loop or TensorIterator: ONNX's Loop, and the nodes before and after it."""
    body = layer.bodies.get("body")
    if body is None or body.net is None:
        raise reader.problem(layer, "it has no <body>")
    return _Iterations(reader, layer, node, _Maps(reader, layer, node, "body", body)).nodes()


class _Iterations:
    def __init__(self, reader: BodyReader, layer: Layer, node: Node, maps: "_Maps") -> None:
        self._reader, self._layer, self._node, self._maps = reader, layer, node, maps
        self._number, self._condition, self._next = (
            reader.unused(f"{layer.name}/{what}") for what in ("iteration", "condition", "next_condition")
        )
        self._inside: list[Node] = []  # nodes before the layers of the body
        self._outside: list[Node] = []  # nodes before the loop

    def nodes(self) -> list[Node]:
        """Returns the nodes that replace the layer."""
        maps, reader = self._maps, self._reader
        is_loop = self._layer.type.lower() == "loop"
        if is_loop and len(self._node.inputs) < 2:
            raise reader.problem(self._layer, "its first two inputs must be a trip count and a condition")
        carried = self._carried()
        enters = dict(maps.outer)
        count = self._node.inputs[0] if is_loop else ""
        for port in maps.body.inputs:
            if port.attributes.get("purpose") == "current_iteration":
                enters[port.internal] = self._iteration_number(port.internal)
            elif port.attributes.get("axis") and port.internal in maps.outer:
                enters[port.internal] = self._slice(enters[port.internal], slices := self._slices(port))
                count = count or self._slice_count(maps.outer[port.internal], slices)
        for parameter in carried.values():
            enters.pop(parameter, None)
        self._require_all(enters, carried)
        if not count:
            raise reader.problem(
                self._layer, "the number of iterations is unknown: an <input> of the port map must have an `axis`"
            )
        loop = self._loop(count, is_loop, enters, carried)
        return [*self._outside, *loop]

    def _carried(self) -> dict[int, int]:
        """Returns position in the state → the Parameter that gets this value; its next value comes by a back edge."""
        parameters = []
        for result, parameter in self._maps.body.back_edges:
            self._maps.require(result, "result")
            self._maps.require(parameter, "parameter")
            if parameter not in self._maps.outer:
                raise self._maps.problem(f"layer {parameter} has a back edge, but no first value")
            if parameter in parameters:
                raise self._maps.problem(f"two back edges lead to layer {parameter}")
            parameters.append(parameter)
        return dict(enumerate(parameters))

    def _loop(self, count: str, is_loop: bool, enters: Mapping[int, str], carried: Mapping[int, int]) -> list[Node]:
        maps, reader = self._maps, self._reader
        next_values = [result for result, _ in maps.body.back_edges]
        leaving = maps.results()
        scanned = [port for port in leaving if port.attributes.get("axis") or port.internal not in next_values]
        conditions = [p.internal for p in maps.body.outputs if p.attributes.get("purpose") == "execution_condition"]
        outputs = [*conditions[:1], *next_values, *(port.internal for port in scanned)]
        body = reader.body(maps.linked, enters, list(carried.values()), outputs)
        flags = Value(self._number, np.dtype(np.int64), ()), Value(self._condition, np.dtype(bool), None)
        condition, results, after_body = flags[1], body.outputs, []
        if conditions:  # the condition may have an axis
            condition, *results = body.outputs
            after_body = [Node(SCALAR, "", (condition.name,), (self._next,), {})]
            condition = Value(self._next, condition.dtype, ())
        body = replace(
            body,
            inputs=(*flags, *body.inputs),
            outputs=(condition, *results),
            nodes=(*self._inside, *body.nodes, *after_body),
        )
        state = [maps.outer[parameter] for parameter in carried.values()]
        first = self._node.inputs[1] if is_loop and conditions else ""
        finals = [reader.unused(f"{self._layer.name}/state") for _ in state]
        stacks = [reader.unused(f"{self._layer.name}/slices") for _ in scanned]
        after = []
        for name, port in zip(self._node.outputs, leaving, strict=True):
            if not name:
                continue
            if port in scanned:
                stack = stacks[scanned.index(port)]
                after.append(self._joined(name, stack, port))
            else:
                after.append(Node(IDENTITY, "", (finals[next_values.index(port.internal)],), (name,), {}))
        loop = replace(
            self._node,
            operator=LOOP,
            inputs=(count, first, *state),
            outputs=(*finals, *stacks),
            attributes={"body": body},
        )
        return [loop, *after]

    def _joined(self, name: str, stack: str, port: MappedPort) -> Node:
        if not port.attributes.get("axis"):
            return Node(LAST_SLICE, "", (stack,), (name,), {})
        slices = self._slices(port)
        return Node(JOIN_SLICES, "", (stack,), (name,), {"axis": slices["axis"], "stride": slices["stride"]})

    def _slices(self, port: MappedPort) -> dict[str, int]:
        """Returns the attributes of the slices of an input or output: axis, start, end, stride, part_size."""
        defaults = {"axis": "0", "start": "0", "end": "-1", "stride": "1", "part_size": "1"}
        subject = f"{self._reader.where}: {self._layer.title}: port map"
        return {
            name: texts.integer(port.attributes.get(name) or default, f"{subject}: `{name}`")
            for name, default in defaults.items()
        }

    def _iteration_number(self, parameter: int) -> str:
        layer = self._maps.linked.layers[parameter]
        subject = f"{self._reader.where}: {layer.title}"
        dtype = element_type(layer.data.get("element_type", "i64"), subject).dtype
        rank = len(texts.shape(layer.data.get("shape", ""), subject) or ())
        name = self._reader.unused(f"{self._layer.name}/{layer.name}")
        self._inside.append(Node(ITERATION_NUMBER, "", (self._number,), (name,), {"rank": rank, "to": dtype}))
        return name

    def _slice(self, source: str, slices: Mapping[str, int]) -> str:
        name = self._reader.unused(f"{self._layer.name}/slice")
        self._inside.append(Node(SLICE_AT, "", (source, self._number), (name,), slices))
        return name

    def _slice_count(self, source: str, slices: Mapping[str, int]) -> str:
        name = self._reader.unused(f"{self._layer.name}/count")
        self._outside.append(Node(SLICE_COUNT, "", (source,), (name,), slices))
        return name

    def _require_all(self, enters: Mapping[int, str], carried: Mapping[int, int]) -> None:
        """Raises ModelError for a Parameter of the body that gets no value."""
        for layer in self._maps.linked.of_type("parameter"):
            if layer.id not in enters and layer.id not in carried.values():
                raise self._maps.problem(f"no <input> leads to {layer.title}")


class _Maps:
    """A body and the values that the port map brings in and out.

    outer: Parameter → the name of the value outside that enters it.
    """

    def __init__(self, reader: BodyReader, layer: Layer, node: Node, name: str, body: Body) -> None:
        assert body.net is not None
        self._reader, self._layer, self._name, self.body = reader, layer, name, body
        self.linked = link(body.net, f"{reader.where}: <{name}> of {layer.title}")
        positions = {port.id: position for position, port in enumerate(layer.inputs)}
        self.outer: dict[int, str] = {}
        for port in body.inputs:
            self.require(port.internal, "parameter")
            if port.internal in self.outer:
                raise self.problem(f"two <input> lead to layer {port.internal}")
            if port.attributes.get("purpose") == "current_iteration" or port.external < 0:
                continue
            if port.external not in positions:
                raise self.problem(f"the layer has no input of port id {port.external}")
            self.outer[port.internal] = node.inputs[positions[port.external]]

    def problem(self, problem: str) -> ModelError:
        return self._reader.problem(self._layer, f"port map of <{self._name}>: {problem}")

    def require(self, layer_id: int, kind: str) -> None:
        """Raises ModelError unless the body has a layer of this id and type."""
        layer = self.linked.layers.get(layer_id)
        if layer is None or layer.type.lower() != kind:
            raise self.problem(f"the body has no {kind.capitalize()} of layer id {layer_id}")

    def results(self) -> list[MappedPort]:
        """Returns the outputs of the port map in the order of the layer's outputs, whose ids need not begin at 0."""
        ports = [port for port in self.body.outputs if port.external >= 0]
        for port in self.body.outputs:
            self.require(port.internal, "result")
        if len({port.external for port in ports}) != len(ports):
            raise self.problem("two <output> have the same external_port_id")
        if len(ports) != len(self._layer.outputs):
            raise self.problem(
                f"the port map has {amount(len(ports), 'output')}, but the layer has {len(self._layer.outputs)}"
            )
        return sorted(ports, key=lambda port: port.external)
