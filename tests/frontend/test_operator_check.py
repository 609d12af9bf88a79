"""The table of the operators that a model asks for."""

from collections import Counter

from jaxops.frontend.operator_check import Check, Row


def test_rows_are_counted_and_sorted():
    counts = Counter([Row("Relu", "opset1", 1, 0, "function")] * 3)
    counts[Row("Swish", "opset1", None, 0, "missing", "not in opset 1")] += 2
    counts[Row("Abs", "opset1", 1, 0, "body")] += 1
    check = Check.of("net", counts)
    assert [(row.operator, row.count) for row in check] == [("Abs", 1), ("Relu", 3), ("Swish", 2)]
    assert [row.operator for row in check.missing] == ["Swish"]
    assert str(check).splitlines() == [
        "operator  domain  version  count  status",
        "Abs       opset1  1        1      supported, by the standard's function body",
        "Relu      opset1  1        3      supported",
        "Swish     opset1  -        2      missing: not in opset 1",
        "net: 3 operators, 6 nodes; 1 operator with 2 nodes is missing",
    ]


def test_nothing_is_missing():
    check = Check.of("net", Counter([Row("Relu", "opset1", 1, 0, "function")]))
    assert not check.missing
    assert str(check).endswith("net: 1 operator, 1 node; jaxops has them all")
