"""Exports of models that compute sizes from a number that is repeated a symbolic number of times, as TorchScript writes
`repeat_interleave` with a vector."""

import jax
import numpy as np
import onnxruntime
import pytest
from symbolic_graphs import Row, agrees, inputs, model

import jaxops.onnx
from jaxops.errors import ShapeError, SizeError, StaticError

# As torch.onnx writes `x.repeat_interleave(torch.ones(x.shape[0], dtype=torch.int64) * y.shape[0], dim=0)`: a scalar
# that may stand for all repeats is expanded, and a loop repeats one row after the other.
HEAD = "(float[n,4] x, float[b,5] y) => (float[u,4] o)"
CONSTANTS = """zero = Constant<value_int=0>()  z1 = Constant<value_ints=[0]>()  i1 = Constant<value_ints=[1]>()
    one = Constant<value_int=1>()  minus = Constant<value_int=-1>()  m1 = Constant<value_ints=[-1]>()
    i4 = Constant<value_ints=[4]>()  sx = Shape(x)  nx = Gather(sx, zero)  n = Unsqueeze(nx, z1)  sy = Shape(y)
    b = Gather(sy, zero)  true = Constant<value = bool {1}>()"""
REPEATS = "ones = ConstantOfShape<value=int64[1]{1}>(n)  v = Mul(ones, b)"
BY_A_LOOP = """size = Shape(v)  length = Gather(size, z1)  single = Equal(length, i1)  wide = Expand(v, n)
    r = Where(single, wide, v)  rs = Shape(r)  pieces = ConstantOfShape<value=int64[1]{1}>(rs)
    rseq = SplitToSequence<axis=0>(r, pieces)  xseq = SplitToSequence<axis=0>(x, pieces)  none = SequenceEmpty()
    all = Loop(n, true, none) <body = g (int64[1] i, bool go, seq(float[?,?]) s) =>
        (bool on, seq(float[?,?]) t) {
        ri = SequenceAt(rseq, i)  xi = SequenceAt(xseq, i)  xu = Unsqueeze(xi, i1)  c = Concat<axis=0>(i1, ri, i4)
        cs = Shape(c)  co = ConstantOfShape<value=int64[1]{1}>(cs)  cm = Mul(co, minus)  ce = Equal(c, cm)
        cw = Where(ce, co, c)  e = Expand(xu, cw)  rows = Constant<value_ints=[-1,4]>()  f = Reshape(e, rows)
        t = SequenceInsert(s, f)  on = Cast<to=9>(true) }>
    o = ConcatFromSequence<axis=0>(all)"""
NB = ({"n": 1, "b": 1}, {"n": 2, "b": 3}, {"n": 3, "b": 2}, {"n": 5, "b": 1})


def repeating(how: str) -> str:
    """A body that repeats the rows of x by one size `m` [1]."""
    return f"""{CONSTANTS}  {REPEATS}  {how}  xu = Unsqueeze(x, i1)  c = Concat<axis=0>(i1, m, i4)
        e = Expand(xu, c)  rows = Constant<value_ints=[-1,4]>()  o = Reshape(e, rows)"""


ROWS = [
    Row("a scalar that Expand repeats", HEAD, f"{CONSTANTS}  v = Expand(b, n)  {BY_A_LOOP}", NB, "float32[n,4]"),
    Row("the largest", HEAD, repeating("m = ReduceMax<keepdims=1>(v)"), NB, "float32[n,4]"),
    Row("the smallest", HEAD, repeating("k = ReduceMin<keepdims=0>(v)  m = Reshape(k, m1)"), NB, "float32[n,4]"),
    Row("the mean", HEAD, repeating("m = ReduceMean<keepdims=1>(v)"), NB, "float32[n,4]"),
    Row(
        "the sum, of all and of rows",
        "(float[n,4] x, float[b,5] y) => (float[u] o, float[w,w2] p, int64[2] q)",
        f"""{CONSTANTS}  {REPEATS}  t = ReduceSum<keepdims=1>(v)  o = ConstantOfShape(t)
        i2 = Constant<value_ints=[2]>()  s = Concat<axis=0>(i2, n)  e = Expand(v, s)
        q = ReduceSum<keepdims=0>(e, i1)  p = ConstantOfShape(q)""",
        NB,
    ),
    Row("one element", HEAD, repeating("m = Gather(v, z1)"), NB, "float32[n,4]"),
    Row(
        "an element that data choose",
        HEAD,
        repeating("a = ArgMax<axis=0,keepdims=0>(x)  f = Gather(v, a)  m = Slice(f, z1, i1, z1)"),
        NB,
    ),
    Row(
        "repeated again, tiled and reshaped",
        HEAD,
        repeating(
            """s = Concat<axis=0>(i4, n)  w = Expand(v, s)  t = Constant<value_ints=[2,1]>()  q = Tile(w, t)
            u = Unsqueeze(q, z1)  h = Reshape(u, m1)  j = Concat<axis=0>(h, v)  g = Identity(j)
            m = ReduceMax<keepdims=1>(g)"""
        ),
        NB,
    ),
    Row(
        "arithmetic with a number, and casts",
        HEAD,
        repeating(
            """t = Add(v, one)  d = Sub(t, i1)  f = Cast<to=1>(d)  w = Cast<to=7>(f)  q = Max(w, v)
            big = Greater(q, zero)  l = Where(big, q, ones)  m = ReduceMax<keepdims=1>(l)"""
        ),
        NB,
    ),
    Row("Tile", HEAD, repeating("w = Reshape(b, m1)  t = Tile(w, n)  m = ReduceMax(t)"), NB, "float32[n,4]"),
    Row(
        "numbers that are no sizes",
        "(float[n,4] x) => (float[n,4] y, int64[n] z, bool[n] k, float[n] f, int64[n] c, int64[n,3] t, int32[n] q)",
        """s = Shape<end=1>(x)  v = ConstantOfShape<value=int64[1]{3}>(s)  z = Neg(v)  o = Constant<value_int=3>()
        k = Equal(v, o)  f = Cast<to=1>(v)  a = Constant<value_int=0>()  c = CumSum(v, a)
        w = Constant<value_ints=[1,2,3]>()  i = Constant<value_ints=[1]>()  u = Unsqueeze(v, i)  t = Mul(u, w)
        q = Cast<to=6>(v)  g = Unsqueeze(f, i)  h = Add(x, g)  y = Softmax<axis=0>(h)""",
        ({"n": 1}, {"n": 4}),
    ),
    Row(
        "other types, and a product with a size",
        """(float[n,4] x) => (int32[1] y, float[1] z, int64[1] k, int64[1] p, bool[1] f, bool[1] g, int64[1] q,
        uint8[1] w)""",
        """s = Shape<end=1>(x)  a = Constant<value_ints=[0]>()  v = ConstantOfShape<value=int64[1]{3}>(s)
        c = Cast<to=6>(v)  d = Gather(c, a)  one = Constant<value=int32[1]{1}>()  y = Add(d, one)
        r = Cast<to=1>(v)  half = Constant<value=float[1]{0.5}>()  h = Mul(r, half)  z = Gather(h, a)
        three = Constant<value_ints=[3]>()  e = Equal(v, three)  i = Cast<to=7>(e)  k = Gather(i, a)
        m = Mul(s, v)  p = Gather(m, a)  b = Cast<to=9>(v)  f = Gather(b, a)  l = Cast<to=9>(h)  g = Gather(l, a)
        j = Neg(v)  two = Constant<value_ints=[2]>()  o = Div(j, two)  q = Gather(o, a)
        u = Constant<value=uint8[1]{7}>()  t = Constant<value=uint8[1]{9}>()  n = Where(e, u, t)  w = Gather(n, a)""",
        ({"n": 1}, {"n": 4}),
    ),
    Row(
        "a float of a size, repeated",
        HEAD,
        repeating(
            """l = Add(b, b)  f = Cast<to=1>(l)  w = Expand(f, n)  h = Constant<value=float[1]{0.5}>()  k = Mul(w, h)
            g = ReduceMin<keepdims=1>(k)  m = Cast<to=7>(g)"""
        ),
        NB,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_program_agrees_with_onnxruntime(row):
    agrees(row)


@pytest.mark.parametrize("x64", [False, True])
def test_repeat_interleave_of_torchscript(x64):
    proto = model(HEAD, f"{CONSTANTS}  {REPEATS}  {BY_A_LOOP}")
    loaded, session = jaxops.onnx.load(proto, x64=x64), onnxruntime.InferenceSession(proto.SerializeToString())
    with jax.enable_x64(x64):
        program = jax.export.deserialize(loaded.export().serialize())
        assert str(program.out_avals[0]) == "float32[b*n,4]"
        for sizes in NB:
            x, y = inputs(loaded, sizes)
            (want,) = session.run(None, {"x": x, "y": y})
            np.testing.assert_array_equal(program.call({}, x, y), want)
            np.testing.assert_array_equal(want, np.repeat(x, sizes["b"], 0))


def test_the_largest_of_maybe_no_numbers_is_no_size():
    """`n - 1` numbers may be none, and the maximum of none is not the number."""
    body = repeating("l = Sub(n, i1)  w = Expand(b, l)  m = ReduceMax<keepdims=1>(w)")
    with pytest.raises(StaticError, match="`shape` must be known while tracing"):
        jaxops.onnx.load(model(HEAD, body)).export()


def test_pieces_that_do_not_fill_the_axis_are_refused():
    body = f"""{CONSTANTS}  twos = ConstantOfShape<value=int64[1]{{2}}>(n)  q = SplitToSequence<axis=0>(x, twos)
        o = ConcatFromSequence<axis=0>(q)"""
    with pytest.raises(ShapeError, match="`split` holds 2 n times, but the axis has size n"):
        jaxops.onnx.load(model(HEAD, body)).export()


def test_numbers_that_are_needed_one_by_one_name_the_size():
    body = f"{CONSTANTS}  {REPEATS}  o = Expand(x, v)"
    with pytest.raises(SizeError, match=r"(?s)`shape` must be known.*the number of its elements is a symbolic size.*n"):
        jaxops.onnx.load(model(HEAD, body)).export()
