"""A model as text: small constants in place, nodes picked by a pattern."""

import numpy as np
import pytest
from graphs import build, info, node, tensor
from onnx import helper

from jaxops.errors import ArgumentError
from jaxops.onnx import load

LARGE = np.ones((3, 3), np.float32)


def net():
    return load(
        build(
            node("MatMul", ["x", "w"], ["a"], node_name="fc"),
            node("Reshape", ["a", "shape"], ["b"], node_name="flat"),
            node("Pow", ["b", "two"], ["c"], node_name="square"),
            node("Clip", ["c", "", "high"], ["d"], node_name="cut"),
            node("Gather", ["d", "many"], ["y"], node_name="pick"),
            initializers=[
                tensor(LARGE, "w"),
                tensor([0, -1], "shape"),
                tensor(np.float32(2), "two"),
                tensor(np.float32(0.5), "high"),
                tensor(np.arange(9) % 2, "many"),
            ],
        )
    )


def test_small_constants_stand_where_they_are_used():
    text = net().show()
    assert "a = MatMul(x, w)" in text
    assert "b = Reshape(a, [0, -1], allowzero=0)" in text
    assert "c = Pow(b, 2)" in text
    assert "d = Clip(c, , 0.5)" in text
    assert "Gather(d, many, axis=0)" in text


def test_an_input_with_a_default_keeps_its_name():
    proto = build(
        node("Reshape", ["x", "shape"], ["y"]),
        inputs=(info("x", ["N", 3]), info("shape", [1], 7)),
        initializers=[tensor(np.array([-1]), "shape")],
    )
    assert "Reshape(x, shape" in load(proto).show()


def test_subgraphs_see_the_constants_around_them():
    inside = helper.make_graph([node("Add", ["x", "one"], ["b"])], "then", [], [info("b", None)])
    other = helper.make_graph([node("Identity", ["x"], ["c"])], "else", [], [info("c", None)])
    proto = build(
        node("If", ["c"], ["y"], then_branch=inside, else_branch=other),
        inputs=(info("x", ["N", 3]), info("c", [], 9)),
        initializers=[tensor(np.float32(1), "one")],
    )
    assert "b = Add(x, 1)" in load(proto).show()


def test_a_pattern_and_a_number_pick_nodes():
    def nodes(**options):
        return [line.strip() for line in net().show(**options).splitlines() if " = " in line or "more" in line]

    assert len(nodes()) == 5
    assert nodes(grep="Pow|Clip") == ["c = Pow(b, 2)", "d = Clip(c, , 0.5)"]
    assert nodes(grep="^fc$") == ["a = MatMul(x, w)"]  # the name of the node
    assert nodes(head=1) == ["a = MatMul(x, w)", "… 4 more nodes"]
    assert nodes(grep="Conv") == []
    assert nodes(head=0) == ["… 5 more nodes"]
    assert "in   x: float32[N, 3]" in net().show(head=0)


def test_errors():
    with pytest.raises(ArgumentError, match=r"show: '\[' is not a regular expression: unterminated character set"):
        net().show(grep="[")
    with pytest.raises(ArgumentError, match="show: head is -1; it must be at least 0"):
        net().show(head=-1)
