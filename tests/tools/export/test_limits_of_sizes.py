"""The limits that an export finds in a model. Within them it gives what onnxruntime gives, beyond them it refuses."""

from typing import NamedTuple

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper
from symbolic_graphs import inputs, model

import jaxops.onnx
from jaxops.errors import ShapeError, SizeError


class Limited(NamedTuple):
    name: str
    head: str
    body: str
    serves: tuple[dict[str, int], ...]
    refuses: tuple[tuple[dict[str, int], str], ...] = ()  # sizes, and the limit that the error names
    opset: int = 18
    sizes: dict[str, int | str] | None = None  # given to `export`
    fixed: tuple[tuple[str, np.ndarray], ...] = ()  # initializers

    def __str__(self):
        return self.name


FEW = """zero = Constant<value_ints=[0]>()  most = Constant<value_ints=[63]>()  one = Constant<value_ints=[1]>()
    cut = Slice(x, zero, most, one)"""
# As PyTorch writes `squeeze(-1)` of a free size; a matrix is needed behind it.
SQUEEZED = """frames = Conv<strides=[8]>(x, w)  sizes = Shape(frames)  minus = Constant<value_ints=[-1]>()
    last = Gather(sizes, minus)  one = Constant<value_ints=[1]>()  alone = Equal(last, one)
    row = If(alone) <then_branch = a () => (float[i,j] p) { p = Squeeze(frames, minus) },
    else_branch = b () => (float[i,j,k] q) { q = Identity(frames) }>  y = Gemm(row, v)"""
PLACES = np.arange(12).reshape(4, 3) % 3

LIMITED = [
    Limited(
        "squeeze without axes",
        "(float[b,s,5] x) => (float[b,s,5] y)",
        "y = Squeeze(x)",
        ({"b": 2, "s": 3}, {"b": 7, "s": 2}),
        (({"b": 1, "s": 3}, "b >= 2"), ({"b": 3, "s": 1}, "s >= 2")),
    ),
    Limited(
        "squeeze without axes, in a model of opset 11",
        "(float[b,1,s] x) => (float[b,s] y)",
        "p = Relu(x)  y = Squeeze(p)",
        ({"b": 2, "s": 3},),
        (({"b": 1, "s": 3}, "b >= 2"),),
        11,
        {"b": "b >= 2"},
    ),
    Limited(
        "squeeze without axes, of one sample",
        "(float[b,1,s] x) => (float[s] y)",
        "y = Squeeze(x)",
        ({"b": 1, "s": 3},),
        sizes={"b": 1},
    ),
    Limited(
        "negative pads",
        "(float[b,h,w] x) => (float[b,i,j] y)",
        "p = Constant<value_ints=[0,-1,-2,0,-1,-1]>()  y = Pad(x, p)",
        ({"b": 1, "h": 3, "w": 4}, {"b": 2, "h": 9, "w": 5}),
        (({"b": 1, "h": 1, "w": 9}, "h >= 2"), ({"b": 1, "h": 9, "w": 2}, "w >= 3")),
    ),
    Limited(
        "frames of a window",
        "(float[b,t,1] x, float[16] w) => (float[b,f,9,2] y)",
        "s = Constant<value_int=4>()  y = STFT(x, s, w)",
        ({"b": 1, "t": 16}, {"b": 2, "t": 43}),
        (({"b": 1, "t": 15}, "t >= 16"),),
    ),
    Limited(
        "elements gathered of fewer rows",
        "(float[b,t,2] x, int64[b,t,2] i) => (float[b,t,2] y)",
        FEW + "  y = GatherElements<axis=2>(cut, i)",
        ({"b": 1, "t": 63}, {"b": 3, "t": 5}),
        (({"b": 1, "t": 64}, "t <= 63"),),
    ),
    Limited(
        "elements gathered of fewer rows of all heads",
        "(float[b,t,4,2] x, int64[b,t,4,2] i) => (float[n,2] y)",
        FEW
        + """  s = Constant<value_ints=[-1,2]>()  c = Reshape(cut, s)  j = Reshape(i, s)
        y = GatherElements<axis=1>(c, j)""",
        ({"b": 1, "t": 63}, {"b": 3, "t": 5}),
        (({"b": 1, "t": 64}, "t <= 63"),),
    ),
    Limited(
        "elements gathered by a fixed number of indices",
        "(float[b,3] x) => (float[4,3] y)",
        "y = GatherElements<axis=1>(x, places)",
        ({"b": 4}, {"b": 9}),
        (({"b": 3}, "b >= 4"),),
        fixed=(("places", PLACES),),
    ),
    Limited(
        "elements scattered by a fixed number of indices",
        "(float[b,3] x) => (float[b,3] y)",
        "y = ScatterElements<axis=1>(x, places, new)",
        ({"b": 4}, {"b": 9}),
        (({"b": 3}, "b >= 4"),),
        fixed=(("places", PLACES), ("new", np.ones((4, 3), np.float32))),
    ),
    Limited(
        "elements gathered of a fixed number of rows",
        "(int64[s,2] i, float[63,2] x) => (float[s,2] y)",
        "y = GatherElements<axis=1>(x, i)",
        ({"s": 63}, {"s": 1}),
        (({"s": 64}, "s <= 63"),),
    ),
    Limited(
        "a cache of fewer rows of all heads",
        "(float[b,t,4,2] x) => (float[n,1,2] y)",
        FEW
        + """  s = Constant<value_ints=[-1,1,2]>()  c = Reshape(cut, s)  d = Reshape(x, s)
        y = TensorScatter(d, c)""",
        ({"b": 1, "t": 63}, {"b": 3, "t": 5}),
        (({"b": 1, "t": 64}, "t <= 63"),),
        24,
    ),
    Limited(
        "a size that is at most the half of a table",
        "(float[b,t,2] x, float[16,2] table) => (float[b,t,4] y)",
        """shape = Shape<start=1,end=2>(x)  sum = Add(shape, shape)  zero = Constant<value_ints=[0]>()
        p = Slice(table, zero, sum, zero)  minus = Constant<value_ints=[-1]>()  four = Constant<value_ints=[4]>()
        target = Concat<axis=0>(shape, four)  q = Reshape(p, target)  one = Constant<value_ints=[2]>()
        z = Concat<axis=2>(x, x)  y = Add(z, q)""",
        ({"b": 2, "t": 8}, {"b": 1, "t": 3}),
        (({"b": 2, "t": 9}, "t <= 8"),),
    ),
    Limited(
        "the last row of what is left of an image",
        "(float[b,h] x) => (float[b,i] y)",
        """axes = Constant<value_ints=[1]>()  three = Unsqueeze(x, axes)
        rows = MaxPool<kernel_shape=[4],strides=[4],ceil_mode=0>(three)
        last = Constant<value_ints=[-1]>()  end = Constant<value_ints=[9223372036854775807]>()
        two = Constant<value_ints=[2]>()  row = Slice(rows, last, end, two)  all = Sub(rows, row)
        y = Squeeze(all, axes)""",
        ({"b": 1, "h": 4}, {"b": 3, "h": 22}),
        (({"b": 2, "h": 3}, "h >= 4"),),
    ),
    Limited(
        "groups of channels",
        "(float[b,c,h] x, float[2] scale, float[2] bias) => (float[b,c,h] y)",
        "y = GroupNormalization<num_groups=2>(x, scale, bias)",
        ({"b": 1, "c": 4, "h": 3}, {"b": 2, "c": 6, "h": 5}),
    ),
    Limited(
        "columns that become images",
        "(float[b,c,l] x) => (float[b,d,5,5] y)",
        """image = Constant<value_ints=[5,5]>()  block = Constant<value_ints=[2,3]>()  y = Col2Im(x, image, block)""",
        ({"b": 1, "c": 6, "l": 12}, {"b": 2, "c": 18, "l": 12}),
    ),
    Limited(
        "the two values of a OneHot",
        "(int64[b] x, float[v] values) => (float[b,3] y)",
        "depth = Constant<value_int=3>()  y = OneHot(x, depth, values)",
        ({"b": 4, "v": 2}, {"b": 1, "v": 2}),
    ),
    Limited(
        "places of elements under another name",
        "(float[b,c,h,w] x, int64[b,d,h,w] i) => (float[b,c,j,k] y)",
        "y = MaxUnpool<kernel_shape=[2,2],strides=[2,2]>(x, i)",
        ({"b": 1, "c": 2, "h": 3, "w": 4, "d": 2}, {"b": 2, "c": 1, "h": 5, "w": 2, "d": 1}),
    ),
    Limited(
        "real numbers on a last axis that has a name",
        "(float[b,8,r] x) => (float[b,8,2] y)",
        "y = DFT<axis=1>(x)",
        ({"b": 1, "r": 1}, {"b": 2, "r": 1}),
        opset=17,
    ),
    Limited(
        "an end of a billion, as TensorFlow writes it, in a mask for all samples",
        "(float[b,s,s] x, float[s,s] z) => (float[b,s,s] y)",
        """zero = Constant<value_ints=[0]>()  end = Constant<value_ints=[1000000000]>()
        part = Slice(z, zero, end, zero)  y = Add(x, part)""",
        ({"b": 2, "s": 5}, {"b": 1, "s": 3}),
    ),
    Limited(
        "an end of a billion of positions that are reshaped",
        "(float[b,s,8] x) => (float[b,s,8] y)",
        """zero = Constant<value_int=0>()  one = Constant<value_int=1>()  n = Shape<start=1,end=2>(x)
        axis = Constant<value_ints=[0]>()  count = Squeeze(n, axis)  r = Range(zero, count, one)
        end = Constant<value_ints=[1000000000]>()  part = Slice(r, axis, end, axis)  f = Cast<to=1>(part)
        eight = Constant<value_ints=[1,-1,1]>()  column = Reshape(f, eight)  wide = Concat<axis=2>(column, column)
        shape = Concat<axis=0>(n, two)  flat = Reshape(wide, shape)  sums = ReduceSum<keepdims=0>(flat, last)
        places = Unsqueeze(sums, last)  y = Add(x, places)""",
        ({"b": 2, "s": 5}, {"b": 1, "s": 3}),
        fixed=(("two", np.array([2])), ("last", np.array([1]))),
    ),
    Limited(
        "what is padded by a difference less its half",
        "(float[b,1,s] x) => (float[b,2,s] y)",
        """p = MaxPool<kernel_shape=[2],strides=[2]>(x)  u = Concat<axis=2>(p, p)  n = Shape<start=2,end=3>(x)
        m = Shape<start=2,end=3>(u)  d = Sub(n, m)  two = Constant<value_ints=[2]>()  half = Div(d, two)
        right = Sub(d, half)  pads = Concat<axis=0>(zeros, right)  q = Pad(u, pads)  y = Concat<axis=1>(x, q)""",
        ({"b": 2, "s": 5}, {"b": 1, "s": 12}),
        fixed=(("zeros", np.array([0, 0, 0, 0, 0])),),
    ),
    Limited(
        "an end that counts from the last element",
        "(float[b,s] x) => (float[b,t] y)",
        """n = Shape<start=1,end=2>(x)  four = Constant<value_ints=[4]>()  quarter = Div(n, four)  end = Neg(quarter)
        axis = Constant<value_ints=[1]>()  y = Slice(x, quarter, end, axis)""",
        ({"b": 2, "s": 5}, {"b": 1, "s": 12}),
        (({"b": 2, "s": 3}, "s >= 4"),),
    ),
    Limited(
        "a branch for one frame, as all others fail",
        "(float[b,1,t] x, float[4,1,8] w, float[4,3] v) => (float[b,3] y)",
        SQUEEZED,
        ({"b": 1, "t": 8}, {"b": 3, "t": 15}),
        (
            ({"b": 1, "t": 7}, "t >= 8|constraint floordiv\\(t, 8\\) == 1"),
            ({"b": 1, "t": 16}, "floordiv\\(t, 8\\) == 1"),
        ),
    ),
    Limited(
        "the middle of longer and of shorter images",
        "(float[b,h,w] x) => (float[b,10,13] y)",
        "p = Constant<value_ints=[10,13]>()  y = CenterCropPad<axes=[1,2]>(x, p)",
        tuple({"b": 2, "h": h, "w": w} for h in (1, 7, 10, 14, 15) for w in (2, 12, 13, 14, 40)),
    ),
]


def checked(row):
    """The exported program, and its inputs at sizes; both are those of the model."""
    proto = model(row.head, row.body, row.opset)
    proto.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in row.fixed)
    loaded = jaxops.onnx.load(proto)
    return proto, loaded, loaded.export(sizes=row.sizes)


@pytest.mark.parametrize("row", LIMITED, ids=str)
def test_within_and_beyond(row):
    proto, loaded, program = checked(row)
    runtime = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [value.name for value in loaded.inputs]
    for sizes in row.serves:
        values = inputs(loaded, sizes)
        wanted = runtime.run(None, dict(zip(names, values, strict=True)))
        for got, want in zip(jax.tree.leaves(program.call(loaded.params, *values)), wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    for sizes, limit in row.refuses:
        with pytest.raises(ValueError, match=f"constraint {limit}\\."):
            program.call(loaded.params, *inputs(loaded, sizes))


def test_an_error_without_export_names_the_limit():
    """`jax.export` has the limits that it is given."""
    loaded = jaxops.onnx.load(model("(float[b,s] x) => (float[b,s] y)", "y = Squeeze(x)"))
    (spec,) = jax.export.symbolic_args_specs([np.zeros((2, 2), "f4")], ["b, s"])
    with pytest.raises(SizeError, match=r"squeeze: b of \(b, s\) may be 1 or larger.*`axes`\n.*sizes={'b': 'b >= 2'}"):
        jax.export.export(jax.jit(loaded.apply))(loaded.params, spec)


def test_the_size_that_a_branch_asks_for_is_named_first():
    """Where both answers fail: the first input says another size before it."""
    head = "(float[b,1,t] x, float[4,1,8] w, float[5,3] v) => (float[b,3] y)"
    with pytest.raises(ShapeError, match="gemm: ") as caught:
        jaxops.onnx.load(model(head, SQUEEZED)).export()
    assert any("symbolic t, b, fix one: sizes={'t': 128}" in note for note in caught.value.__notes__)


def test_the_middle_is_differentiable():
    """Of a free size, too: what is cropped has the gradient 0."""
    loaded = jaxops.onnx.load(
        model("(float[h] x) => (float[4] y)", "p = Constant<value_ints=[4]>()  y = CenterCropPad(x, p)")
    )
    (spec,) = jax.export.symbolic_args_specs([np.zeros(2, "f4")], ["h"])
    program = jax.export.export(jax.jit(lambda x: jax.vjp(loaded.apply, loaded.params, x)[1](np.ones(4, "f4"))[1]))(
        spec
    )
    assert program.call(np.ones(7, "f4")).tolist() == [0, 1, 1, 1, 1, 0, 0]
    assert program.call(np.ones(2, "f4")).tolist() == [1, 1]
