"""Reads an IR as a graph of the needed layers; its nodes name an operation and a version, and its values have names."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxops.errors import ModelError
from jaxops.frontend.module_paths import Modules, module_path, modules_of
from jaxops.graph.declared_sizes import named
from jaxops.graph.nodes import Graph, Node, Tensor, Value, Variable
from jaxops.openvino import texts
from jaxops.openvino.element_types import element_type, port_type
from jaxops.openvino.ir import Layer, Net, Port
from jaxops.openvino.linked import Linked, Place, link
from jaxops.openvino.open import Opened, Weights
from jaxops.openvino.port_maps import branches, iterations
from jaxops.openvino.variables import ReadAndAssign, pairs
from jaxops.openvino.versions.iteration import IDENTITY

# The marks of layers that stay float32 when a model is narrowed; their names depend on the release of OpenVINO.
_EXACT = {"DisablePrecisionConversion", "precise"}
# The prefix of the path of a module in names of layers, from PyTorch's front end.
_MODULE = "__module."


class LayerType(NamedTuple):
    """The operation that a node names, until it is bound.

    version: an opset, or the name of an extension. exact: True if it stays float32 when the model is narrowed.
    """

    name: str
    version: str
    exact: bool = False


# The layers that become inputs and outputs of a graph.
_ENDS = ("parameter", "result", "readvalue", "assign")


def read(opened: Opened, sizes: Collection[str] = ()) -> tuple[Graph, Mapping[str, Value]]:
    """Reads the graph of an IR, and the declared types and sizes of its values.

    sizes: the names of sizes that the caller fixes, which may give the rank of an input.
    Raises ModelError for a file that contradicts itself, or that cannot become a graph.
    """
    reader = Reader(opened.weights, opened.where, sizes)
    return dataclasses.replace(reader.graph(opened.net), name=opened.net.name), reader.declared


class Reader:
    """Reads a net and the nets in its layers. All values have different names, so that a body can read outer ones."""

    def __init__(self, weights: Weights, where: str, sizes: Collection[str] = ()) -> None:
        self.weights, self.where, self._sizes = weights, where, sizes
        self._used: dict[str, int] = {"": 1}  # name → the number of names derived from it
        self.declared: dict[str, Value] = {}
        self.nets: list[
            tuple[Linked, Mapping[Place, str]]
        ] = []  # each net and the names of its outputs; the net of the file is first

    def graph(self, net: Net) -> Graph:
        """Returns the graph of the file."""
        graph = _Net(self, link(net, self.where), {}).graph()
        return dataclasses.replace(graph, inputs=named(graph.inputs))

    def body(self, net: Linked, outer: Mapping[int, str], inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        """Returns the graph of a body.

        outer: Parameter → the name of the outer value that it reads. inputs: the Parameters that are inputs of the
        graph. outputs: the Results that are its outputs. All are ids of layers.
        """
        return _Net(self, net, outer).graph(inputs, outputs)

    def unused(self, name: str) -> str:
        """Returns an unused name, equal or similar to `name`, and marks it as used."""
        unused, count = name, self._used.get(name, 0)
        while unused in self._used:
            count += 1
            unused = f"{name}_{count}"
        self._used[name] = count
        self._used.setdefault(unused, 1)
        return unused

    def rank(self, name: str) -> int:
        """Returns how many sizes of an input the caller gives; they are those of its first axes."""
        return next(axis for axis in itertools.count() if f"{name}_{axis}" not in self._sizes)

    def problem(self, layer: Layer, problem: str) -> ModelError:
        """Returns an error about a layer."""
        return ModelError(f"{self.where}: {layer.title}: {problem}")


class _Net:
    """Reads one net. outer: Parameter → the name of the outer value that it reads."""

    def __init__(self, reader: Reader, linked: Linked, outer: Mapping[int, str]) -> None:
        self._reader, self._linked = reader, linked
        self._names: dict[Place, str] = {(parameter, 0): name for parameter, name in outer.items()}
        self._initializers: dict[str, Tensor] = {}
        self._nodes: list[Node] = []
        self._result_names = {layer.name for layer in linked.of_type("result")}
        self._is_body = False
        reader.nets.append((linked, self._names))

    def graph(self, inputs: Sequence[int] | None = None, outputs: Sequence[int] | None = None) -> Graph:
        """Returns the graph. inputs, outputs: of a body, its Parameters and Results that are inputs and outputs."""
        linked, self._is_body = self._linked, outputs is not None
        parameters = linked.of_type("parameter") if inputs is None else [linked.layers[i] for i in inputs]
        results = linked.of_type("result") if outputs is None else [linked.layers[i] for i in outputs]
        values = tuple(map(self._input, parameters))
        variables = pairs(linked, self._reader.where, self._is_body)
        values += tuple(map(self._before, variables))
        # Reversed, so that the first of two Results that read one output names it.
        asked = {} if self._is_body else dict(map(self._asked, reversed(results)))
        constants = [layer for layer in linked.needed if is_constant(layer)]
        layers = [layer for layer in linked.needed if not is_constant(layer) and layer.type.lower() not in _ENDS]
        decompressions = [layer for layer in layers if is_decompression(layer, linked)]
        computed = set(map(id, layers)).difference(map(id, decompressions))
        layers = [layer for layer in layers if id(layer) in computed]
        self._constants(constants, decompressions)
        for layer in layers:
            for position in range(len(layer.outputs)):
                self._name(layer, position, asked.get((layer.id, position), ""))
        modules = modules_of(layer.name.removeprefix("self.") for layer in constants)
        for pair in variables:  # the output of an Assign is its input, which may be another Assign
            self._names[pair.assign.id, 0] = self._made(linked.assigned(pair.assign), pair.assign)
        for layer in layers:
            self._nodes += self._node(layer, _scope(layer.name, modules))
        outputs_of_graph = tuple(map(self._output, results))
        afters = tuple(map(self._after, variables))
        return Graph(
            name="",
            inputs=values,
            outputs=(*outputs_of_graph, *afters),
            nodes=tuple(self._nodes),
            initializers=self._initializers,
            variables=tuple(
                Variable(pair.name, before.name, after.name, self._source(pair.read) if pair.read.inputs else "")
                for pair, before, after in zip(variables, values[len(parameters) :], afters, strict=True)
            ),
        )

    def _source(self, layer: Layer, position: int = 0) -> str:
        return self._made(self._linked.sources[layer.id, position], layer)

    def _made(self, place: Place, reader: Layer) -> str:
        """Returns the name of the value at a place. Raises ModelError if there is none."""
        if place not in self._names:
            source = self._linked.layers[place[0]]
            raise self._reader.problem(
                reader, f"it reads output {place[1]} of {source.title}, which has no such output"
            )
        return self._names[place]

    def _input(self, layer: Layer) -> Value:
        problem = functools.partial(self._reader.problem, layer)
        names = (layer.outputs[0].names if layer.outputs else ()) or (layer.name,)
        name = self._names[layer.id, 0] = self._reader.unused(names[0] or layer.name)
        if layer.data.get("element_type", "") in ("dynamic", "undefined", ""):
            raise problem("its element type is dynamic; give the Parameter a type and save the model again")
        dtype = element_type(layer.data["element_type"], f"{self._reader.where}: {layer.title}").dtype
        limits = texts.shape(layer.data.get("shape", ""), f"{self._reader.where}: {layer.title}: `shape`")
        if self._is_body:  # the value that enters has its own sizes
            return Value(name, dtype, None)
        if limits is None:
            limits = [(0, None)] * self._reader.rank(name)
            if not limits:
                raise problem(
                    f"its rank is free; load(…, sizes={{'{name}_0': …, '{name}_1': …}}) says the size of each axis, or "
                    "give the Parameter a shape and save the model again"
                )
        shape = tuple(low if low == high else None for low, high in limits)
        free = tuple((axis, span) for axis, span in enumerate(limits) if shape[axis] is None and span != (0, None))
        return Value(name, dtype, shape, aliases=tuple(dict.fromkeys(names[1:])), limits=free)

    def _before(self, pair: ReadAndAssign) -> Value:
        name = self._names[pair.read.id, 0] = self._reader.unused(pair.name)
        return dataclasses.replace(pair.value, name=name)

    def _after(self, pair: ReadAndAssign) -> Value:
        """Returns the output with the next value of a variable. Its name is new, as two variables may get one value."""
        name = self._reader.unused(f"{pair.name}/next")
        self._nodes.append(Node(IDENTITY, pair.assign.name, (self._names[pair.assign.id, 0],), (name,), {}))
        return _declared(name, pair.assign.inputs[0])

    def _asked(self, result: Layer) -> tuple[Place, str]:
        """Returns the output that a Result reads, and the name that the Result gives to it, or an empty name."""
        place = self._linked.sources[result.id, 0]
        layer, position = place
        names = (*result.output_names, *self._linked.layers[layer].outputs[position].names)
        return place, next((name for name in names if name and name not in self._result_names), "")

    def _output(self, result: Layer) -> Value:
        place, asked = self._asked(result)
        name, port = self._made(place, result), result.inputs[0]
        if asked and asked != name and not self._is_body:
            source, name = name, self._reader.unused(asked)
            self._nodes.append(Node(IDENTITY, result.name, (source,), (name,), {}))
        return _declared(name, port)

    def _name(self, layer: Layer, position: int, asked: str) -> None:
        names = (name for name in layer.outputs[position].names if name and name not in self._result_names)
        name = asked or next(names, "") or (layer.name if len(layer.outputs) == 1 else f"{layer.name}.{position}")
        name = self._names[layer.id, position] = self._reader.unused(name or f"{layer.type}_{layer.id}")
        if not self._is_body:
            self._reader.declared[name] = _declared(name, layer.outputs[position])

    def _constants(self, layers: Sequence[Layer], decompressions: Sequence[Layer]) -> None:
        """Reads constants. A decompressed one has the type of its Convert, and the name of the constant."""
        readers: dict[int, list[Layer]] = {}
        for layer in decompressions:
            readers.setdefault(self._linked.sources[layer.id, 0][0], []).append(layer)
        for layer in layers:
            tensor = self._tensor(layer)
            converts = readers.get(layer.id, [])
            if not (converts and self._linked.readers[layer.id, 0] == len(converts)):
                self._define(layer, tensor, layer.name)
            for convert in converts:
                subject = f"{self._reader.where}: {convert.title}"
                dtype = element_type(convert.data.get("destination_type", ""), subject).dtype
                earlier = next((c for c in converts if c.data == convert.data), convert)
                if earlier is convert:
                    self._define(convert, _converted(tensor, dtype), layer.name)
                else:
                    self._names[convert.id, 0] = self._names[earlier.id, 0]

    def _define(self, layer: Layer, tensor: Tensor, name: str) -> None:
        name = self._names[layer.id, 0] = self._reader.unused(name or f"{layer.type}_{layer.id}")
        self._initializers[name] = tensor

    def _tensor(self, layer: Layer) -> Tensor:
        subject = f"{self._reader.where}: {layer.title}"
        for name in ("element_type", "offset", "size", "shape"):
            if name not in layer.data:
                raise ModelError(f"{subject}: required attribute `{name}` is missing")
        element = element_type(layer.data["element_type"], subject)
        sizes = texts.listed(layer.data["shape"], texts.integer, f"{subject}: `shape`")
        offset, size = (texts.integer(layer.data[name], f"{subject}: `{name}`") for name in ("offset", "size"))
        return self._reader.weights.tensor(layer.name, subject, element, sizes, offset, size)

    def _node(self, layer: Layer, scope: str) -> list[Node]:
        inputs = tuple(self._source(layer, position) for position in range(len(layer.inputs)))
        read = self._linked.readers
        outputs = tuple(
            self._names[layer.id, position] if read[layer.id, position] else ""
            for position in range(len(layer.outputs))
        )
        layer_type = LayerType(layer.type, layer.version, not _EXACT.isdisjoint(layer.marks))
        node = Node(layer_type, layer.name, inputs, outputs, layer.data, scope=scope)
        if layer.type.lower() == "if" or "then_body" in layer.bodies or "else_body" in layer.bodies:
            return branches(self._reader, layer, node)
        if layer.type.lower() in ("loop", "tensoriterator") or layer.bodies:
            return iterations(self._reader, layer, node)
        return [node]


def places_of(names: Mapping[Place, str]) -> dict[str, Place]:
    """Returns the place where each value is computed, not the places that pass it on, such as an Assign."""
    return {name: place for place, name in reversed(list(names.items()))}


def is_constant(layer: Layer) -> bool:
    """Returns True for a layer whose value is in the file."""
    return layer.type.lower() in ("const", "constant")


def is_decompression(layer: Layer, linked: Linked) -> bool:
    """Returns True for a Convert of a weight that the file holds in a narrower type."""
    if layer.type.lower() != "convert" or "decompression" not in layer.marks:
        return False
    constant = linked.layers[linked.sources[layer.id, 0][0]]
    return is_constant(constant) and constant.data.get("element_type") in ("f16", "bf16")


def _declared(name: str, port: Port) -> Value:
    """Returns the type and sizes that a port states; free sizes are None."""
    dtype = port_type(port.precision)
    return Value(name, dtype, None if dtype is None else tuple(None if d < 0 else d for d in port.sizes))


def _converted(tensor: Tensor, dtype: np.dtype) -> Tensor:
    """Returns the tensor in another type; it is converted when it is read."""
    part = None if tensor.part is None else functools.partial(_read_as, dtype, tensor.part)
    return Tensor(dtype, tensor.shape, functools.partial(_read_as, dtype, tensor.load), part)


def _read_as(dtype: np.dtype, read: Callable[..., np.ndarray], *index: tuple[slice, ...]) -> np.ndarray:
    return read(*index).astype(dtype)


def _scope(name: str, modules: Modules) -> str:
    """Returns the module of a layer: `encoder.fc` for PyTorch's `__module.encoder.fc/aten::linear/MatMul`."""
    parts = [part for part in name.split("/") if part]
    return module_path([parts[0].removeprefix(_MODULE)] if name.startswith(_MODULE) else parts[:-1], modules)
