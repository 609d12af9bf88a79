"""Nodes in order, whatever wrote them: no file format is needed to say what a cycle is."""

import dataclasses

import pytest

from jaxops.errors import ModelError, SignatureError
from jaxops.graph.inline_functions import inline_deep_calls
from jaxops.graph.node_order import check_subgraph, in_order
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.signature import Subgraph


@dataclasses.dataclass(frozen=True)
class Named:
    """All that these functions ask of an operator."""

    name: str
    subgraphs: dict = dataclasses.field(default_factory=dict)


def node(text, operator="Op", **attributes):
    """`b = a, c` as a node that makes b from a and c."""
    outputs, inputs = (tuple(part.replace(" ", "").split(",")) for part in text.split("="))
    return Node(Named(operator), f"make {outputs[0]}", inputs, outputs, attributes)


def graph(*nodes, inputs="x", outputs="y"):
    values = (tuple(Value(name, None, None) for name in names.split()) for names in (inputs, outputs))
    return Graph("g", *values, nodes, {})


def labels(found):
    return [node.label for node in found.nodes]


def test_nodes_come_after_those_that_they_read_else_as_in_the_file():
    found = in_order(graph(node("y = b, c"), node("c = x"), node("b = x"), node("d = x")))
    assert labels(found) == ["make c", "make b", "make y", "make d"]


def test_what_is_in_order_is_not_made_anew():
    given = graph(node("b = x"), node("y = b"))
    assert in_order(given) is given


def test_a_subgraph_counts_with_what_it_captures_and_is_put_in_order_too():
    branch = graph(node("z = inside"), node("inside = b"), inputs="", outputs="z")
    found = in_order(graph(node("y = x", branch=branch), node("b = x")))
    assert labels(found) == ["make b", "make y"]
    assert labels(found.nodes[1].attributes["branch"]) == ["make inside", "make z"]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            [node("a = b"), node("b = a"), node("y = x")],
            r"the graph has a cycle: node 'make a' \(Op\) reads 'b'",
        ),
        ([node("y = x, q")], r"node 'make y' \(Op\) reads 'q', which nothing defines"),
        ([node("y = x"), node("y = x")], r"node 'make y' \(Op\) defines 'y' a second time"),
        ([node("a = x")], "no node computes output 'y' of the graph"),
    ],
)
def test_what_no_order_mends(nodes, text):
    with pytest.raises(ModelError, match=text):
        in_order(graph(*nodes))


def test_the_graph_around_may_define_a_name():
    in_order(graph(node("y = x, q")), frozenset(["q"]))


@pytest.mark.parametrize(
    ("flow", "inputs", "error", "text"),
    [
        (Subgraph(first=1), "x", None, ""),
        (Subgraph(first=1), "", ModelError, "has 0 inputs, but the node hands over 1: none"),
        (Subgraph(), "x", ModelError, "has 1 input, but the node hands over 0: x"),
        (Subgraph(first=1, not_carried="count"), "x", SignatureError, "`count` is 7; of 2 inputs, 1 to 2 may be"),
        (Subgraph(several=True), "x x x", None, ""),
    ],
)
def test_a_subgraph_takes_what_its_node_hands_over(flow, inputs, error, text):
    body = graph(node("y = x"), inputs=inputs)
    around = dataclasses.replace(node("z = c, x", body=body, count=7), operator=Named("Do", {"body": flow}))
    if error is None:
        check_subgraph(around, "body", body)
    else:
        with pytest.raises(error, match=text):
            check_subgraph(around, "body", body)


def deep(levels):
    """A function that calls a function that calls …, each of which adds a node, and gives its input back too."""
    body = graph(node("y = x"), outputs="y x")
    for level in range(levels):
        call = dataclasses.replace(node("a, b = x", f"F{level}"), body=body)
        body = graph(call, node("y = a, b"), outputs="y x")
    return body


def test_calls_up_to_some_depth_stay():
    body = deep(8)
    assert inline_deep_calls("F", body, Named("Same")) is body


def test_deeper_calls_become_one_body_of_nodes_with_names_of_their_own():
    found = inline_deep_calls("F", deep(40), Named("Same"))
    assert found.depth == 1
    assert [n.operator.name for n in found.nodes].count("Op") == 41
    assert [n.operator.name for n in found.nodes].count("Same") == 40
    made = [name for n in found.nodes for name in n.outputs]
    assert len(made) == len(set(made))
    assert in_order(found) is found
