"""Nodes for which the text of the standard and its test suite disagree: `load` warns of them."""

import warnings
from collections.abc import Iterator

from jaxops import ops
from jaxops.graph.nodes import Graph, Node
from jaxops.shapes.nn.unpooling import unpooled
from jaxops.shown_text import clean


def warn_of_disputed(graph: Graph) -> None:
    """Warns once of the MaxUnpool nodes in a bound graph whose `output_shape` may exceed the size inferred for them."""
    labels = [node.label for inner in _graphs(graph, set()) for node in inner.nodes if _is_disputed(inner, node)]
    if labels:
        warnings.warn(
            f"MaxUnpool '{clean(labels[0])}'{f' and {len(labels) - 1} more' if len(labels) > 1 else ''}: "
            "if `output_shape` is larger than the shape inferred from the input, indices are positions in the inferred "
            "shape, as in the test suite of the standard; in its text and in onnxruntime they are positions in "
            "`output_shape`",
            stacklevel=7,
        )


def _graphs(graph: Graph, seen: set[Graph]) -> Iterator[Graph]:
    if graph in seen:
        return
    seen.add(graph)
    yield graph
    for inner in graph.nested:
        yield from _graphs(inner, seen)


def _is_disputed(graph: Graph, node: Node) -> bool:
    if node.operator.function is not ops.max_unpool or len(node.inputs) < 3 or not node.inputs[2]:
        return False
    sizes = next((value.shape for value in graph.inputs if value.name == node.inputs[0]), None)
    output_shape = graph.initializers.get(node.inputs[2])
    if output_shape is None or not sizes or not all(isinstance(size, int) for size in sizes):
        return True  # the sizes are not known yet
    output_sizes = tuple(output_shape.load().reshape(-1).tolist())
    options = (node.attributes.get(name) for name in ("kernel_shape", "strides", "pads"))
    kernel, strides, pads = (None if value is None else tuple(value) for value in options)
    return output_sizes != (*sizes[:2], *unpooled(sizes[2:], kernel or (), strides, pads))
