"""Sizes may have any text as a name: exports, buckets, plots and messages work under the names of the file."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import jaxops.onnx
from jaxops.errors import ArgumentError, SizeError
from jaxops.graph.declared_sizes import identifiers

# Keywords, operations of symbolic sizes, one character, no letter, expressions that are none.
NAMES = (
    *("class", "in", "lambda", "None", "True", "floor", "max", "mod", "floordiv", "min", "non_negative", "批", "*"),
    *(
        "λ",
        "é",
        "ﬁ",
        "_",
        "__",
        "-",
        "(",
        "a b",
        "a+b",
        "3x",
        "7",
        "s <= 3",
        "...",
        "ceil(a)",
        "\n",
        "a#b",
        "[x]",
        "\0",
    ),
    *("(" * 500 + "a", "-" * 3000 + "a", "", "x'y", "{批}"),
)


def square(*names):
    """y = x + x over axes with these names, and a last one of 4."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [*names, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_identifiers_are_different():
    symbols = identifiers(NAMES)
    assert len(set(symbols.values())) == len(NAMES)
    assert all(symbol.isidentifier() and symbol.isascii() for symbol in symbols.values())
    assert symbols["class"] == "class_"


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_name(name):
    loaded = jaxops.onnx.load(square(name))
    key = loaded.inputs[0].shape[0] or "x_0"
    x = np.ones((3, 4), np.float32)
    program = loaded.export()
    assert (program.call({}, x) == 2).all()
    assert program.call({}, x[:1]).shape == (1, 4)
    assert str(loaded.export(sizes={key: 3}).in_avals[0]) == "float32[3,4]"
    limited = loaded.export(sizes={key: "n <= 7"})
    assert str(limited.in_avals[0]) == "float32[n,4]"
    assert jaxops.onnx.load(square(name), sizes={key: 3}).inputs[0].shape == (3, 4)
    rounded = jaxops.onnx.load(square(name), buckets={key: 8})
    assert (np.asarray(rounded(x)) == 2).all()
    assert loaded.plot() is not None


def test_names_that_differ_stay_two_sizes():
    """Both become the same identifier at first."""
    loaded = jaxops.onnx.load(square("批", "*"))
    assert loaded.export().call({}, np.ones((2, 5, 4), np.float32)).shape == (2, 5, 4)
    fixed = loaded.export(sizes={"批": 3})
    assert str(fixed.in_avals[0]).startswith("float32[3,")
    limited = loaded.export(sizes={"批": "批 <= 3"})  # the name may stand in its own limit
    with pytest.raises(ValueError, match="<= 3"):
        limited.call({}, np.ones((4, 5, 4), np.float32))


def test_a_message_has_the_names_of_the_file():
    with pytest.raises(SizeError) as caught:
        jaxops.onnx.load(halved()).export()
    text = str(caught.value)
    assert "names   d_ is '批', class_ is 'class'" in text
    assert "sizes={'class': 1}" in text


def halved():
    """x + MaxPool(x): of one length for one element only."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["批", 1, "class"]) for name in "xy")
    pool = helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2], strides=[2], ceil_mode=1)
    graph = helper.make_graph([pool, helper.make_node("Add", ["x", "p"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_word_of_python_is_no_name_in_a_program():
    with pytest.raises(ArgumentError, match=r"'batch' is 'class <= 3'; 'class' is a word of Python"):
        jaxops.onnx.load(square("batch")).export(sizes={"batch": "class <= 3"})
