"""Graphs whose sizes have names: each is exported once, and agrees with the model at several sizes."""

import numpy as np
import pytest
from symbolic_graphs import Row, agrees

from jaxops.graph.declared_sizes import expression, fixed, names, symbols
from jaxops.graph.nodes import Graph, Value

NS = ({"n": 2, "s": 5}, {"n": 1, "s": 1})
HW = ({"n": 1, "h": 8, "w": 16}, {"n": 2, "h": 24, "w": 8})
ANY = ({"n": 1, "h": 5, "w": 9}, {"n": 2, "h": 12, "w": 7})

ROWS = [
    *(
        Row(
            f"{mode} with antialias to a number, and by a scale{', exclude_outside' * outside}",
            "(float[n,2,h,w] x) => (float[n,2,16,i] y)",
            f"""to = Constant<value_ints=[16]>()  by = Constant<value_floats=[0.55]>()
            a = Resize<antialias=1,axes=[2],mode="{mode}",exclude_outside={outside}>(x, , , to)
            y = Resize<antialias=1,axes=[3],mode="{mode}",exclude_outside={outside}>(a, , by)""",
            ({"n": 1, "h": 9, "w": 20}, {"n": 2, "h": 40, "w": 7}),
        )
        for mode in ("linear", "cubic")
        for outside in (0, 1)
    ),
    *(
        Row(
            f"{mode} of a part of an image, 'tf_crop_and_resize'",
            "(float[2,2,h,w] x) => (float[2,2,16,1] y)",
            f"""to = Constant<value_ints=[2,2,16,1]>()
            part = Constant<value_floats=[0.0,0.0,0.1,0.0,1.0,1.0,1.2,0.9]>()
            y = Resize<coordinate_transformation_mode="tf_crop_and_resize",mode="{mode}",extrapolation_value=7.5>
            (x, part, , to)""",
            ({"h": 9, "w": 20}, {"h": 40, "w": 7}),
        )
        for mode in ("nearest", "linear", "cubic")
    ),
    Row(
        "positions: a slice of a table",
        "(float[n,s,4] x, float[16,4] table) => (float[n,s,4] y)",
        """sh = Shape(x)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
        zero = Constant<value_ints=[0]>()
        s = Slice(sh, one, two)  p = Slice(table, zero, s, zero)  y = Add(x, p)""",
        NS,
        "s",
    ),
    Row(
        "positions: gathered from a range",
        "(float[n,s,4] x, float[16,4] table) => (float[n,s,4] y)",
        """sh = Shape(x)  one = Constant<value_int=1>()  zero = Constant<value_int=0>()  s = Gather(sh, one)
        r = Range(zero, s, one)  p = Gather(table, r)  y = Add(x, p)""",
        NS,
    ),
    Row(
        "positions: a slice of a table of ids, expanded",
        "(int64[n,s] x, int64[1,16] ids, float[16,4] table) => (float[n,s,4] y)",
        """sh = Shape(x)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
        zero = Constant<value_ints=[0]>()
        s = Slice(sh, one, two)  p = Slice(ids, zero, s, one)  e = Expand(p, sh)  y = Gather(table, e)""",
        NS,
    ),
    Row(
        "convolutions of convolutions, as wav2vec2",
        "(float[n,1,t] x, float[4,1,10] k, float[4,4,3] w, float[4,4,2] v) => (float[n,4,u] y)",
        """a = Conv<strides=[5]>(x, k)  b = Conv<strides=[2]>(a, w)  c = Conv<strides=[2]>(b, w)
        d = Conv<strides=[2]>(c, w)  e = Conv<strides=[2]>(d, w)  f = Conv<strides=[2]>(e, v)
        g = Conv<strides=[2]>(f, v)  h = MaxPool<kernel_shape=[3],strides=[1],pads=[1,1]>(g)  y = Add(g, h)""",
        ({"n": 1, "t": 400}, {"n": 2, "t": 3000}),
    ),
    Row(
        "a causal mask from ranges",
        "(float[n,s,s] x) => (float[n,s,s] y)",
        """sh = Shape(x)  one = Constant<value_int=1>()  zero = Constant<value_int=0>()  s = Gather(sh, one)
        r = Range(zero, s, one)  a0 = Constant<value_ints=[0]>()  a1 = Constant<value_ints=[1]>()
        rows = Unsqueeze(r, a1)  columns = Unsqueeze(r, a0)  keep = LessOrEqual(columns, rows)
        low = Constant<value_float=-9.0>()  y = Where(keep, x, low)""",
        NS,
    ),
    Row(
        "a causal mask sliced from a table",
        "(float[n,s,s] x, bool[16,16] bias) => (float[n,s,s] y)",
        """sh = Shape(x)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
        zero = Constant<value_ints=[0]>()
        s = Slice(sh, one, two)  d = Sub(s, s)  rows = Slice(bias, d, s, zero)  keep = Slice(rows, zero, s, one)
        low = Constant<value_float=-9.0>()  y = Where(keep, x, low)""",
        NS,
    ),
    Row(
        "a triangular mask",
        "(float[n,s,s] x) => (float[n,s,s] y)",
        """sh = Shape<start=1>(x)  ones = ConstantOfShape<value = float[1] {1.0}>(sh)  low = Trilu<upper=0>(ones)
        y = Mul(x, low)""",
        NS,
    ),
    Row(
        "a padding mask, expanded by shapes with -1",
        "(int64[n,s] mask) => (float[n,1,s,s] y)",
        """sh = Shape(mask)  a = Constant<value_ints=[1,2]>()  m = Unsqueeze(mask, a)  one = Constant<value_ints=[1]>()
        zero = Constant<value_ints=[0]>() n = Slice(sh, zero, one)  two = Constant<value_ints=[2]>()
        s = Slice(sh, one, two)
        wanted = Concat<axis=0>(n, one, s, s)  minus = Constant<value_ints=[-1]>()  four = Constant<value_ints=[4]>()
        ones = ConstantOfShape<value = int64[1] {1}>(four)  low = Mul(ones, minus)  test = Equal(wanted, low)
        w = Where(test, ones, wanted)  e = Expand(m, w)  y = Cast<to=1>(e)""",
        NS,
    ),
    Row(
        "CastLike a size",
        "(float[n,s,4] x) => (float[n,s,4] y)",
        """sh = Shape(x)  one = Constant<value_int=1>()  s = Gather(sh, one)  f = Constant<value_float=3.7>()
        k = CastLike(f, s)  z = Add(s, k)  g = Cast<to=1>(z)  y = Mul(x, g)""",
        NS,
    ),
    Row(
        "pixel shuffle by Reshape and Transpose",
        "(float[n,8,h,w] x) => (float[n,2,hh,ww] y)",
        """sh = Shape<start=2>(x)  nb = Shape<start=0,end=1>(x)  k = Constant<value_ints=[2,2,2]>()
        t = Concat<axis=0>(nb, k, sh)
        a = Reshape(x, t)  b = Transpose<perm=[0,1,4,2,5,3]>(a)  two = Constant<value_ints=[2]>()  big = Mul(sh, two)
        u = Concat<axis=0>(nb, two, big)  y = Reshape(b, u)""",
        ANY,
    ),
    Row(
        "unshuffle: sizes are halved, and so must be even",
        "(float[n,2,h,w] x) => (float[n,8,hh,ww] y)",
        """sh = Shape<start=2>(x)  nb = Shape<start=0,end=1>(x)  two = Constant<value_ints=[2]>()  half = Div(sh, two)
        zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()  hh = Slice(half, zero, one)
        ww = Slice(half, one, two)  t = Concat<axis=0>(nb, two, hh, two, ww, two)  a = Reshape(x, t)
        b = Transpose<perm=[0,1,3,5,2,4]>(a)  minus = Constant<value_ints=[-1]>()  u = Concat<axis=0>(nb, minus, hh, ww)
        y = Reshape(b, u)""",
        HW,
        "2*h,2*w",
    ),
    Row(
        "windows of a Swin transformer",
        "(float[n,h,w,3] x) => (float[m,16,3] y)",
        """sh = Shape(x)  zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()
        two = Constant<value_ints=[2]>()
        three = Constant<value_ints=[3]>()  four = Constant<value_ints=[4]>()  n = Slice(sh, zero, one)
        h = Slice(sh, one, two)  w = Slice(sh, two, three)  hw = Div(h, four)  ww = Div(w, four)
        t = Concat<axis=0>(n, hw, four, ww, four, three)  a = Reshape(x, t)  b = Transpose<perm=[0,1,3,2,4,5]>(a)
        v = Constant<value_ints=[-1,16,3]>()  y = Reshape(b, v)""",
        HW,
        "4*h,4*w",
    ),
    Row(
        "rolled rows, as torch writes them with Mod",
        "(float[n,h,4] x) => (float[n,h,4] y)",
        """sh = Shape(x)  zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()
        two = Constant<value_ints=[2]>()  h = Slice(sh, one, two)  d = Sub(h, two)  start = Mod(d, h)
        a = Slice(x, start, h, one)  b = Slice(x, zero, start, one)  y = Concat<axis=1>(a, b)""",
        ({"n": 2, "h": 5}, {"n": 1, "h": 2}),
    ),
    Row(
        "DepthToSpace and SpaceToDepth",
        "(float[n,4,h,w] x) => (float[n,8,hh,ww] y)",
        "a = DepthToSpace<blocksize=2>(x)  b = SpaceToDepth<blocksize=2>(a)  c = SpaceToDepth<blocksize=2>(x)  "
        "p = DepthToSpace<blocksize=2>(c) y = Concat<axis=1>(b, p)",
        HW,
        "2*h,2*w",
    ),
    Row(
        "convolutions with and without padding",
        "(float[n,3,h,w] x, float[3,3,3,3] k) => (float[n,3,hh,ww] y)",
        """a = Conv(x, k)  b = Conv<pads=[1,1,1,1],strides=[2,2]>(a, k)
        c = AveragePool<kernel_shape=[2,2]>(b)  y = Relu(c)""",
        ANY,
    ),
    Row(
        "pooling that rounds up, then a flattened vector per position",
        "(float[n,3,h,w] x) => (float[n,3,m] y)",
        """a = MaxPool<kernel_shape=[3,3],strides=[2,2],ceil_mode=1>(x)  sh = Shape<end=2>(a)
        minus = Constant<value_ints=[-1]>()  t = Concat<axis=0>(sh, minus)  y = Reshape(a, t)""",
        ANY,
    ),
    Row(
        "auto_pad SAME",
        "(float[n,3,h,w] x, float[3,3,3,3] k, float[3,3,1,1] q) => (float[n,3,hh,ww] y)",
        'a = Conv<auto_pad="SAME_UPPER",strides=[2,2]>(x, k)  b = MaxPool<auto_pad="SAME_LOWER",kernel_shape=[3,3]>(a)'
        'y = Conv<auto_pad="SAME_UPPER",strides=[2,2]>(b, q)',
        ANY,
    ),
    Row(
        "a U-Net with transposed convolutions",
        "(float[n,3,h,w] x, float[3,3,3,3] k, float[3,3,2,2] u) => (float[n,9,h,w] y)",
        """a = Conv<pads=[1,1,1,1]>(x, k)  p = MaxPool<kernel_shape=[2,2],strides=[2,2]>(a)
        b = Conv<pads=[1,1,1,1]>(p, k)
        q = MaxPool<kernel_shape=[2,2],strides=[2,2]>(b)  v = ConvTranspose<strides=[2,2]>(q, u)  c = Add(v, b)
        z = ConvTranspose<strides=[2,2]>(c, u)  y = Concat<axis=1>(z, a, x)""",
        HW,
        "4*h,4*w",
    ),
    Row(
        "a feature pyramid, resized by scales",
        "(float[n,3,h,w] x, float[3,3,3,3] k) => (float[n,3,hh,ww] y)",
        """a = Conv<pads=[1,1,1,1],strides=[2,2]>(x, k)  b = Conv<pads=[1,1,1,1],strides=[2,2]>(a, k)
        sc = Constant<value_floats=[1.0,1.0,2.0,2.0]>()  u = Resize<mode="nearest">(b, , sc)  y = Add(u, a)""",
        HW,
        "4*h,4*w",
    ),
    Row(
        "a feature pyramid, resized to the sizes of the other level",
        "(float[n,3,h,w] x, float[3,3,3,3] k) => (float[n,3,hh,ww] y)",
        """a = Conv<pads=[1,1,1,1],strides=[2,2]>(x, k)  b = Conv<pads=[1,1,1,1],strides=[2,2]>(a, k)
        s = Shape(a) u = Resize<mode="linear",coordinate_transformation_mode="align_corners">(b, , , s)
        y = Add(u, a)""",
        ANY,
        "h",
    ),
    Row(
        "a segmentation head, resized to the image",
        "(float[n,3,h,w] x, float[2,3,3,3] k) => (float[n,2,h,w] y)",
        """a = Conv<pads=[1,1,1,1],strides=[4,4]>(x, k)  hw = Shape<start=2>(x)  nc = Shape<end=2>(a)
        s = Concat<axis=0>(nc, hw)  y = Resize<mode="linear">(a, , , s)""",
        ANY,
        "h",
    ),
    Row(
        "padding to a multiple of 4",
        "(float[n,h,w] x) => (float[n,hh,ww] y)",
        """hw = Shape<start=1>(x)  four = Constant<value_ints=[4]>()  minus = Neg(hw)  more = Mod(minus, four)
        z = Constant<value_ints=[0,0,0,0]>()  pads = Concat<axis=0>(z, more)  p = Pad(x, pads)  y = Relu(p)""",
        ANY,
    ),
    Row(
        "padding and cropping back",
        "(float[n,h,w] x) => (float[n,h,w] y)",
        """hw = Shape<start=1>(x)  four = Constant<value_ints=[4]>()  minus = Neg(hw)  more = Mod(minus, four)
        z = Constant<value_ints=[0,0,0,0]>()  pads = Concat<axis=0>(z, more)  p = Pad<mode="reflect">(x, pads)
        a = Constant<value_ints=[1,2]>()  zz = Constant<value_ints=[0,0]>()  c = Slice(p, zz, hw, a)  y = Add(c, x)""",
        ANY[1:],
    ),
    Row(
        "halves of an axis",
        "(float[n,s,6] x) => (float[n,t,6] y)",
        "a, b = Split<axis=1,num_outputs=2>(x)  y = Sub(a, b)",
        ({"n": 1, "s": 4}, {"n": 2, "s": 8}),
        "2*s",
    ),
    Row(
        "a loop over the steps of a sequence",
        "(float[n,s] x) => (float[n] y)",
        """sh = Shape(x)  one = Constant<value_int=1>()  s = Gather(sh, one)  t = Constant<value = bool {1}>()
        zero = Constant<value_ints=[0]>()  first = Gather<axis=1>(x, zero)  start0 = Squeeze(first, o)
        start = Sub(start0, start0)
        y = Loop(s, t, start) <body = b (int64 i, bool go, float[n] acc) => (bool go2, float[n] acc2) {
            go2 = Identity(go)  step = Gather<axis=1>(x, i)  acc2 = Add(acc, step) }>""".replace(
            "start0 = Squeeze(first, o)", "o = Constant<value_ints=[1]>() start0 = Squeeze(first, o)"
        ),
        NS,
    ),
    Row(
        "a loop that stacks a row a step",
        "(float[n,s] x) => (float[s,n] y)",
        """sh = Shape(x)  one = Constant<value_int=1>()  s = Gather(sh, one)  t = Constant<value = bool {1}>()
        y = Loop(s, t) <body = b (int64 i, bool go) => (bool go2, float[n] row) {
            go2 = Identity(go)  step = Gather<axis=1>(x, i)  row = Relu(step) }>""",
        NS,
    ),
    Row(
        "If on a size",
        "(float[n,s] x) => (float[n,s] y)",
        """sh = Shape(x)  one = Constant<value_int=1>()  s = Gather(sh, one)  four = Constant<value_int=4>()
        c = Greater(s, four)  y = If(c) <then_branch = a () => (float[n,s] p) { p = Relu(x) },
        else_branch = b () => (float[n,s] q) { q = Neg(x) }>""",
        NS,
    ),
    Row(
        "If that no size leaves open",
        "(float[n,s] x) => (float[n,s] y)",
        """sh = Shape(x)  zero = Constant<value_int=0>()  s = Size(sh)  two = Constant<value_int=2>()
        c = Equal(s, two)  y = If(c) <then_branch = a () => (float[n,s] p) { p = Relu(x) },
        else_branch = b () => (float[m] q) { m = Constant<value_ints=[-1]>() q = Reshape(x, m) }>""",
        NS,
    ),
    Row(
        "the number of elements: a mean by hand",
        "(float[n,s,4] x) => (float y)",
        """sh = Shape(x)  k = ReduceProd<keepdims=0>(sh)  f = Cast<to=1>(k)  t = ReduceSum<keepdims=0>(x)
        y = Div(t, f)""",
        NS,
    ),
    Row(
        "a shape made by ScatterND",
        "(float[n,s,4] x) => (float[n,s2,2] y)",
        """sh = Shape(x)  i = Constant<value = int64[2,1] {1,2}>()  minus = Constant<value_ints=[-1]>()
        two = Constant<value_ints=[2]>()  u = Concat<axis=0>(minus, two)  t = ScatterND(sh, i, u)  y = Reshape(x, t)""",
        NS,
    ),
    Row(
        "tiles of queries",
        "(float[n,s,4] x, float[1,3,4] q) => (float[n,m,4] y)",
        """sh = Shape<end=1>(x)  one = Constant<value_ints=[1]>()  r = Concat<axis=0>(sh, one, one)  t = Tile(q, r)
        y = Concat<axis=1>(t, x)""",
        NS,
    ),
    Row(
        "the last step",
        "(float[n,s,4] x) => (float[n,4] y)",
        """sh = Shape(x)  one = Constant<value_int=1>()  s = Gather(sh, one)  last = Sub(s, one)
        y = Gather<axis=1>(x, last)""",
        NS,
    ),
    Row(
        "a window before the end that sizes give",
        "(float[n,s,4] x, float[n,t,4] z) => (float[n,t,4] y)",
        """a = Shape<start=1,end=2>(x)  b = Shape<start=1,end=2>(z)  d = Sub(a, b)  one = Constant<value_ints=[1]>()
        p = Slice(x, d, a, one)  y = Add(p, z)""",
        ({"n": 2, "s": 5, "t": 3}, {"n": 1, "s": 4, "t": 4}),
    ),
    Row(
        "sizes of two inputs that must be equal",
        "(float[n,s,4] x, float[m,t,4] z) => (float[n,s,8] y)",
        "y = Concat<axis=2>(x, z)",
        ({"n": 2, "s": 5, "m": 2, "t": 5}, {"n": 1, "s": 4, "m": 1, "t": 4}),
    ),
    Row(
        "a cache and its mask",
        "(float[n,s,4] x, float[n,p,4] past, float[n,total] mask) => (float[n,s,total] y, float[n,total,4] present)",
        """present = Concat<axis=1>(past, x)  kt = Transpose<perm=[0,2,1]>(present)  a = MatMul(x, kt)
        o = Constant<value_ints=[1]>()  m = Unsqueeze(mask, o)  y = Add(a, m)""",
        ({"n": 2, "s": 3, "p": 4, "total": 7}, {"n": 1, "s": 1, "p": 1, "total": 2}),
    ),
    Row(
        "heads split off by Reshape",
        "(float[n,s,8] x) => (float[n,s,8] y)",
        """t = Constant<value_ints=[0,0,2,4]>()  a = Reshape(x, t)  b = Transpose<perm=[0,2,1,3]>(a)  c = Softmax(b)
        d = Transpose<perm=[0,2,1,3]>(c)  u = Constant<value_ints=[0,-1,8]>()  y = Reshape(d, u)""",
        NS,
    ),
    Row(
        "a multi-head attention of com.microsoft",
        "(float[n,s,8] q, float[n,t,8] k, float[n,t,8] v) => (float[n,s,8] y)",
        "y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v)",
        ({"n": 2, "s": 3, "t": 4}, {"n": 1, "s": 1, "t": 6}),
    ),
    Row(
        "the Attention of the standard, whose masks must fit",
        "(float[n,2,s,4] q, float[m,2,t,4] k, float[m,2,t,4] v, float[s,u] mask) => (float[n,2,s,4] y)",
        "y = Attention(q, k, v, mask)",
        ({"n": 2, "s": 3, "t": 4, "m": 2, "u": 4}, {"n": 1, "s": 1, "t": 6, "m": 1, "u": 6}),
    ),
    Row(
        "an argument of the maximum, and the largest three",
        "(float[n,s] x) => (int64[n] y, float[n,3] top)",
        "y = ArgMax<axis=1,keepdims=0>(x)  k = Constant<value_ints=[3]>()  top, i = TopK(x, k)",
        ({"n": 2, "s": 3}, {"n": 1, "s": 8}),
    ),
    Row(
        "grid sampling",
        "(float[n,3,h,w] x, float[m,a,b,2] g) => (float[n,3,a,b] y)",
        "y = GridSample(x, g)",
        ({"n": 1, "h": 4, "w": 5, "m": 1, "a": 2, "b": 3}, {"n": 2, "h": 3, "w": 3, "m": 2, "a": 4, "b": 1}),
    ),
]


@pytest.mark.grid
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_program_agrees_with_onnxruntime(row):
    agrees(row)


LONG = 5000
TEXTS = ["N+" * LONG + "N", "-" * LONG + "N", "(" * LONG + "N" + ")" * LONG, "N*" + "9" * 12, "N+" + "9" * LONG]
TEXTS += ["None+N", "N+True", "N+'a'", "N**9", "N//0", "N\0", "1and N", "N+0x1", "N+1j", "f(N)", "N.real", "N[0]"]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:9]))
def test_a_text_that_is_no_sum_or_product_is_a_name(text):
    values = [Value("x", np.dtype("f4"), ("N",)), Value("y", np.dtype("f4"), (text,))]
    assert names(values) == ["N", text]
    graph = Graph("", tuple(values), (), (), {})
    assert [v.shape for v in fixed(graph, {"N": 3}).inputs] == [(3,), (text,)]
    assert set(symbols(values)) == {"N", text}


def test_expressions_of_sizes():
    values = [Value("x", np.dtype("f4"), ("N", "M")), Value("y", np.dtype("f4"), ("2*(N + M) - 3",))]
    assert names(values) == ["N", "M"]
    assert expression("2*(N + M) - 3", {"N": 4, "M": 5}) == 15
