"""Models whose sizes are quotients of quotients, as windows with strides make them: one program serves many sizes."""

import pytest
from symbolic_graphs import Row, agrees


def halved(times: int) -> Row:
    """A pyramid whose last level is doubled and added to the one before, as in a detector."""
    levels = "".join(
        f"p{k + 1} = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(p{k})  " for k in range(times)
    )
    return Row(
        f"{times} halvings that round up, then a doubling",
        "(float[n,2,h,w] p0) => (float[n,2,i,j] y)",
        f"""{levels} sc = Constant<value_floats=[1.0,1.0,2.0,2.0]>()  u = Resize<mode="nearest">(p{times}, , sc)
        y = Add(u, p{times - 1})""",
        tuple({"n": k, "h": k * 2**times, "w": (3 - k) * 2**times} for k in (1, 2)),
        f"{2**times}*h,{2**times}*w",
    )


# A feature extractor of three convolutions, as in HuBERT; the exporter writes the length after it as t // 20 - 1.
SPEECH = """one = Constant<value_ints=[1]>()  three = Constant<value_ints=[3]>()  two = Constant<value_ints=[2]>()
    zero = Constant<value_ints=[0]>()  twenty = Constant<value_ints=[20]>()  f = Constant<value_ints=[4]>()
    sh = Shape(x)  b = Slice(sh, zero, one)  t = Slice(sh, two, three)  q = Div(t, twenty)  s = Sub(q, one)
    c0 = Conv<strides=[5]>(x, k)  c1 = Conv<strides=[2]>(c0, w)  c2 = Conv<strides=[2]>(c1, w)
    h0 = Transpose<perm=[0,2,1]>(c2)  heads = Concat<axis=0>(b, s, two, two)  rows = Concat<axis=0>(b, s, f)
    bh = Mul(b, two)  flat = Concat<axis=0>(bh, s, two)
"""


def attention(k: int) -> str:
    """The nodes of one layer, whose shapes come from those of the input."""
    return f"""q{k} = Reshape(h{k}, heads)  r{k} = Transpose<perm=[0,2,1,3]>(q{k})  a{k} = Reshape(r{k}, flat)
        d{k} = Transpose<perm=[0,2,1]>(a{k})  e{k} = MatMul(a{k}, d{k})  g{k} = Softmax(e{k})  i{k} = MatMul(g{k}, a{k})
        sq{k} = Concat<axis=0>(b, two, s, two)  j{k} = Reshape(i{k}, sq{k})  l{k} = Transpose<perm=[0,2,1,3]>(j{k})
        m{k} = Reshape(l{k}, rows)  h{k + 1} = Add(m{k}, h{k})
    """


ROWS = [
    *map(halved, (4, 5, 6)),
    Row(
        "convolutions, then layers whose shapes are computed from the length",
        "(float[n,1,t] x, float[4,1,10] k, float[4,4,3] w) => (float[n,u,4] h6)",
        SPEECH + "".join(map(attention, range(6))),
        ({"n": 1, "t": 400}, {"n": 2, "t": 57}),
    ),
    Row(
        "a cumulated mask of the frames, as in wav2vec2",
        "(float[n,1,t] x, float[1,1,10] k, float[1,1,3] w) => (float[n,1,u] y)",
        """c0 = Conv<strides=[5]>(x, k)  c1 = Conv<strides=[2]>(c0, w)  c2 = Conv<strides=[2]>(c1, w)
        axis = Constant<value_int=2>()  y = CumSum(c2, axis)""",
        ({"n": 1, "t": 400}, {"n": 2, "t": 57}),
    ),
    Row(
        "pieces of four steps and one more",
        "(float[n,s,2] x) => (float[n,s,2] y)",
        """sh = Shape(x)  zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()
        two = Constant<value_ints=[2]>()  three = Constant<value_ints=[3]>()  four = Constant<value_ints=[4]>()
        n = Slice(sh, zero, one)  s = Slice(sh, one, two)  less = Sub(s, one)  q = Div(less, four)
        t = Concat<axis=0>(n, q, four, two)  a = Slice(x, one, s, one)  p = Reshape(a, t)  m = ReduceMax(p)
        f = Flatten<axis=1>(m)  u = Unsqueeze(f, two)  y = Add(x, u)""",
        ({"n": 1, "s": 5}, {"n": 2, "s": 13}),
        "4*s - 3",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_program_agrees_with_onnxruntime(row):
    agrees(row)
