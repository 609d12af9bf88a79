"""Exports of models whose files give one name to two sizes, or two names to sizes that are combined."""

import logging

import jax
import numpy as np
import onnxruntime
import pytest
from symbolic_graphs import inputs, model

import jaxops.onnx
from jaxops.errors import SizeError
from jaxops.tools.export.limits.solver import two_uses

# Samples and frames of one name, as in an encoder of audio: one frame for each 384 samples.
FRAMES = """n = Shape<start=1,end=2>(samples)  more = Constant<value_ints=[383]>()  hop = Constant<value_ints=[384]>()
    padded = Add(n, more)  count = Div(padded, hop)  zeros = ConstantOfShape(count)
    axes = Constant<value_ints=[0,2]>()  rows = Unsqueeze(zeros, axes)  y = Add(frames, rows)"""
AUDIO = model("(float[b,length] samples, float[b,length,8] frames) => (float[b,length,8] y)", FRAMES)
# Where the batch is broadcast against a sequence of the same input.
CONFUSED = model(
    "(int64[batch,target] ids, float[9,4] table) => (float[batch,target,4] y)",
    """words = Gather(table, ids)  n = Shape<start=0,end=1>(ids)  m = Shape<start=1,end=2>(ids)
    zeros = ConstantOfShape(n)  ones = ConstantOfShape<value=float[1]{1}>(m)  sums = Add(zeros, ones)
    axes = Constant<value_ints=[1]>()  column = Unsqueeze(sums, axes)  y = Add(words, column)""",
)


def shapes(program):
    return [str(aval) for aval in program.in_avals]


def agrees(proto, program, *sizes):
    """The program gives what onnxruntime gives, for inputs of each of these sizes."""
    loaded, session = jaxops.onnx.load(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    for numbers in sizes:
        values = inputs(loaded, numbers)
        (want,) = session.run(None, {v.name: x for v, x in zip(loaded.inputs, values, strict=True)})
        got = program.call({}, *values)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_name_with_two_uses_is_no_number():
    with pytest.raises(SizeError) as caught:
        jaxops.onnx.load(AUDIO).export()
    text = str(caught.value)
    assert "floordiv(length + 383, 384) and length must be equal" in text
    assert "fix sizes for which length == floordiv(length + 383, 384), such as sizes={'length': 1}" in text
    assert "axis 1 of 'samples' and axis 1 of 'frames': sizes={'frames_1': 'frames_1'}" in text
    assert any("in node 'y' (Add" in note for note in caught.value.__notes__)


def test_both_ways_that_the_hint_names():
    loaded = jaxops.onnx.load(AUDIO)
    assert shapes(loaded.export(sizes={"length": 1})) == ["float32[b,1]", "float32[b,1,8]"]
    program = loaded.export(sizes={"frames_1": "frames_1"})
    assert shapes(program) == ["float32[b,length]", "float32[b,floordiv(length + 383, 384),8]"]
    x, y = np.ones((2, 1000), np.float32), np.ones((2, 3, 8), np.float32)
    assert (program.call({}, x, y) == y).all()
    with pytest.raises(ValueError, match="inconsistency between dimension size"):
        program.call({}, x, y[:, :2])


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("c = Conv<strides=[2],pads=[1,1]>(x, w)  y = Add(x, c)", "such as sizes={'t': 1}"),  # t == ceil(t / 2)
        ("c = Conv<strides=[2],pads=[1,2]>(x, w)  y = Mul(c, x)", "such as sizes={'t': 1}"),  # t == 1 or t == 2
        ("c = MaxPool<kernel_shape=[2],strides=[2],ceil_mode=1>(x)  y = Max(x, c)", "such as sizes={'t': 1}"),
    ],
)
def test_an_operator_that_halves_a_size(body, match):
    loaded = jaxops.onnx.load(model("(float[b,1,t] x, float[1,1,3] w) => (float[b,1,t] y)", body))
    with pytest.raises(SizeError, match=r"must be equal") as caught:
        loaded.export()
    assert match in str(caught.value)
    assert "apart" not in str(caught.value)  # one use in the inputs


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ("floordiv(t + 383, 384) == t", {"t": 1}),
        ("8*b*t == 8*b*floordiv(t + 1, 2)", {"t": 1}),
        ("floordiv(t, 2) + 1 == t", {"t": 1}),
        ("t == 7", {}),  # a number of the file
        ("7*b == b*t", {}),
        ("floordiv(t, 8) - 1 == 4", {}),
        ("floordiv(h, 8)^2 + floordiv(h, 16)^2 == 80", {}),
        ("t - floordiv(t, 2) == 5", {}),
        ("b*t - b*floordiv(t, 2) == 5*b", {}),
        ("min(t, 63) == t", {}),
        ("2*floordiv(t, 2) == t", {}),  # any even number
        ("t - 2 == t", {}),
        ("a == b", {}),
        ("t >= 2", {}),
    ],
)
def test_two_uses_of_a_symbol(needs, expected):
    assert two_uses(needs) == expected


def test_what_the_file_fixes_is_said(caplog):
    """A state of batch 1."""
    proto = model(
        "(float[t,b,3] x, float[1,4,3] w, float[1,4,4] r) => (float[t,1,b,4] y)",
        "s = Constant<value_ints=[1,1,4]>()  h = ConstantOfShape(s)  y = RNN<hidden_size=4>(x, w, r, , , h)",
    )
    with caplog.at_level(logging.INFO, "jaxops"):
        program = jaxops.onnx.load(proto).export()
    assert "float32[t,1,3]" in shapes(program)
    assert "export: the model fixes the size 'b' to 1" in caplog.messages
    caplog.clear()
    with caplog.at_level(logging.INFO, "jaxops"):
        jaxops.onnx.load(proto).export(sizes={"b": 1})
    assert not any("fixes" in text for text in caplog.messages)


ROWS_OF_FOUR = "(float[b,k] x) => (float[n,4] y)", "s = Constant<value_ints=[-1,4]>()  y = Reshape(x, s)"


@pytest.mark.parametrize("sizes", [None, {"b": "b, mod(b*k, 4) == 0"}], ids=["by itself", "asked for"])
def test_a_product_must_be_a_multiple(sizes, caplog):
    with caplog.at_level(logging.INFO, "jaxops"):
        program = jaxops.onnx.load(model(*ROWS_OF_FOUR)).export(sizes)
    assert ("export: b*k must be a multiple of 4" in caplog.messages) == (sizes is None)
    again = jax.export.deserialize(program.serialize())
    for b, k in ((4, 1), (2, 2), (1, 4), (6, 2), (8, 3)):
        x = np.arange(b * k, dtype=np.float32).reshape(b, k)
        np.testing.assert_array_equal(program.call({}, x), x.reshape(-1, 4))
        np.testing.assert_array_equal(again.call({}, x), x.reshape(-1, 4))
    with pytest.raises(ValueError, match=r"constraint 4\*floordiv\(b\*k, 4\) == b\*k"):
        program.call({}, np.ones((3, 1), np.float32))


FOURS = "s = Constant<value_ints=[-1,4]>()  r = Reshape(x, s)  "


@pytest.mark.parametrize(
    ("head", "body", "said", "good", "bad"),
    [
        (
            "(float[b,k,c] x) => (float[b,n,4] y)",
            "s = Constant<value_ints=[0,-1,4]>()  y = Reshape(x, s)",
            "c*k must be a multiple of 4",
            [(3, 2, 2), (1, 4, 1), (2, 1, 4)],
            (4, 1, 1),
        ),
        (
            "(float[b,k,6] x) => (float[n,4] y)",
            FOURS + "y = Relu(r)",
            "b*k must be a multiple of 2",
            [(2, 1, 6), (1, 2, 6)],
            (3, 1, 6),
        ),
        (
            "(float[b,k] x) => (float[b,k] y)",
            FOURS + "h = Shape(x)  y = Reshape(r, h)",
            "b*k must be a multiple of 4",
            [(2, 2), (1, 4)],
            (3, 1),
        ),
        (  # one quotient twice in a size, of which JAX's own division does not terminate
            "(float[b,k] x) => (float[n,m] y)",
            FOURS
            + """t = Transpose(r)  g = MatMul(r, t)  f = Constant<value_ints=[4,1,1]>()  e = Expand(g, f)
            q = Transpose<perm=[1,2,0]>(e)  u = Constant<value_ints=[0,-1]>()  y = Reshape(q, u)""",
            "b*k must be a multiple of 4",
            [(2, 2), (6, 2)],
            (3, 1),
        ),
    ],
)
def test_products_that_must_be_multiples(head, body, said, good, bad, caplog):
    loaded = jaxops.onnx.load(model(head, body))
    with caplog.at_level(logging.INFO, "jaxops"):
        program = loaded.export()
    assert f"export: {said}" in caplog.messages
    for shape in good:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_allclose(program.call({}, x), loaded(x), rtol=1e-6)
    with pytest.raises(ValueError, match="constraint"):
        program.call({}, np.ones(bad, np.float32))


def test_a_size_is_a_multiple_where_its_product_with_another_is_not_enough(caplog):
    """A second input has a row for each four numbers: JAX has no name for a quotient as the size of an input."""
    head = "(float[b,k] x, float[n,4] w) => (float[n,4] y)"
    loaded = jaxops.onnx.load(model(head, FOURS + "y = Add(r, w)"))
    with caplog.at_level(logging.INFO, "jaxops"):
        program = loaded.export()
    assert "export: the size 'b' must be a multiple of 4" in caplog.messages
    assert not any("b*k must be" in text for text in caplog.messages)
    x, w = np.arange(24, dtype=np.float32).reshape(8, 3), np.ones((6, 4), np.float32)
    np.testing.assert_array_equal(program.call({}, x, w), loaded(x, w))


def test_a_batch_that_meets_another_axis_is_one(caplog):
    """Not a batch of as many samples as the sequence has steps: the file names two sizes."""
    with caplog.at_level(logging.INFO, "jaxops"):
        program = jaxops.onnx.load(CONFUSED).export()
    assert shapes(program)[0] == "int32[1,target]"
    assert str(program.out_avals[0]) == "float32[1,target,4]"
    assert "export: the model fixes the size 'batch' to 1" in caplog.messages
    agrees(CONFUSED, program, {"batch": 1, "target": 9}, {"batch": 1, "target": 1})
    program = jaxops.onnx.load(CONFUSED).export(sizes={"batch": "target"})
    assert shapes(program)[0] == "int32[target,target]"
    agrees(CONFUSED, program, {"batch": 3, "target": 3})


def test_a_batch_that_cannot_be_one_is_the_other_size():
    """Behind the broadcast, an operator fails for a batch of 1, as the caller asks for two columns or more."""
    head = "(float[n,m] x) => (float[i,j] y)"
    body = """one = Constant<value_ints=[1]>()  zero = Constant<value_ints=[0]>()  r = ReduceSum<keepdims=0>(x, one)
        c = ReduceSum<keepdims=0>(x, zero)  sums = Add(r, c)  n = Shape<start=0,end=1>(x)  e = Reshape(sums, n)
        y = Add(x, e)"""
    proto = model(head, body)
    program = jaxops.onnx.load(proto).export(sizes={"m": "m >= 2"})
    assert shapes(program) in (["float32[n,n]"], ["float32[m,m]"])
    agrees(proto, program, {"n": 3, "m": 3})


def test_a_square_stays_a_square():
    """x + xᵀ: a size of 1 would change the shape of the result."""
    square = model("(float[n,m] x) => (float[n,m] y)", "t = Transpose(x)  y = Add(x, t)")
    program = jaxops.onnx.load(square).export()
    (text,) = shapes(program)
    assert text in ("float32[n,n]", "float32[m,m]")
    agrees(square, program, {"n": 3, "m": 3})


def test_two_inputs_of_one_length_stay_equal():
    pair = model("(float[b,s,4] x, float[b,t,4] z) => (float[b,s,4] y)", "y = Add(x, z)")
    program = jaxops.onnx.load(pair).export()
    assert shapes(program) in (["float32[b,s,4]"] * 2, ["float32[b,t,4]"] * 2)
