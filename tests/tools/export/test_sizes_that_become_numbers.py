"""Exports of models in which a size that has a name must equal a number. The number is found, and the rest goes on."""

import re

import numpy as np
import onnxruntime
import pytest
from symbolic_graphs import Row, agrees, model

import jaxops.onnx
from jaxops.errors import SizeError
from jaxops.tools.export.limits.learned import Limits

STATE = "sh = Constant<value_ints=[1,1,4]>()  h0 = ConstantOfShape(sh)  "
JOINED = "(float[n,3] x, float[2,3] z) => (float[i,j] y)"
TN = ({"t": 3, "b": 1}, {"t": 1, "b": 1})

ROWS = [
    Row(
        "LSTM with a state of batch 1",
        "(float[t,b,3] x, float[1,16,3] w, float[1,16,4] r) => (float[t,1,b,4] z)",
        STATE + "y, h, c = LSTM<hidden_size=4>(x, w, r, , , h0, h0)  z = Relu(y)",
        TN,
        "float32[t,1,3]",
    ),
    Row(
        "GRU with a state of batch 1",
        "(float[t,b,3] x, float[1,12,3] w, float[1,12,4] r) => (float[t,1,b,4] z, float[1,b,4] g)",
        STATE + "y, h = GRU<hidden_size=4>(x, w, r, , , h0)  z = Relu(y)  g = Neg(h)",
        TN,
        "float32[t,1,3]",
    ),
    Row(
        "RNN with a state of batch 1",
        "(float[t,b,3] x, float[1,4,3] w, float[1,4,4] r) => (float[t,1,b,4] z)",
        STATE + "y, h = RNN<hidden_size=4>(x, w, r, , , h0)  z = Relu(y)",
        TN,
        "float32[t,1,3]",
    ),
    Row(
        "Concat, then Relu and Softmax",
        JOINED,
        "c = Concat<axis=1>(x, z)  r = Relu(c)  y = Softmax(r)",
        ({"n": 2},),
        "float32[2,3]; float32[2,3]",
    ),
    Row(
        "Concat, then a Reshape by its shape",
        JOINED,
        """c = Concat<axis=1>(x, z)  sh = Shape(c)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
        zero = Constant<value_ints=[0]>()  n = Slice(sh, zero, one)  m = Slice(sh, one, two)
        s = Concat<axis=0>(m, n)  y = Reshape(c, s)""",
        ({"n": 2},),
        "float32[2,3]",
    ),
    Row(
        "Concat, then Conv",
        "(float[n,3] x, float[2,3] z, float[2,1,1,2] k) => (float[1,2,i,j] y)",
        "c = Concat<axis=1>(x, z)  a = Constant<value_ints=[0,1]>()  d = Unsqueeze(c, a)  y = Conv(d, k)",
        ({"n": 2},),
        "float32[2,3]",
    ),
    Row(
        "an Attention of the standard with a key of fixed batch",
        "(float[b,s,8] q, float[2,6,8] k, float[2,6,8] v) => (float[b,s,8] z)",
        "y = Attention<q_num_heads=2,kv_num_heads=2>(q, k, v)  z = Relu(y)",
        ({"b": 2, "s": 3}, {"b": 2, "s": 1}),
        "float32[2,s,8]",
    ),
    Row(
        "MultiHeadAttention with a key of fixed batch",
        "(float[b,s,8] q, float[2,6,8] k, float[2,6,8] v) => (float[b,s,8] z)",
        "y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v)  z = Relu(y)",
        ({"b": 2, "s": 3}, {"b": 2, "s": 1}),
        "float32[2,s,8]",
    ),
    Row(
        "MultiHeadAttention of heads of any size",
        "(float[b,s,h] q, float[b,t,h] k, float[b,t,h] v) => (float[b,s,h] z)",
        "y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v)  z = Relu(y)",
        ({"b": 2, "s": 3, "t": 4, "h": 8}, {"b": 1, "s": 1, "t": 2, "h": 6}),
        "float32[b,s,2*h]",
    ),
    Row(
        "an Attention of the standard of heads of any size",
        "(float[b,2,s,h] q, float[b,2,t,h] k, float[b,2,t,h] v) => (float[b,2,s,h] z)",
        "y = Attention(q, k, v)  z = Relu(y)",
        ({"b": 2, "s": 3, "t": 4, "h": 8}, {"b": 1, "s": 1, "t": 2, "h": 5}),
        "float32[b,2,s,h]",
    ),
    Row(
        "SkipLayerNormalization",
        "(float[b,s,h] x, float[2,s,h] k, float[8] g) => (float[b,s,h] z)",
        "y = com.microsoft.SkipLayerNormalization(x, k, g)  z = Relu(y)",
        ({"b": 2, "s": 3, "h": 8}, {"b": 2, "s": 1, "h": 8}),
        "float32[2,s,8]; float32[2,s,8]",
    ),
    Row(
        "SkipSimplifiedLayerNormalization",
        "(float[b,s,h] x, float[b,3,h] k, float[8] g) => (float[b,s,h] z)",
        "y = com.microsoft.SkipSimplifiedLayerNormalization(x, k, g)  z = Relu(y)",
        ({"b": 2, "s": 3, "h": 8}, {"b": 1, "s": 3, "h": 8}),
        "float32[b,3,8]; float32[b,3,8]",
    ),
    Row(
        "RotaryEmbedding of com.microsoft",
        "(float[b,s,16] x, int64[2,s] p, float[50,4] c, float[50,4] d) => (float[b,s,16] z)",
        "y = com.microsoft.RotaryEmbedding<num_heads=2>(x, p, c, d)  z = Relu(y)",
        ({"b": 2, "s": 3}, {"b": 2, "s": 1}),
        "float32[2,s,16]",
    ),
    Row(
        "RotaryEmbedding of the standard",
        "(float[b,2,s,8] x, float[50,4] c, float[50,4] d, int64[2,3] p) => (float[b,2,s,8] z)",
        "y = RotaryEmbedding(x, c, d, p)  z = Relu(y)",
        ({"b": 2, "s": 3},),
        "float32[2,2,3,8]",
        opset=23,
    ),
    Row(
        "AffineGrid to numbers",
        "(float[n,2,3] t) => (float[n,4,5,2] z)",
        "s = Constant<value_ints=[2,3,4,5]>()  y = AffineGrid(t, s)  z = Relu(y)",
        ({"n": 2},),
        "float32[2,2,3]",
        opset=20,
    ),
    Row(
        "SoftmaxCrossEntropyLoss",
        "(float[n,c] x, int64[3] t, float[2] w) => (float l, float[n,c] q)",
        "l, p = SoftmaxCrossEntropyLoss(x, t, w)  q = Neg(p)",
        ({"n": 3, "c": 2},),
        "float32[3,2]",
    ),
    Row(
        "NegativeLogLikelihoodLoss",
        "(float[n,5,d] x, int64[3,e] t) => (float z)",
        "l = NegativeLogLikelihoodLoss(x, t)  z = Neg(l)",
        ({"n": 3, "d": 2, "e": 2}, {"n": 3, "d": 4, "e": 4}),
        "float32[3,5,d]; int32[3,d]",
    ),
    Row(
        "operands that broadcast, for other sizes than 1",
        "(float[a,b] x, float[3,4] t, bool[c,d] k) => (float[3,4] y)",
        "p = Add(x, t)  s = Constant<value_ints=[3,4]>()  e = Expand(x, s)  y = Where(k, p, e)",
        ({"a": 3, "b": 4, "c": 3, "d": 4},),
        "float32[3,4]; float32[3,4]; bool[3,4]",
    ),
    Row(
        "normalizations of as many channels as they have parameters",
        "(float[n,c,h] x, float[4] k) => (float[n,c,h] y)",
        "v = Exp(k)  a = BatchNormalization(x, k, k, k, v)  b = InstanceNormalization(a, k, k)  y = Relu(b)",
        ({"n": 2, "c": 4, "h": 3}, {"n": 1, "c": 4, "h": 5}),
        "float32[n,4,h]",
    ),
    Row(
        "channels in groups",
        "(float[n,c,h] x, float[4] k) => (float[n,c,h] y)",
        "y = GroupNormalization<num_groups=2>(x, k, k)",
        ({"n": 2, "c": 4, "h": 3}, {"n": 1, "c": 4, "h": 5}),
        "float32[n,4,h]",
        opset=21,
    ),
    Row(
        "an axis that is squeezed",
        "(float[n,c,h] x) => (float[n,h] z)",
        "a = Constant<value_ints=[1]>()  y = Squeeze(x, a)  z = Relu(y)",
        ({"n": 2, "c": 1, "h": 3}, {"n": 1, "c": 1, "h": 1}),
        "float32[n,1,h]",
    ),
    Row(
        "a scale for each channel, and for each block of two",
        "(float[n,c] x, float[3] s, float[3,2] t) => (float[n,c] y, float[n,c] z)",
        """q = QuantizeLinear<axis=0>(x, s)  y = DequantizeLinear<axis=0>(q, s)
        p = QuantizeLinear<axis=1,block_size=2>(x, t)  z = DequantizeLinear<axis=1,block_size=2>(p, t)""",
        ({"n": 3, "c": 4}, {"n": 3, "c": 3}),
        "float32[3,c]",
        opset=21,
    ),
    Row(
        "places of the largest, of fixed batch",
        "(float[n,c,h,w] x, int64[1,1,2,2] i) => (float[1,1,4,4] z)",
        "y = MaxUnpool<kernel_shape=[2,2],strides=[2,2]>(x, i)  z = Relu(y)",
        ({"n": 1, "c": 1, "h": 2, "w": 2},),
        "float32[1,1,2,2]",
    ),
    Row(
        "columns of an image",
        "(float[n,c,l] x) => (float[n,d,5,5] z)",
        """i = Constant<value_ints=[5,5]>()  k = Constant<value_ints=[1,5]>()  y = Col2Im(x, i, k)  z = Relu(y)""",
        ({"n": 2, "c": 10, "l": 5}, {"n": 1, "c": 5, "l": 5}),
        "float32[n,5*c,5]",
    ),
    Row(
        "a flattened square image",
        "(float[n,3,h,h] x, float[48,5] m) => (float[n,5] z)",
        "y = Flatten(x)  z = MatMul(y, m)",
        ({"n": 2, "h": 4}, {"n": 1, "h": 4}),
        "float32[n,3,4,4]",
    ),
    Row(
        "a flattened image of any shape",
        "(float[n,3,h,w] x, float[24,5] m) => (float[n,5] z)",
        "p = MaxPool<kernel_shape=[8,8],strides=[8,8]>(x)  y = Flatten(p)  z = MatMul(y, m)",
        ({"n": 2, "h": 16, "w": 32}, {"n": 1, "h": 39, "w": 16}, {"n": 3, "h": 8, "w": 64}),
        "float32[n,3,h,w]",
    ),
    Row(
        "an image that is flattened by its batch",
        "(float[n,3,h,w] x, float[6,5] m) => (float[n,5] z)",
        """p = AveragePool<kernel_shape=[8,8],strides=[8,8]>(x)  n = Shape<start=0,end=1>(x)
        minus = Constant<value_ints=[-1]>()  s = Concat<axis=0>(n, minus)  y = Reshape(p, s)  z = MatMul(y, m)""",
        ({"n": 2, "h": 8, "w": 20}, {"n": 1, "h": 17, "w": 15}),
        "float32[n,3,h,w]",
    ),
    Row(
        "two beams of each sample",
        "(float[b,9] x) => (float[c,d] y)",
        """n = Shape<start=0,end=1>(x)  two = Constant<value_ints=[2]>()  half = Div(n, two)
        minus = Constant<value_ints=[-1]>()  s = Concat<axis=0>(half, minus)  y = Reshape(x, s)""",
        ({"b": 2}, {"b": 6}),
        "float32[2*b,9]",
    ),
    Row(
        "blocks of pixels, of a batch that is inferred",
        "(float[b,3,h,w] x) => (float[c,3,i,2,j,2] y)",
        """height = Shape<start=2,end=3>(x)  width = Shape<start=3,end=4>(x)  two = Constant<value_ints=[2]>()
        half = Div(height, two)  narrow = Div(width, two)  first = Constant<value_ints=[-1,3]>()
        s = Concat<axis=0>(first, half, two, narrow, two)  y = Reshape(x, s)""",
        ({"b": 1, "h": 4, "w": 6}, {"b": 3, "h": 2, "w": 8}),
        "float32[b,3,2*h,2*w]",
    ),
    Row(
        "a length that windows leave no choice",
        "(float[n,1,t] x, float[2,1,4] k, float[6,5] m) => (float[n,2,5] z)",
        "y = Conv<strides=[4]>(x, k)  z = MatMul(y, m)",
        ({"n": 2, "t": 24}, {"n": 1, "t": 27}),
        "float32[n,1,t]",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_program_agrees_with_onnxruntime(row):
    agrees(row)


CACHED = model(
    """(float[b,s,64] q, float[b,s,32] k, float[b,s,32] v, float[b,2,past,kv_cache_dim] pk,
    float[b,2,past,kv_cache_dim] pv, int32[b,all] mask, float[64,8] cos, float[64,8] sin)
    => (float[b,s,64] y, float[b,2,t,16] nk, float[b,2,t,16] nv)""",
    """sh = Shape(mask)  one = Constant<value_ints=[1]>()  last = Constant<value_int=1>()  n = Gather(sh, last)
    total = Cast<to=6>(n)  sums = ReduceSum<keepdims=0>(mask, one)  i1 = Constant<value = int32[1] {1}>()
    seq = Sub(sums, i1)
    y, nk, nv = com.microsoft.GroupQueryAttention<num_heads=4,kv_num_heads=2,do_rotary=1>
        (q, k, v, pk, pv, seq, total, cos, sin)""",
)


def test_the_width_of_a_cache_follows_from_the_weights():
    """As the builder of onnxruntime-genai writes it: `kv_cache_dim` is a free name there."""
    loaded = jaxops.onnx.load(CACHED)
    program = loaded.export()
    assert [str(aval) for aval in program.in_avals][3:5] == ["float32[b,2,past,16]"] * 2
    session, rng = onnxruntime.InferenceSession(CACHED.SerializeToString()), np.random.default_rng(0)
    for b, s, past in ((2, 1, 4), (1, 3, 7)):
        shapes = (b, s, 64), (b, s, 32), (b, s, 32), (b, 2, past, 16), (b, 2, past, 16)
        floats = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        angles = rng.standard_normal((64, 8))
        values = *floats, np.ones((b, past + s), np.int32), np.float32(np.cos(angles)), np.float32(np.sin(angles))
        wanted = session.run(None, {v.name: x for v, x in zip(loaded.inputs, values, strict=True)})
        for got, want in zip(program.call({}, *values), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_flattened_image_of_another_size_is_refused():
    head = "(float[n,3,h,w] x, float[24,5] m) => (float[n,5] z)"
    body = "p = MaxPool<kernel_shape=[8,8],strides=[8,8]>(x)  y = Flatten(p)  z = MatMul(y, m)"
    program = jaxops.onnx.load(model(head, body)).export()
    with pytest.raises(ValueError, match=r"floordiv\(h, 8\)\*floordiv\(w, 8\) == 8"):
        program.call({}, np.zeros((1, 3, 16, 16), np.float32), np.zeros((24, 5), np.float32))


def test_several_sizes_that_leave_a_choice_are_named_with_numbers_that_fit():
    """The sizes of the image, and not of what is left of it."""
    head = "(float[n,3,height,width] x, float[64] m) => (float[i,j,k] z)"
    body = """p = MaxPool<kernel_shape=[8,8],strides=[8,8]>(x)  rows = Shape<start=2,end=4>(p)
        minus = Constant<value_ints=[-1]>()  s = Concat<axis=0>(rows, minus)  z = Reshape(m, s)"""
    loaded = jaxops.onnx.load(model(head, body))
    with pytest.raises(SizeError, match=r"64 elements are not a multiple of floordiv\(height, 8\)") as caught:
        loaded.export()
    assert re.search(r"hint    fix sizes for which .*, such as sizes={'height': 8, 'width': 8}", str(caught.value))
    assert loaded.export(sizes={"height": 16, "width": 32}).out_avals[0].shape[2] == 8


def test_no_limit_is_left_of_a_question_that_a_number_answers():
    """A Reshape that was baked with 7 steps, before anything says that there are 7: every batch is served."""
    head = "(float[t,b,2] x, float[7,1,2] w) => (float[7,b,2] z)"
    body = "s = Constant<value_ints=[7,-1,2]>()  r = Reshape(x, s)  y = Add(x, w)  z = Mul(r, y)"
    loaded = jaxops.onnx.load(model(head, body))
    program = loaded.export()
    assert str(program.in_avals[0]) == "float32[7,b,2]"
    for b in (1, 3):
        x, w = np.ones((7, b, 2), np.float32), np.arange(14, dtype=np.float32).reshape(7, 1, 2)
        np.testing.assert_array_equal(program.call({}, x, w), x * (x + w))


def test_what_jax_cannot_lower_names_the_node_and_the_size(monkeypatch):
    """JAX writes a cumulative sum as a window of the whole axis, and asks only then for its size."""
    monkeypatch.setattr(Limits, "learn", lambda self, error: False)
    head = "(float[n,t] x) => (float[n,u] y)"
    body = """a = Constant<value_int=1>()  z = Constant<value_ints=[0]>()  four = Constant<value_ints=[4]>()
        one = Constant<value_ints=[1]>()  big = Constant<value_ints=[1000000]>()  s = Slice(x, four, big, one)
        y = CumSum(s, a)"""
    loaded = jaxops.onnx.load(model(head, body))
    with pytest.raises(SizeError, match=r"(?s)cum.*y.*inconclusive.*hint .*sizes={'t'"):
        loaded.export()
