"""Every operator of shape arithmetic on symbolic sizes of both integer types: each result has the type of the file."""

import re

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import helper, shape_inference
from symbolic_graphs import model

import jaxops.onnx

# s: the two sizes of x; v: the first one as a vector, q: as a scalar. v64, q64: these as int64. T: int32 or int64.
GIVEN = """n = Shape(x)  s = Cast<to=KIND>(n)  z = Constant<value=T[1]{0}>()  o = Constant<value=T[1]{1}>()
    t = Constant<value=T[1]{2}>()  z0 = Constant<value=T{0}>()  o0 = Constant<value=T{1}>()
    t0 = Constant<value=T{2}>()  i0 = Constant<value_int=0>()  i1 = Constant<value_ints=[1]>()
    iz = Constant<value_ints=[0]>()  v = Gather(s, iz)  q = Squeeze(v, iz)  v64 = Gather(n, iz)
    q64 = Squeeze(v64, iz)  i2 = Constant<value_ints=[2,1]>()  ones = Constant<value_ints=[1,1]>()
    all = Constant<value_ints=[-1]>()  flat = Reshape(x, all)  half = Constant<value=float[1]{0.5}>()
    f = Cast<to=1>(v)  u = Cast<to=KIND>(x)  places = Unsqueeze(iz, iz)  m = Neg(o0)  w = Add(q, q)
    c = Greater(v, o)  rows = Concat<axis=0>(i1, v64)"""
# Each row gives `r`.
ROWS = """
r = Range(z0, q, o0)
r = Range(q, z0, m)
r = Range(o0, q, t0)
r = Range(q, w, o0)
a = Range(z0, q, o0)  r = Add(a, v)
a = Range(z0, q, o0)  r = Mul(a, q)
a = Range(z0, q, o0)  r = ReduceSum<keepdims=0>(a)
a = Range(z0, q, o0)  b = ReduceSum<keepdims=0>(u, i1)  r = Add(a, b)
a = Range(z0, q, o0)  r = Gather(x, a)
a = Range(z0, q, o0)  r = Slice(a, o, v)
r = Gather(s, i1)
r = GatherElements(s, i1)
r = GatherND(s, i1)
r = Slice(s, z, o)
r = Slice(x, z, v)
r = Concat<axis=0>(v, t)
r = Add(v, o)
r = Sub(v, o)
r = Mul(v, t)
r = Div(v, t)
r = Neg(v)
r = Abs(v)
r = Sign(v)
r = Mod(v, t)
r = Pow(v, t)
r = Cast<to=1>(v)
r = Cast<to=7>(v)
r = Cast<to=6>(v)
r = CastLike(v, o)
r = Cast<to=KIND>(f)
g = Mul(f, half)  k = Floor(g)  r = Cast<to=KIND>(k)
g = Mul(f, half)  k = Ceil(g)  r = Cast<to=KIND>(k)
r = ReduceSum<keepdims=0>(s)
r = ReduceProd<keepdims=1>(s, iz)
r = ReduceMax<keepdims=0>(s)
r = ReduceMin<keepdims=0>(s)
r = ReduceMean<keepdims=0>(s)
r = ReduceL1<keepdims=0>(s)
r = ReduceSumSquare<keepdims=0>(s)
r = Where(c, v, t)
e = Equal(v, z)  r = Where(e, t, v)
r = CumSum(s, i0)
r = Unsqueeze(v, i1)
r = Tile(s, i1)
r = Tile(x, rows)
r = Expand(v, i2)
r = Expand(o, rows)
r = ConstantOfShape<value=T[1]{3}>(v64)
r = Min(v, t)
r = Max(v, t)
r = Clip(v, o0)
r = Clip(v, z0, t0)
r = Clip(u, z0, q)
a, r = TopK(flat, v64)
r = ScatterElements(s, iz, o)
a = Cast<to=KIND>(flat)  r = ScatterElements(a, iz, v)
r = ScatterND(s, places, o)
a = Unsqueeze(i1, iz)  r = ScatterND(s, a, v)
r = Reshape(s, all)
r = Flatten(s)
r, a = Split<axis=0>(s, ones)
r = Transpose(s)
r = Identity(s)
r = Size(x)
r = ArgMax(s)
r = NonZero(s)
a = ConstantOfShape<value=T[1]{3}>(n)  r = Trilu(a, q64)
a = ConstantOfShape<value=T[1]{1}>(n)  r = CumSum(a, i0)
r = Add(u, v)
a = Greater(u, v)  r = Where(a, u, v)
a = Cast<to=KIND>(flat)  r = Concat<axis=0>(a, v)
r = Mod(u, v)
r = Min(u, v)
a = SequenceConstruct(v, v)  r = ConcatFromSequence<axis=0>(a)
r = Equal(v, t)
r = Not(c)
""".strip().splitlines()


def arithmetic(name, kind):
    """One model with an output for each row; its outputs are declared with their types."""
    own = re.compile(r"\b([abegkr])\b(?! *=\d)(?!<)")  # what a row computes gets the number of the row
    rows = [own.sub(rf"\1_{k}", row) for k, row in enumerate(ROWS)]
    body = "  ".join([GIVEN, *rows]).replace("KIND", str(kind)).replace("T[", f"{name}[").replace("T{", f"{name}{{")
    proto = model("(float[b,k] x) => (float[u] y)", f"{body}  y = Identity(flat)")
    types = {v.name: v.type for v in shape_inference.infer_shapes(proto).graph.value_info}
    del proto.graph.output[:]
    for k in range(len(ROWS)):
        proto.graph.output.append(helper.make_value_info(f"r_{k}", types[f"r_{k}"]))
    return proto


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("int32", 6), ("int64", 7)])
def test_each_operator_keeps_the_type_of_the_file(name, kind, x64):
    proto = arithmetic(name, kind)
    loaded, x = jaxops.onnx.load(proto, x64=x64), np.arange(12, dtype=np.float32).reshape(4, 3)
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    with jax.enable_x64(x64):
        program = loaded.export()
        results = program.call(loaded.params, x)
    assert str(program.in_avals[-1]) == "float32[b,k]"
    for row, got, want in zip(ROWS, results, wanted, strict=True):
        expected = want.dtype if x64 or want.dtype != np.int64 else np.dtype(np.int32)
        assert (got.dtype, got.shape) == (expected, want.shape), row
        np.testing.assert_array_equal(got, want, err_msg=row)
