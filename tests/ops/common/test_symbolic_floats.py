"""Floats of sizes that become sizes again, and conditions on sizes: one program gives what numbers give."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from symbolic_graphs import Row, agrees, model

import jaxops as jo
import jaxops.onnx
from jaxops.errors import SizeError

NS = ({"n": 2, "s": 5}, {"n": 1, "s": 7}, {"n": 1, "s": 3})
HW = ({"n": 1, "h": 5, "w": 9}, {"n": 2, "h": 12, "w": 7})
VECTOR = "(float[n,s] x) => (float[n,t] y)"
IMAGE = "(float[n,3,h,w] x) => (float[n,3,hh,ww] y)"


def cut(steps: str) -> str:
    """The first `i` elements of each row, where `steps` make i of f, the size as a float."""
    return f"""zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()  sh = Shape<start=1>(x)
    f = Cast<to=1>(sh)  {steps}  i = Cast<to=7>(g)  y = Slice(x, zero, i, one)"""


def resized(factor: str) -> str:
    """torch's `interpolate(scale_factor=…)`."""
    return f"""sh = Shape<start=2>(x)  f = Cast<to=1>(sh)  k = Constant<value_float={factor}>()  m = Mul(f, k)
    g = Floor(m)  i = Cast<to=7>(g)  nc = Shape<end=2>(x)  s = Concat<axis=0>(nc, i)
    y = Resize<mode="linear">(x,,,s)"""


def choice(condition: str) -> str:
    return f"""one = Constant<value_int=1>()  axis = Constant<value_ints=[1]>()  sh = Shape(x)  s = Gather(sh, one)
    {condition}  y = If(c) <then_branch = a () => (float[n,k] p) {{ p = Squeeze(x, axis) }},
    else_branch = b () => (float[n,s,4] q) {{ q = Identity(x) }}>"""


ROWS = [
    Row("scale 2", IMAGE, resized("2.0"), HW),
    Row("scale 0.7, which float32 rounds", IMAGE, resized("0.7"), HW),
    Row("scales 0.6", IMAGE, 'k = Constant<value_floats=[1.0,1.0,0.6,0.6]>() y = Resize<mode="nearest">(x,,k)', HW),
    Row(
        "each axis of its own",
        IMAGE,
        """k = Constant<value_float=1.5>()  two = Constant<value_int=2>()  three = Constant<value_int=3>()
        zero = Constant<value_ints=[0]>()  sh = Shape(x)  h = Gather(sh, two)  w = Gather(sh, three)
        hf = Cast<to=1>(h)  wf = Cast<to=1>(w)  hm = Mul(hf, k)  wm = Mul(wf, k)  hg = Floor(hm)  wg = Floor(wm)
        hu = Unsqueeze(hg, zero)  wu = Unsqueeze(wg, zero)  g = Concat<axis=0>(hu, wu)  i = Cast<to=7>(g)
        nc = Shape<end=2>(x)  s = Concat<axis=0>(nc, i)  y = Resize<mode="linear">(x,,,s)""",
        HW,
    ),
    Row("a third, rounded up", VECTOR, cut("k = Constant<value_float=3.0>() m = Div(f, k) g = Ceil(m)"), NS),
    Row("ties go to the even number", VECTOR, cut("k = Constant<value_float=0.5>() m = Mul(f, k) g = Round(m)"), NS),
    Row(
        "sums, maxima and negatives",
        VECTOR,
        cut("""k = Constant<value_float=0.25>() m = Mul(f, k) p = Add(m, k) q = Neg(p) r = Add(f, q)
        t = Sub(r, k) u = Max(t, m, k) g = Min(u, f)"""),
        NS,
    ),
    Row(
        "TensorFlow's x[:, :size // 2], in which a billion is the end",
        VECTOR,
        """at = Constant<value = int32[1] {1}>()  two = Constant<value = int32[1] {2}>()  sh = Shape<start=1>(x)
        size = Cast<to=6>(sh)  half = Div(size, two)  f = Cast<to=1>(half)  least = Constant<value_floats=[-1e9]>()
        g = Max(f, least)  i = Cast<to=6>(g)  most = Constant<value = int32[1] {1000000000}>()  e = Equal(i, most)
        masked = Constant<value = bool[1] {0}>()  a = And(e, masked)  end = Where(a, most, i)
        zero = Constant<value = int32[1] {0}>()  y = Slice(x, zero, end, at)""",
        NS,
    ),
    Row(
        "TensorFlow's x[:, 0], in steps of a billion",
        "(float[n,s] x) => (float[n] y)",
        """zero = Constant<value_ints=[0]>()  at = Constant<value_ints=[1]>()  far = Constant<value_ints=[1000000000]>()
        one = Slice(x, zero, far, at, far)  y = Squeeze(one, at)""",
        NS,
    ),
    Row("a quotient of sizes", VECTOR, cut("t = Add(f, f) r = Div(t, f) g = Min(r, f)"), NS),
    Row(
        "a square",
        "(float[n,h,h] x) => (float[n,m] y)",
        """two = Constant<value_float=2.0>()  sh = Shape<start=1,end=2>(x)  f = Cast<to=1>(sh)  q = Pow(f, two)
        i = Cast<to=7>(q)  b = Shape<end=1>(x)  s = Concat<axis=0>(b, i)  y = Reshape(x, s)""",
        ({"n": 1, "h": 3}, {"n": 2, "h": 4}),
    ),
    Row(
        "float64",
        VECTOR,
        """zero = Constant<value_ints=[0]>() one = Constant<value_ints=[1]>() sh = Shape<start=1>(x)
        f = Cast<to=11>(sh) k = Constant<value = double {0.3}>() m = Mul(f, k) g = Floor(m) i = Cast<to=7>(g)
        y = Slice(x, zero, i, one)""",
        NS,
    ),
    Row(
        "a range of floats",
        "(float[n,s] x) => (float[n,s] y)",
        """zero = Constant<value_ints=[0]>()  a = Constant<value_float=0.0>()  b = Constant<value_float=1.0>()
        sh = Shape<start=1>(x)  z = Squeeze(sh, zero)  f = Cast<to=1>(z)  r = Range(a, f, b)  y = Add(x, r)""",
        NS,
    ),
    Row(
        "a scale of scores stays data",
        "(float[n,s,4] x) => (float[n,s,s] y)",
        """sh = Shape<start=1,end=2>(x)  f = Cast<to=1>(sh)  q = Sqrt(f)  t = Transpose<perm=[0,2,1]>(x)
        m = MatMul(x, t)  y = Div(m, q)""",
        NS,
    ),
    Row("Squeeze if the size is 1", "(float[n,s,4] x) => (float[n,s,4] y)", choice("c = Equal(s, one)"), NS),
    Row(
        "conditions on it",
        "(float[n,s,4] x) => (float[n,s,4] y)",
        choice("e = LessOrEqual(s, one) d = Greater(s, one) u = Not(d) v = And(e, u) c = Or(v, e)"),
        NS,
    ),
    Row(
        "comparisons of floats",
        "(float[n,s,4] x) => (float[n,s,4] y)",
        choice("""k = Constant<value_float=0.0>() f = Cast<to=1>(s) h = Constant<value_float=0.5>() m = Mul(f, h)
        a = Less(f, k) b = Greater(m, f) d = GreaterOrEqual(k, f) e = LessOrEqual(f, m) v = Equal(m, f)
        w = Equal(a, v) u = Not(w) aa = Or(a, b) ab = Or(d, e) ac = Or(aa, ab) ad = Or(ac, u) c = Or(ad, v)"""),
        NS,
    ),
    Row(
        "TensorFlow's loop over steps",
        "(float[n,s,4] x) => (float[n,s,4] y)",
        """one = Constant<value_int=1>()  axis = Constant<value_ints=[1]>()  none = Constant<value_float=0.0>()
        sh = Shape(x)  ints = Cast<to=6>(sh)  s = Gather(ints, one)  m = Cast<to=7>(s)  f = Cast<to=1>(s)
        c = Less(none, f)  start = Constant<value = int32 {0}>()  h = ReduceSum<keepdims=0>(x, axis)
        t = Transpose<perm=[1,0,2]>(x)
        last, sums, limit, rows = Loop(m, c, start, h, s) <body = g (int64 i, bool go, int32 k, float[n,4] p, int32 l)
        => (bool on, int32 q, float[n,4] r, int32 w, float[n,4] o) { w = Identity(l)  step = Gather(t, k)
        r = Add(p, step)  o = Mul(r, step)  unit = Constant<value = int32 {1}>()  q = Add(k, unit)
        fi = Cast<to=1>(i)  fq = Cast<to=1>(q)  fl = Cast<to=1>(l)  a = Less(fi, fl)  b = Less(fq, fl)
        on = And(a, b) }>  y = Transpose<perm=[1,0,2]>(rows)""",
        NS,
    ),
    Row(
        "padded to windows and cut back, as Swin",
        "(float[n,s] x) => (float[n,m,4] y, float[n,s] z)",
        """zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()  four = Constant<value_ints=[4]>()
        none = Constant<value_ints=[0,0,0]>()  minus = Constant<value_ints=[-1]>()  sh = Shape<start=1>(x)
        r = Mod(sh, four)  d = Sub(four, r)  e = Mod(d, four)  p = Concat<axis=0>(none, e)  w = Pad(x, p)
        ws = Shape<start=1>(w)  c = Div(ws, four)  b = Shape<end=1>(x)  t = Concat<axis=0>(b, c, four)
        y = Reshape(w, t)  u = Concat<axis=0>(b, minus)  v = Reshape(y, u)  z = Slice(v, zero, sh, one)""",
        NS,
    ),
    Row(
        "convolutions and slices of a stride meet",
        "(float[n,3,h,w] x, float[3,3,3,3] k) => (float[n,3,hh,w] y)",
        """a = Conv<kernel_shape=[3,3],pads=[1,1,1,1],strides=[2,1]>(x, k)  zero = Constant<value_ints=[0]>()
        end = Constant<value_ints=[9223372036854775807]>()  axis = Constant<value_ints=[2]>()
        step = Constant<value_ints=[2]>()  b = Slice(x, zero, end, axis, step)  y = Add(a, b)""",
        HW,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_program_agrees_with_onnxruntime(row):
    agrees(row)


ERRORS = [
    (cut("k = Constant<value_float=0.70710678>() m = Mul(f, k) g = Floor(m)"), "factor 0.707.*is not a ratio of small"),
    (cut("k = Constant<value_float=1e9>() m = Mul(f, k) g = Floor(m)"), "the factor 1000000000 of a symbolic size"),
    (
        cut("k = Constant<value_float=0.5>() q = Constant<value_float=1e9>() m = Mul(f, k) g = Add(m, q)"),
        "factor 10000",
    ),
    (cut("g = Sqrt(f)"), "slice: `ends` must be known while tracing: the square root of s is not a multiple"),
    (cut("k = Constant<value_float=0.5>() g = Pow(f, k)"), "a power of s is not a multiple of a size"),
    (cut("k = Constant<value_float=9.0>() r = Div(k, f) g = Floor(r)"), "9 / s is not a multiple of a size"),
    (cut("h = Cast<to=10>(f) g = Floor(h)"), "float16 does not hold every size that s may be"),
    (cut("k = Constant<value_float=-0.5>() g = Mul(f, k)"), r"\(- s\) / 2 is negative, so it is not a size"),
    (cut("k = Constant<value_float=0.7>() m = Mul(f, k) q = Div(m, k) g = Floor(q)"), "to another size where s is"),
    (
        cut("""b = Shape<end=1>(x) h = Cast<to=1>(b)
        k = Constant<value_float=0.1>() m = Add(f, h) q = Mul(m, k) g = Floor(q)"""),
        "is computed in float32 from several symbolic sizes, so rounding may change it",
    ),
]


@pytest.mark.parametrize(("body", "match"), ERRORS, ids=[match[:30] for _, match in ERRORS])
def test_errors_name_the_size(body, match):
    with pytest.raises(SizeError, match=match) as caught:
        jaxops.onnx.load(model(VECTOR, body)).export()
    assert "s" in caught.value.symbols
    assert any("in node 'y' (Slice" in note for note in caught.value.__notes__)


def test_a_condition_that_stays_open_names_the_size():
    body = choice("five = Constant<value_int=5>() c = Greater(s, five)")
    with pytest.raises(SizeError, match="if_: `cond` must be static, because the branches differ") as caught:
        jaxops.onnx.load(model("(float[n,s,4] x) => (float[n,s,4] y)", body)).export()
    assert caught.value.symbols == ["s"]


def test_a_comparison_that_floats_round_is_not_that_of_the_sizes():
    """(s / 10) · 10 is s, but not in float32 where s is 13."""
    body = choice("""f = Cast<to=1>(s) k = Constant<value_float=0.1>() t = Constant<value_float=10.0>()
    m = Mul(f, k) q = Mul(m, t) c = Equal(q, f)""")
    loaded = jaxops.onnx.load(model("(float[n,s,4] x) => (float[n,s,4] y)", body))
    with pytest.raises(SizeError, match=r"if_: `cond` must be static.*\n?.*compared in float32, which rounds them"):
        loaded.export()


def test_the_program_of_the_other_sizes_refuses_one():
    loaded = jaxops.onnx.load(model("(float[n,s,4] x) => (float[n,s,4] y)", choice("c = Equal(s, one)")))
    program = loaded.export()
    with pytest.raises(ValueError, match=r"s >= 2"):
        program.call(loaded.params, np.ones((2, 1, 4), np.float32))


def exported(fn):
    return export(jax.jit(fn))(*symbolic_args_specs([jnp.zeros((2, 3))], ["b, 3"]))


def test_each_rounding_is_that_of_numbers():
    """Every factor, at every size up to 2000: the program has NumPy's size, or none."""

    def sized(x, factor, rounding):
        size = jo.gather(jo.shape(x), np.array(0))
        found = rounding(jo.mul(jo.cast(size, to=np.float32), np.float32(factor)))
        return jo.cast(found, to=np.int64)

    def program(x, factor, rounding):
        found = sized(x, factor, rounding)
        if not isinstance(found, np.ndarray):
            raise found.problem("no size")
        return jnp.asarray(found.item())

    pairs = itertools.product((0.5, 0.1, 0.3, 1 / 3, 0.7, 1.1, 1.75, 0.015625, 0.999), (jo.floor, jo.ceil, jo.round))
    known = []
    for factor, rounding in pairs:
        try:
            exported(functools.partial(program, factor=factor, rounding=rounding))
        except SizeError:
            continue
        known.append((factor, rounding))
    assert len(known) > 20
    compiled = exported(lambda x: [program(x, *pair) for pair in known])
    for size in (1, 2, 5, 10, 15, 30, 333, 1000, 1999):
        x = np.zeros((size, 3), np.float32)
        assert compiled.call(x) == [sized(x, *pair) for pair in known]


def test_a_float_of_a_size_is_an_array_to_everybody_else():
    def program(x):
        size = jo.cast(jo.gather(jo.shape(x), np.array(0)), to=np.float32)
        half = 0.5 * size + size**2 - jnp.sqrt(size.astype(np.float32))
        return x / size, size, jo.erf(size), half, jo.add(size, x), [size * 2, -size, size > 1, size.reshape(1)[0]]

    found = exported(program).call(jnp.ones((4, 3)))
    want = program(jnp.ones((4, 3)))
    for got, expected in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_its_value_is_not_known_while_tracing():
    def program(x):
        return np.asarray(jo.cast(jo.shape(x), to=np.float32))

    with pytest.raises(SizeError, match="its value is not known while tracing: it is computed from symbolic sizes"):
        exported(program)


def test_a_size_that_may_be_minus_one_is_told_and_no_warning_is_given():
    steps = """five = Constant<value_ints=[5]>()  minus = Constant<value_ints=[-1]>()  one = Constant<value_ints=[1]>()
        o = Constant<value_floats=[1.0]>()  sh = Shape(x)  t = Sub(sh, five)  c = Equal(t, minus)
        w = Where(c, one, t)  y = Expand(o, w)"""
    loaded = jaxops.onnx.load(model("(float[n] x) => (float[t] y)", steps))
    assert loaded(np.ones(7, np.float32)).shape == (2,)
    with pytest.raises(SizeError, match="the answer for n - 5 and -1 depends on the value of a symbolic size"):
        loaded.export()
