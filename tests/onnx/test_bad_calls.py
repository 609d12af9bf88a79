"""Bad calls of a good model: inputs, parameters, and what the nodes say of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, function, model, node, tensor

from jaxops.errors import ArgumentError, DTypeError, JaxopsError, ShapeError, SignatureError, StaticError
from jaxops.onnx import load

X = np.ones((2, 3), np.float32)


ADD = load(build(node("Add", ["x", "w"], ["y"], node_name="add"), initializers=[tensor(np.float32([1, 2, 3]))]))
EXPECTS = r"the model expects x: float32\[N, 3\]"
CALLS = [
    ((), {}, SignatureError, r"input 'x' is missing; the inputs are \['x'\]"),
    ((X, X), {}, SignatureError, r"the model has 1 input \['x'\], but got 2"),
    ((), {"q": X}, SignatureError, r"the model has no input 'q'; its inputs are \['x'\]"),
    ((X,), {"x": X}, SignatureError, "input 'x' was given twice, by position and by name"),
    ((X,), {"w": X}, SignatureError, "the model has no input 'w'"),
    ((None,), {}, SignatureError, f"input 'x' is None; {EXPECTS}"),
    ((X[0],), {}, ShapeError, rf"input 'x' has shape \(3,\), but {EXPECTS}"),
    ((X[:, :2],), {}, ShapeError, rf"input 'x' has shape \(2, 2\), but {EXPECTS}"),
    ((X.astype(np.float64),), {}, DTypeError, rf"(?s)input 'x' is float64\[2,3\].*, but {EXPECTS}"),
    ((X.astype(np.int32),), {}, DTypeError, rf"(?s)input 'x' is int32\[2,3\].*, but {EXPECTS}"),
    ((X > 0,), {}, DTypeError, r"input 'x' is bool\[2,3\]"),
    ((jnp.ones((2, 3), jnp.float16),), {}, DTypeError, rf"input 'x' is float16\[2,3\], but {EXPECTS}"),
    (([[1, 2, 3], [4]],), {}, ArgumentError, rf"input 'x' is \[\[1, 2, 3\], \[4\]\], but {EXPECTS}: setting an array"),
    (("a",), {}, ArgumentError, f"input 'x' is 'a', but {EXPECTS}: could not convert"),
]


@pytest.mark.parametrize(("inputs", "named", "error", "text"), CALLS)
def test_calls(inputs, named, error, text):
    for call in (ADD, lambda *a, **k: ADD.apply(ADD.params, *a, **k)):
        with pytest.raises(error, match=text):
            call(*inputs, **named)


def test_python_numbers_do_not_change_their_value_on_the_way_in():
    integers = load(model("main (uint8[N] x) => (uint8[N] y) { y = Identity(x) }"))
    assert integers([1, 255]).tolist() == [1, 255]
    for bad in ([0.5], [256], [-1], [[1], [2, 3]]):
        with pytest.raises(ArgumentError, match=r"but the model expects x: uint8\[N\]"):
            integers(bad)


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({}, SignatureError, "params: 'w' is missing; give all 1 of model.params"),
        ({"w": np.float32([1, 2, 3]), "v": 1}, SignatureError, "params: the model has no 'v'"),
        ({"w": np.int32([1, 2, 3])}, DTypeError, "params: 'w' is int32, but the model has float32"),
        ({"w": np.float32([1, 2])}, ShapeError, r"params: 'w' has shape \(2,\), but the model has \(3,\)"),
    ],
)
def test_params(params, error, text):
    with pytest.raises(error, match=text):
        ADD.apply(params, X)


def test_an_error_while_running_names_node_opset_operands_and_shapes():
    bad = load(build(node("Reshape", ["x", "s"], ["y"], node_name="r"), initializers=[tensor([4, 2], "s")]))
    with pytest.raises(ShapeError, match=r"reshape: `shape` \(4, 2\) does not fit data of \(2, 3\)") as raised:
        bad(X)
    assert raised.value.__notes__[0].splitlines() == [
        "in node 'r' (Reshape, opset 18)",
        "  data    'x' float32[2,3]",
        "  shape   's' int64[2] [4 2]",
    ]


def test_a_long_name_of_an_operand_stands_apart_from_its_value():
    with pytest.raises(ShapeError) as raised:
        load(build(node("GatherElements", ["x", "x_index"], ["y"]), initializers=[tensor([0], "x_index")]))(X)
    assert "  indices 'x_index' int64[1] [0]" in raised.value.__notes__[0]
    with pytest.raises(DTypeError) as raised:
        load(build(node("Dropout", ["x", "r", "t"], ["y"]), initializers=[tensor(1, "r"), tensor(True, "t")]))(X)
    assert "  training_mode 't' bool[] True" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("op", "attributes", "error", "text"),
    [
        ("Cast", {"to": 77}, ArgumentError, "Cast-13: `to` is 77, which is not an element type of the standard"),
        ("Cast", {"to": 17}, DTypeError, "Cast-13: output `output` would be float8e4m3fn, as `to` says"),
        ("AveragePool", {"kernel_shape": [1], "auto_pad": "FOO"}, ArgumentError, "`auto_pad` is 'FOO'; it must be one"),
        ("EyeLike", {"dtype": 8}, DTypeError, "output `output` would be string, as `dtype` says"),
    ],
)
def test_a_bad_attribute_is_said_at_load(op, attributes, error, text):
    with pytest.raises(error, match=text) as raised:
        load(build(node(op, ["x"], ["y"], node_name="bad", **attributes)))
    assert f"in node 'bad' ({op}, opset 18)" in raised.value.__notes__


def test_an_error_in_a_function_names_both_nodes():
    flat = function("F", ["a"], node("Flatten", ["a"], ["b"], axis=9, node_name="inner"))
    bad = build(
        node("F", ["x"], ["y"], domain="loc", node_name="outer"), functions=[flat], opsets=(("", 18), ("loc", 1))
    )
    with pytest.raises(JaxopsError, match="`axis` is 9, but the operand has 2 axes") as raised:
        load(bad)(X)
    notes = "\n".join(raised.value.__notes__)
    assert "in node 'inner' (Flatten, opset 18)" in notes
    assert "in node 'outer'" in notes


def test_a_tracer_where_a_static_input_is_needed():
    static = load(model("main (float[N,3] x, int64[K] s) => (float[M] y) { t = Identity(s) y = Reshape(x, t) }"))
    text = r"input 's' must be known while tracing, but int32\[1\] is traced\n"
    text += "  needed  Identity 't' → Reshape 'y' `shape`\n  hint"
    for call in (static, lambda x, s: static.apply(static.params, x, s)):
        with pytest.raises(StaticError, match=text):
            jax.jit(call)(X, np.array([6]))
    with pytest.raises(DTypeError, match=r"input 's' is float32\[1\] \[6.\], .* s: int64\[K\]\n.*x.astype\(np.int64\)"):
        static(X, np.float32([6]))


def test_a_64_bit_input_that_32_bits_cannot_hold():
    wide = load(model("main (int64[N] x) => (int64[N] y) { y = Add(x, x) }"), x64=False)
    with pytest.raises(OverflowError, match="int64 value 4294967296 does not fit int32"):
        wide(np.int64([2**32]))
    with jax.enable_x64(True):
        assert wide(np.int64([2**32])).tolist() == [2**33]
