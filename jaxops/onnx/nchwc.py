"""Files that onnxruntime optimized for one processor: domain com.microsoft.nchwc.

Between a ReorderInput and a ReorderOutput such files hold the channels of images in blocks of 8 or 16, the last block
padded with zeros, and the filters of a Conv in a matching order. Here they become ordinary operators, with channels on
axis 1. Tensors that were in blocks get another name, since the file's own name means other numbers to onnxruntime.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.errors import ModelError
from jaxops.graph.nodes import Graph, Node, Tensor
from jaxops.host import processor_features
from jaxops.onnx.unbound import OperatorName

DOMAIN = "com.microsoft.nchwc"
_POOLS = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
# Attributes with their defaults, which onnxruntime writes although some opsets do not have them.
_NOTHING = {"storage_order": 0, "ceil_mode": 0, "count_include_pad": 0, "auto_pad": "NOTSET"}


def without_blocks(graph: Graph, opset: int) -> Graph:
    """Returns a graph, and its subgraphs, in ordinary operators; unchanged if nothing is in blocks.

    opset: of the standard. A file does not state the number of channels in a block. It follows from sizes that are not
    multiples of 16; without any, it is the number that onnxruntime chooses on this processor.
    """
    if not any(_is_blocked(node) for node in _all_nodes(graph)):
        return graph
    graphs = list(_all_graphs(graph))
    for inner in graphs:
        for node in filter(_is_blocked, inner.nodes):
            _check(inner, node)
    return _converted(graph, _block(graphs), opset)


def _is_blocked(node: Node) -> bool:
    return node.operator.domain == DOMAIN


def _check(graph: Graph, node: Node) -> None:
    """Raises ModelError for a node that onnxruntime would not write."""
    kind, problem = node.operator.name, ""
    if len(node.outputs) != 1 or not all(node.inputs[: 2 if kind == "Conv" else 1]) or not node.inputs:
        problem = "an input or its output is missing"
    elif kind == "Conv":
        filters = graph.initializers.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if filters is None or len(filters.shape) != 4 or filters.shape[0] % 8 or 0 in filters.shape:
            problem = "its filters must be an initializer of 4 axes, whose first size is a multiple of 8"
        elif type(node.attributes.get("group", 1)) is not int:
            problem = f"`group` is {node.attributes['group']!r:.40}"
    elif kind == "ReorderOutput" and not _positive(node.attributes.get("channels")):
        problem = "`channels` must be the number of channels without padding, a positive integer"
    elif kind == "Upsample":
        scales = node.attributes.get("scales")
        if not isinstance(scales, tuple) or len(scales) != 4 or not all(map(_positive, scales)):
            problem = "`scales` must be four positive integers"
    if problem:
        raise ModelError(f"node '{node.label}' ({kind} of {DOMAIN}): {problem}")


def _positive(value: Any) -> bool:
    return type(value) is int and value > 0


def _all_graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for inner in node.subgraphs.values():
            yield from _all_graphs(inner)


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for inner in _all_graphs(graph):
        yield from inner.nodes


def _block(graphs: Sequence[Graph]) -> int:
    """Returns the number of channels of a block, 8 or 16."""
    for graph in graphs:
        blocked: set[str] = set()
        channels: dict[str, int] = {}  # by tensor in blocks, where the number is known
        for node in graph.nodes:
            kind = node.operator.name if _is_blocked(node) else ""
            if kind == "Conv":
                outer, inner, *_ = graph.initializers[node.inputs[1]].shape
                channels[node.outputs[0]] = outer
                in_blocks = node.inputs[0] in blocked
                if outer % 16 or (in_blocks and inner > 1 and inner % 16):
                    return 8
                if not in_blocks and inner >= 8:  # only channels that do not fill one block stay without blocks
                    return 16
            elif kind == "ReorderOutput" and node.inputs[0] in channels:
                count, meant = channels[node.inputs[0]], node.attributes["channels"]
                possible = [size for size in (8, 16) if -(-meant // size) * size == count]
                if len(possible) == 1:
                    return possible[0]
            elif node.inputs and node.inputs[0] in channels and node.operator.name != "Concat":
                channels[node.outputs[0]] = channels[node.inputs[0]]
            if kind not in ("", "ReorderOutput") or (not kind and not blocked.isdisjoint(node.inputs)):
                blocked.update(node.outputs)
    features = processor_features()
    return 8 if "sse2" in features and "avx512f" not in features else 16


def _converted(graph: Graph, size: int, opset: int) -> Graph:
    """Returns a graph without blocks, which had `size` channels each."""
    step = _Conversion(graph, size, opset)
    for node in graph.nodes:
        step.node(node)
    return dataclasses.replace(graph, nodes=tuple(step.nodes), initializers={**graph.initializers, **step.constants})


class _Conversion:
    def __init__(self, graph: Graph, size: int, opset: int) -> None:
        self.graph, self.size, self.opset = graph, size, opset
        self.nodes: list[Node] = []
        self.constants: dict[str, Tensor] = {}
        self.renamed: dict[str, str] = {}  # tensor in blocks → its new name
        self.taken = set(graph.defined)

    def node(self, node: Node) -> None:
        """Adds the ordinary nodes that do the work of a node."""
        inner = {key: _converted(g, self.size, self.opset) for key, g in node.subgraphs.items()}
        inputs = tuple(self.renamed.get(name, name) for name in node.inputs)
        outputs, name = node.outputs, node.operator.name
        ends = _is_blocked(node) and name == "ReorderOutput"
        if not ends and (_is_blocked(node) or not self.renamed.keys().isdisjoint(node.inputs)):
            self.renamed |= {output: self.name(f"{output} (NCHW)") for output in outputs if output}
            outputs = tuple(self.renamed.get(output, output) for output in outputs)
        renamed = dataclasses.replace(
            node, inputs=inputs, outputs=outputs, attributes={**node.attributes, **inner} if inner else node.attributes
        )
        if not _is_blocked(node):
            self.nodes.append(renamed)
        elif name == "Conv":
            self.convolution(node, renamed)
        elif name in _POOLS:
            self.add(renamed, name, inputs, outputs, _said(node.attributes))
        elif name == "ReorderInput":
            self.reorder_input(renamed)
        elif name == "ReorderOutput":
            self.reorder_output(renamed)
        elif name == "Upsample":
            self.upsample(renamed)
        else:
            self.nodes.append(renamed)  # unknown here: binding reports it as missing

    def add(
        self,
        node: Node,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        domain: str = "",
    ) -> str:
        """Adds an ordinary node in place of another; returns the name of its output. outputs: None for a new name."""
        targets = (self.name(f"{node.outputs[0]}/{op}"),) if outputs is None else tuple(outputs)
        self.nodes.append(
            dataclasses.replace(
                node,
                operator=OperatorName(op, domain),
                name=node.name if outputs else "",
                inputs=tuple(inputs),
                outputs=targets,
                attributes=dict(attributes or {}),
            )
        )
        return targets[0]

    def name(self, base: str) -> str:
        """Returns a name that is not taken yet."""
        name, count = base, 1
        while name in self.taken:
            name, count = f"{base}_{count + 1}", count + 1
        self.taken.add(name)
        return name

    def constant(self, node: Node, value: Any) -> str:
        """Adds a constant; returns its name."""
        array = np.asarray(value)
        name = self.name(f"{node.outputs[0]}/constant")
        self.constants[name] = Tensor(array.dtype, array.shape, functools.partial(np.asarray, array))
        return name

    def convolution(self, node: Node, renamed: Node) -> None:
        """Adds a Conv, or a FusedConv, which adds another tensor to the result and then applies an activation."""
        weights, size = self.graph.initializers[node.inputs[1]], self.size
        outer, inner, *window = weights.shape
        group = node.attributes.get("group", 1)
        in_blocks = node.inputs[0] in self.renamed and not (inner == 1 and group == outer)
        # The order in the file is (O/B, I/B, …, B of I, B of O), without blocks of I for other inputs.
        if in_blocks:
            parts, order = (outer // size, inner // size, *window, size, size), (0, 5, 1, 4, 2, 3)
        else:
            parts, order = (outer // size, inner, *window, size), (0, 4, 1, 2, 3)
        split = self.add(renamed, "Reshape", [renamed.inputs[1], self.constant(renamed, parts)])
        turned = self.add(renamed, "Transpose", [split], None, {"perm": order})
        filters = self.add(renamed, "Reshape", [turned, self.constant(renamed, weights.shape)])
        inputs = [renamed.inputs[0], filters, *renamed.inputs[2:]]
        attributes = _said(node.attributes)
        fused = "activation" in attributes or len(renamed.inputs) > 3
        name, domain = ("FusedConv", "com.microsoft") if fused else ("Conv", "")
        self.add(renamed, name, inputs, renamed.outputs, attributes, domain)

    def reorder_input(self, node: Node) -> None:
        """Moves the channels to axis 1 and pads them to whole blocks."""
        x, size = node.inputs[0], self.size
        if node.attributes.get("channels_last", 0):
            x = self.add(node, "Transpose", [x], None, {"perm": (0, 3, 1, 2)})
        sizes = self.add(node, "Shape", [x])
        count = self.add(node, "Gather", [sizes, self.constant(node, [1])])
        more = self.add(node, "Add", [count, self.constant(node, size - 1)])
        blocks = self.add(node, "Div", [more, self.constant(node, size)])
        padded = self.add(node, "Mul", [blocks, self.constant(node, size)])
        missing = self.add(node, "Sub", [padded, count])
        pads = self.add(node, "Mul", [missing, self.constant(node, [0, 0, 0, 0, 0, 1, 0, 0])])
        self.add(node, "Pad", [x, pads], node.outputs, domain="com.microsoft")

    def reorder_output(self, node: Node) -> None:
        """Drops the padding channels, and moves the channels to the last axis if the node asks for it."""
        last, ends = node.attributes.get("channels_last", 0), node.attributes["channels"]
        bounds = [self.constant(node, np.array([value], np.int64)) for value in (0, ends, 1)]
        outputs = None if last else node.outputs
        x = self.add(node, "DynamicSlice", [node.inputs[0], *bounds], outputs, domain="com.microsoft")
        if last:
            self.add(node, "Transpose", [x], node.outputs, {"perm": (0, 2, 3, 1)})

    def upsample(self, node: Node) -> None:
        """Enlarges images by Resize, or before opset 11 by an operator without the choice of coordinates."""
        scales, mode = np.asarray(node.attributes["scales"], np.float32), node.attributes.get("mode", "nearest")
        if self.opset >= 11:
            coordinates = node.attributes.get("coordinate_transformation_mode", "asymmetric")
            attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
            self.add(node, "Resize", [node.inputs[0], "", self.constant(node, scales)], node.outputs, attributes)
        elif self.opset >= 9:
            name = "Resize" if self.opset == 10 else "Upsample"
            self.add(node, name, [node.inputs[0], self.constant(node, scales)], node.outputs, {"mode": mode})
        else:
            attributes = {"mode": mode, "scales": tuple(scales.tolist())}
            self.add(node, "Upsample", [node.inputs[0]], node.outputs, attributes)


def _said(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes that differ from their defaults."""
    stated = {name: value for name, value in attributes.items() if _NOTHING.get(name) != value}
    if all(step == 1 for step in stated.get("dilations", ())):
        stated.pop("dilations", None)
    return stated
