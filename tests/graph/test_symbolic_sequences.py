"""Sequences of a symbolic number of arrays: each graph is exported once, and agrees at several sizes."""

import jax
import numpy as np
import pytest
from symbolic_graphs import Row, agrees, model

import jaxops.onnx
from jaxops.errors import BoundsError, ShapeError, SizeError, StaticError
from jaxops.lazy_sequences import GrowingSequence
from jaxops.ops import if_
from jaxops.tools.inspect.summary import symbolic

NS = ({"n": 2, "s": 6}, {"n": 1, "s": 2})
SPLIT = "one = Constant<value_int=1>()  three = Constant<value_int=3>()  "
STEPS = "sh = Shape(x)  one = Constant<value_int=1>()  "

ROWS = [
    Row(
        "split and joined again, the last one shorter",
        "(float[n,s,4] x) => (float[n,s,4] y)",
        SPLIT + "q = SplitToSequence<axis=1>(x, three)  y = ConcatFromSequence<axis=1>(q)",
        ({"n": 2, "s": 5}, {"n": 1, "s": 6}, {"n": 1, "s": 1}),
        "n,s,4",
    ),
    Row(
        "rows stacked along another axis",
        "(float[n,s,4] x) => (float[n,4,s] y, float[s,n,4] z)",
        "q = SplitToSequence<axis=1,keepdims=0>(x)  y = ConcatFromSequence<axis=2,new_axis=1>(q)"
        "  z = ConcatFromSequence<axis=0,new_axis=1>(q)",
        NS,
    ),
    Row(
        "pieces joined along another axis: their number is whole",
        "(float[n,s,4] x) => (float[m,3,4] y)",
        SPLIT + "q = SplitToSequence<axis=1>(x, three)  y = ConcatFromSequence<axis=0>(q)",
        ({"n": 2, "s": 6}, {"n": 1, "s": 3}),
        "n,3*s,4",
    ),
    Row(
        "halves, as torch's chunk writes them",
        "(float[n,s,4] x) => (float[n,a,4] y, float[n,b,4] z, float[n,b,4] w)",
        STEPS
        + """two = Constant<value_int=2>()  s = Gather(sh, one)  more = Add(s, one)  half = Div(more, two)
        zero = Constant<value_int=0>()  minus = Constant<value_int=-1>()  q = SplitToSequence<axis=1>(x, half)
        y = SequenceAt(q, zero)  z = SequenceAt(q, one)  w0 = Identity(q)  w = SequenceAt(w0, one)""",
        ({"n": 2, "s": 5}, {"n": 1, "s": 6}, {"n": 1, "s": 2}),
    ),
    Row(
        "the first and the last row",
        "(float[n,s,4] x) => (float[n,4] y)",
        """q = SplitToSequence<axis=1,keepdims=0>(x)  zero = Constant<value_int=0>()  last = Constant<value_int=-1>()
        a = SequenceAt(q, zero)  b = SequenceAt(q, last)  y = Sub(a, b)""",
        NS,
    ),
    Row(
        "a loop over the rows",
        "(float[n,s,4] x, float[n,4] start) => (float[n,4] y, float[s,n,4] z)",
        """q = SplitToSequence<axis=1,keepdims=0>(x)  count = SequenceLength(q)  t = Constant<value = bool {1}>()
        y, z = Loop(count, t, start)
        <body = b (int64 i, bool go, float[n,4] h) => (bool go2, float[n,4] h2, float[n,4] r) {
            go2 = Identity(go)  row = SequenceAt(q, i)  sum = Add(h, row)  h2 = Tanh(sum)  r = Neg(h2) }>""",
        NS,
    ),
    Row(
        "a loop backwards over pairs of rows",
        "(float[n,s,4] x, float[n,2,4] start) => (float[n,2,4] y)",
        """two = Constant<value_int=2>()  one = Constant<value_int=1>()  q = SplitToSequence<axis=1>(x, two)
        count = SequenceLength(q)  t = Constant<value = bool {1}>()
        y = Loop(count, t, start) <body = b (int64 i, bool go, float[n,2,4] h) => (bool go2, float[n,2,4] h2) {
            go2 = Identity(go)  minus = Neg(i)  place = Sub(minus, one)  row = SequenceAt(q, place)  sum = Add(h, row)
            h2 = Tanh(sum) }>""",
        NS,
        "n,2*s,4",
    ),
    Row(
        "a loop that appends to a sequence, as scripted models collect their steps",
        "(float[n,s,4] x, float[n,4] start) => (float[n,s,4] y, float[n,4] z, float[s,n,4] w)",
        """one = Constant<value_int=1>()  sh = Shape(x)  count = Gather(sh, one)  t = Constant<value = bool {1}>()
        empty = SequenceEmpty()
        z, steps, w = Loop(count, t, start, empty)
        <body = b (int64 i, bool go, float[n,4] h, seq(float[n,4]) q) =>
            (bool go2, float[n,4] h2, seq(float[n,4]) q2, float[n,4] r) {
            go2 = Identity(go)  row = Gather<axis=1>(x, i)  sum = Add(h, row)  h2 = Tanh(sum)  r = Neg(h2)
            q2 = SequenceInsert(q, h2) }>
        y = ConcatFromSequence<axis=1,new_axis=1>(steps)""",
        NS,
    ),
    Row(
        "a sequence that keeps its length",
        "(float[n,s,4] x, float[n,4] start) => (float[n,8] y)",
        """one = Constant<value_int=1>()  sh = Shape(x)  count = Gather(sh, one)  t = Constant<value = bool {1}>()
        two = SequenceConstruct(start, start)
        last = Loop(count, t, two)
        <body = b (int64 i, bool go, seq(float[n,4]) q) => (bool go2, seq(float[n,4]) q2) {
            go2 = Identity(go)  row = Gather<axis=1>(x, i)  zero = Constant<value_int=0>()  a = SequenceAt(q, zero)
            o = Constant<value_int=1>()  c = SequenceAt(q, o)  d = Add(a, row)  q2 = SequenceConstruct(c, d) }>
        y = ConcatFromSequence<axis=1>(last)""",
        NS,
    ),
    Row(
        "two sequences, of which one has an array and gets two a step",
        "(float[n,s,4] x, float[n,4] start) => (float[n,4,m] y, float[n,s,4] z)",
        """p = SplitToSequence<axis=1,keepdims=0>(x)  count = SequenceLength(p)  t = Constant<value = bool {1}>()
        empty = SequenceEmpty()  one = SequenceConstruct(start)
        a, b = Loop(count, t, one, empty)
        <body = f (int64 i, bool go, seq(float[n,4]) q, seq(float[n,4]) r) =>
            (bool go2, seq(float[n,4]) q3, seq(float[n,4]) r2) {
            go2 = Identity(go)  row = SequenceAt(p, i)  q2 = SequenceInsert(q, row)  low = Neg(row)
            q3 = SequenceInsert(q2, low)  r2 = SequenceInsert(r, low) }>
        y = ConcatFromSequence<axis=-1,new_axis=1>(a)  z = ConcatFromSequence<axis=1,new_axis=1>(b)""",
        NS,
    ),
    Row(
        "a function of each piece",
        "(float[n,s,4] x, float[n,4] b) => (float[n,4,s] y)",
        """q = SplitToSequence<axis=1,keepdims=0>(x)  p = SplitToSequence<axis=1,keepdims=0>(x)
        m = SequenceMap(q, p, b) <body = f (float[n,4] i, float[n,4] j, float[n,4] k) => (float[n,4] o) {
            u = Mul(i, j)  o = Add(u, k) }>
        y = ConcatFromSequence<axis=-1,new_axis=1>(m)""",
        NS,
    ),
    Row(
        "a number of pieces that sizes do not change",
        "(float[n,s,4] x) => (float[n,s,4] y)",
        STEPS
        + """s = Gather(sh, one)  xx = Concat<axis=1>(x, x)  q = SplitToSequence<axis=1>(xx, s)
        r = SequenceErase(q)  y = ConcatFromSequence<axis=1>(r)""",
        NS,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_program_agrees_with_onnxruntime(row):
    agrees(row)


ERRORS = [
    (
        "e = SequenceErase(q)  y = ConcatFromSequence<axis=1>(e)",
        SizeError,
        r"(?s)sequence_erase: .*, as an axis of size s is split into pieces of 3\n.*sizes={'s': 128}\n"
        r"in node 'e'.*'q' a sequence of pieces of float32\[n,s,4\]",
    ),
    ("y = Identity(q)", SizeError, "output 'y': the length of the sequence is unknown, as an axis of size s"),
    (
        "z = SplitToSequence<axis=1>(x)  y0 = SequenceMap(q, z) <body = f (float[n,3,4] i, float[n,1,4] j) => "
        "(float[n,3,4] o) { o = Add(i, j) }>  y = ConcatFromSequence<axis=1>(y0)",
        ShapeError,
        r"sequence_map: input 1 has 3\*s items, but `input_sequence` has s",
    ),
    (
        "z = SequenceConstruct(x, x)  y0 = SequenceMap(q, z) <body = f (float[n,3,4] i, float[n,s,4] j) => "
        "(float[n,3,4] o) { o = Identity(i) }>  y = ConcatFromSequence<axis=1>(y0)",
        SizeError,
        "sequence_map: input 1 has 2 items, but `input_sequence` has s",
    ),
    (
        "z = SequenceConstruct(x, x)  y0 = SequenceMap(z, q) <body = f (float[n,s,4] i, float[n,3,4] j) => "
        "(float[n,3,4] o) { o = Identity(j) }>  y = ConcatFromSequence<axis=1>(y0)",
        SizeError,
        "sequence_map: the length of the sequence is unknown, as an axis of size s",
    ),
]


@pytest.mark.parametrize(("body", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(body, kind, match):
    output = "seq(float[n,3,4]) y" if "Identity(q)" in body else "float[n,m,4] y"
    loaded = jaxops.onnx.load(
        model(f"(float[n,s,4] x) => ({output})", f"{SPLIT} q = SplitToSequence<axis=1>(x, three) {body}")
    )
    with pytest.raises(kind, match=match):
        loaded.export()


@pytest.mark.parametrize("position", [1, -2])
def test_a_position_limits_the_sizes(position):
    """Three rows make one piece."""
    body = f"{SPLIT} p = Constant<value_int={position}>()  q = SplitToSequence<axis=1>(x, three)  y = SequenceAt(q, p)"
    loaded = jaxops.onnx.load(model("(float[n,s,4] x) => (float[n,m,4] y)", body))
    program = loaded.export()
    for size in (4, 6, 7):
        x = np.arange(4 * size, dtype=np.float32).reshape(1, size, 4)
        np.testing.assert_array_equal(program.call({}, x), loaded(x))
    with pytest.raises(ValueError, match="shape constraint"):
        program.call({}, x[:, :3])
    with pytest.raises(BoundsError, match=f"`position` is {position}, but .* arrays: an axis of size s is split"):
        loaded.export({"s": "s <= 3"})


def test_a_picture_says_what_is_split():
    loaded = jaxops.onnx.load(model(ROWS[0].head, ROWS[0].body))
    shapes = symbolic(loaded.graph, {}, loaded.inputs)
    assert (shapes["q"], shapes["y"]) == ("pieces of float32[n, s, 4]", "float32[n, s, 4]")


def looped(body):
    """A loop that changes a sequence of one array, `q`."""
    loop = f"""one = Constant<value_int=1>()  sh = Shape(x)  count = Gather(sh, one)  e = SequenceConstruct(x)
        t = Constant<value = bool {{1}}>()  q = Loop(count, t, e) <body = b (int64 i, bool go, seq(float[n,s]) q) =>
        (bool go2, seq(float[n,s]) q2) {{ go2 = Identity(go)  h = Neg(x)  {body} }}>
        y = ConcatFromSequence<axis=1>(q)"""
    return jaxops.onnx.load(model("(float[n,s] x) => (float[n,m] y)", loop))


@pytest.mark.parametrize(
    "body",
    [
        "r = SequenceErase(q)  r2 = SequenceInsert(r, h)  q2 = SequenceInsert(r2, h)",
        "zero = Constant<value_int=0>()  f = SequenceAt(q, zero)  g = Add(f, h)  q2 = SequenceInsert(q, g)",
        "q2 = SequenceConstruct(h, h)",
        """low = ReduceMin<keepdims=0>(x)  big = ReduceMax<keepdims=0>(x)  c = Less(low, big)
        q2 = If(c) <then_branch = a () => (seq(float[n,s]) p) { p = SequenceInsert(q, h) },
        else_branch = d () => (seq(float[n,s]) p) { p = SequenceInsert(q, x) }>""",
    ],
)
def test_a_loop_may_not_read_a_sequence_that_grows(body):
    with pytest.raises(SizeError, match=r"(?s)loop: s iterations change the length .* only append.*sizes={'s': 128}"):
        looped(body).export()


def test_a_branch_may_not_decide_whether_a_sequence_grows():
    body = """low = ReduceMin<keepdims=0>(x)  big = ReduceMax<keepdims=0>(x)  c = Less(low, big)
        q2 = If(c) <then_branch = a () => (seq(float[n,s]) p) { p = SequenceInsert(q, h) },
        else_branch = d () => (seq(float[n,s]) p) { p = Identity(q) }>"""
    with pytest.raises(ShapeError, match=r"if_: .* both branches must give outputs of one type and shape"):
        looped(body).export()


def test_a_branch_may_not_return_a_sequence_that_grows():
    growing = GrowingSequence((np.ones(2),))
    with pytest.raises(
        StaticError, match="cannot carry this sequence: a loop over a symbolic number of iterations can only append"
    ):
        jax.jit(lambda cond: if_(cond, lambda: [growing], lambda: []))(True)
