"""The roles of parameters for tensor parallelism, read from the graph: who reads a parameter, and what becomes of it.

Products come in pairs. The first product splits its result by features, the last one contracts split features, and
between the two stands only what works on each feature or each head by itself: activations, gates, attention. So one
sum over the devices is enough for a pair. `split_features` follows the features from the one to the other.

A role does not depend on a mesh, nor on names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jaxops.graph.nodes import Graph, Node
from jaxops.graph.split_features import follow
from jaxops.graph.weight_operands import EXPERTS, FILTER, FIRST, LAST, Reading

# The roles, from the one that decides to the ones that give way, if a parameter has several. The head of a language
# model may be the table of its words: both are split by word.
TABLE, FUSED, SINGLE, NORM, BIAS, OTHER = "table", "fused", "single", "norm", "bias", "other"
ADAPTER = "adapter"
_ORDER = (TABLE, EXPERTS, FUSED, LAST, FIRST, SINGLE, FILTER, NORM, BIAS, OTHER)


@dataclass(frozen=True)
class Role:
    """The role of a parameter.

    kind: one of
    - table: rows of it are looked up
    - first, last: the weight of the first and the last product of a pair
    - single: the weight of a product whose whole result is needed at once
    - fused: the weight of a product whose result is cut into queries, keys and values, or a gate and its operand
    - experts: weights of experts, one after the other along axis 0
    - filter: of a convolution
    - adapter: one of the two matrices that add to the product of a weight (`Adapter`)
    - norm, bias: scales, shifts and sums of features
    - other: none of these
    by_output: the axis of the features that a product makes, or of a table's rows; None if there is none. by_input: the
    axis of the features that it contracts, or of a table's features. heads: the number of heads that the features of a
    product are cut into; 0 if unknown. of: the weight that the parameter belongs to as a scale, a zero point or an
    adapter; or "".
    """

    kind: str
    by_output: int | None = None
    by_input: int | None = None
    heads: int = 0
    of: str = ""


def parameter_roles(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Role]:
    """Returns the role of each parameter of a prepared graph, in subgraphs and functions too.

    shapes: of the parameters.
    """
    roles = dict.fromkeys(shapes, Role(OTHER))
    for reading in follow(graph, shapes).readings:
        role = _role(reading)
        known = roles[reading.parameter]
        if _ORDER.index(role.kind) < _ORDER.index(known.kind):
            roles[reading.parameter] = role
        elif role.kind == known.kind and 0 < role.heads < known.heads:
            roles[reading.parameter] = replace(known, heads=role.heads)
    for adapter in graph.adapters:
        roles[adapter.a] = Role(ADAPTER, by_input=1, of=adapter.base)
        roles[adapter.b] = Role(ADAPTER, by_output=0, of=adapter.base)
    return roles


def _role(reading: Reading) -> Role:
    product = reading.product
    if product is None:
        return Role(reading.kind, reading.by_output, reading.by_input, of=reading.of)
    kind = product.kind
    if kind == FIRST:
        kind = FUSED if product.cut else SINGLE if product.whole else FIRST
    return Role(kind, reading.by_output, reading.by_input, product.heads, reading.of)


def with_whole_features(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """Returns a graph whose nodes say which of their results no mesh should split by features (`Node.whole_axis`).

    These are the values between pairs of products: what a lookup, a last product or a single one gives. A compiler
    that splits one of them splits all that is added to it, and needs sums in each normalization.
    """
    axes = follow(graph, shapes).whole_axes

    def rewritten(graph: Graph) -> Graph:
        if graph not in done:
            done[graph] = replace(graph, nodes=tuple(map(node_of, graph.nodes)))
        return done[graph]

    def node_of(node: Node) -> Node:
        inner = node.with_nested(rewritten)
        return replace(inner, whole_axis=axes[node]) if node in axes else inner

    done: dict[Graph, Graph] = {}
    return rewritten(graph)
