"""The founding operators and their kin at every version the standard has: values, and what a version forbids."""

import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import at_opset
from onnx import TensorProto, defs, helper

import jaxops as jo
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, SignatureError
from jaxops.onnx import opset

NEWEST = defs.onnx_opset_version()
FOUNDERS = [
    "Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity",
    "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
]  # fmt: skip
HISTORY = {
    name: sorted(s.since_version for s in defs.get_all_schemas_with_history() if s.name == name and not s.domain)
    for name in FOUNDERS
}

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
EMPTY = np.zeros((2, 0, 4), np.float32)
ONES = np.arange(3, dtype=np.float32).reshape(1, 3, 1)
END = np.iinfo(np.int64).max


def i64(*values):
    return np.array(values, np.int64)


def first(rows):
    """Rows of (operator, first opset, last opset or None, inputs, attributes, expected outputs) by version."""
    found = []
    for op, low, high, inputs, attributes, expected in rows:
        versions = [v for v in HISTORY[op] if low <= v <= (high or NEWEST)]
        found += [pytest.param(op, v, inputs, attributes, expected, id=f"{op}-{v}-{len(found)}") for v in versions]
    return found


VALUES = first(
    [
        ("Reshape", 1, 1, [X], {"shape": [4, -1]}, [X.reshape(4, 6)]),
        ("Reshape", 1, 1, [X], {"shape": [0, 0, -1]}, [X]),
        ("Reshape", 5, None, [X, i64(4, -1)], {}, [X.reshape(4, 6)]),
        ("Reshape", 5, None, [X, i64(0, 12)], {}, [X.reshape(2, 12)]),
        ("Reshape", 5, None, [X[:1, :1, :1], i64()], {}, [X[0, 0, 0]]),
        ("Reshape", 5, None, [EMPTY, i64(0, 0, 2, 2)], {}, [EMPTY.reshape(2, 0, 2, 2)]),
        ("Reshape", 14, None, [EMPTY, i64(0, 7)], {"allowzero": 1}, [EMPTY.reshape(0, 7)]),
        ("Reshape", 14, None, [X, i64(0, -1)], {"allowzero": 0}, [X.reshape(2, 12)]),
        ("Flatten", 1, None, [X], {}, [X.reshape(2, 12)]),
        ("Flatten", 1, None, [X], {"axis": 0}, [X.reshape(1, 24)]),
        ("Flatten", 1, None, [X], {"axis": 3}, [X.reshape(24, 1)]),
        ("Flatten", 1, None, [EMPTY], {"axis": 1}, [EMPTY.reshape(2, 0)]),
        ("Flatten", 11, None, [X], {"axis": -1}, [X.reshape(6, 4)]),
        ("Flatten", 11, None, [X], {"axis": -3}, [X.reshape(1, 24)]),
        ("Split", 1, 1, [X, np.float32([1, 2])], {"axis": 1}, [X[:, :1], X[:, 1:]]),
        ("Split", 1, 11, [X], {"axis": 1, "split": [1, 2]}, [X[:, :1], X[:, 1:]]),
        ("Split", 1, 13, [X], {"axis": 2, "n_outputs": 2}, [X[..., :2], X[..., 2:]]),
        ("Split", 1, 13, [X], {"n_outputs": 2}, [X[:1], X[1:]]),
        ("Split", 11, 11, [X], {"axis": -2, "split": [1, 2]}, [X[:, :1], X[:, 1:]]),
        ("Split", 13, None, [X, i64(1, 0, 2)], {"axis": -2}, [X[:, :1], X[:, 1:1], X[:, 1:]]),
        ("Split", 18, None, [X], {"axis": 1, "num_outputs": 2}, [X[:, :2], X[:, 2:]]),
        ("Split", 18, None, [X], {"axis": 0, "num_outputs": 2}, [X[:1], X[1:]]),
        ("Shape", 1, None, [X], {}, [i64(2, 3, 4)]),
        ("Shape", 1, None, [X[0, 0, 0]], {}, [i64()]),
        ("Shape", 15, None, [X], {"start": 1}, [i64(3, 4)]),
        ("Shape", 15, None, [X], {"start": -2, "end": -1}, [i64(3)]),
        ("Shape", 15, None, [X], {"start": -9, "end": 9}, [i64(2, 3, 4)]),
        ("Shape", 15, None, [X], {"start": 2, "end": 1}, [i64()]),
        ("Size", 1, None, [X], {}, [np.int64(24)]),
        ("Size", 1, None, [EMPTY], {}, [np.int64(0)]),
        ("Identity", 1, None, [X], {}, [X]),
        ("Squeeze", 1, 11, [ONES], {"axes": [0]}, [ONES[0]]),
        ("Squeeze", 1, None, [ONES], {}, [ONES[0, :, 0]]),
        ("Squeeze", 11, 11, [ONES], {"axes": [-1]}, [ONES[..., 0]]),
        ("Squeeze", 13, None, [ONES, i64(-1, 0)], {}, [ONES[0, :, 0]]),
        ("Unsqueeze", 1, 11, [X], {"axes": [3, 0]}, [X[None, :, :, None]]),
        ("Unsqueeze", 11, 11, [X], {"axes": [-1]}, [X[..., None]]),
        ("Unsqueeze", 13, None, [X, i64(0, -1)], {}, [X[None, ..., None]]),
        ("Transpose", 1, None, [X], {}, [X.T]),
        ("Transpose", 1, None, [X], {"perm": [1, 0, 2]}, [X.swapaxes(0, 1)]),
        ("Concat", 1, 1, [X, X[:, :1]], {}, [np.concatenate([X, X[:, :1]], 1)]),
        ("Concat", 1, None, [X, EMPTY, X], {"axis": 1}, [np.concatenate([X, X], 1)]),
        ("Concat", 11, None, [X, X], {"axis": -3}, [np.concatenate([X, X], 0)]),
        ("Expand", 8, None, [ONES, i64(2, 1, 1, 4)], {}, [np.broadcast_to(ONES, (2, 1, 3, 4))]),
        ("Expand", 8, None, [X, i64(1)], {}, [X]),
        ("Slice", 1, 1, [X], {"starts": [1, -2], "ends": [9, END], "axes": [0, 2]}, [X[1:, :, -2:]]),
        ("Slice", 1, 1, [X], {"starts": [0, 1], "ends": [1, -1]}, [X[:1, 1:-1]]),
        ("Slice", 10, None, [X, i64(0, 1), i64(1, -1)], {}, [X[:1, 1:-1]]),
        ("Slice", 10, None, [X, i64(-1), i64(-END), i64(2), i64(-2)], {}, [X[..., ::-2]]),
        ("Slice", 10, None, [X, np.int32([3]), np.int32([1]), np.int32([1])], {}, [X[:, 3:1]]),
        ("Slice", 11, None, [X, i64(1), i64(END), i64(-1)], {}, [X[..., 1:]]),
        ("Gather", 1, None, [X, i64(1, 0)], {}, [X[[1, 0]]]),
        ("Gather", 1, None, [X, np.int32([[3], [0]])], {"axis": -1}, [X[..., [[3], [0]]]]),
        ("Gather", 11, None, [X, np.int64(-1)], {"axis": 1}, [X[:, -1]]),
        ("Cast", 1, 1, [X - 0.5], {"to": "INT32"}, [(X - 0.5).astype(np.int32)]),
        ("Cast", 6, None, [X - 0.5], {"to": TensorProto.INT64}, [(X - 0.5).astype(np.int64)]),
        ("Cast", 6, None, [X], {"to": TensorProto.BOOL}, [X != 0]),
        ("Cast", 9, None, [np.array(["1.5", "-INF"], object)], {"to": 1}, [np.float32([1.5, -np.inf])]),
        ("Cast", 19, None, [np.float32([500])], {"to": 17, "saturate": 0}, [np.array([np.nan], jnp.float8_e4m3fn)]),
        ("Cast", 19, None, [np.float32([500])], {"to": 17}, [np.array([448], jnp.float8_e4m3fn)]),
        ("Cast", 24, None, [np.float32([3])], {"to": 24, "round_mode": "down"}, [np.array([2], jnp.float8_e8m0fnu)]),
        ("CastLike", 15, None, [X - 0.5, np.int8([1])], {}, [(X - 0.5).astype(np.int8)]),
        ("CastLike", 19, None, [np.float32([500]), np.zeros(1, jnp.float8_e4m3fn)], {"saturate": 0},
         [np.array([np.nan], jnp.float8_e4m3fn)]),
        ("CastLike", 24, None, [np.float32([3]), np.ones(1, jnp.float8_e8m0fnu)], {"round_mode": "down"},
         [np.array([2], jnp.float8_e8m0fnu)]),
        ("Constant", 1, None, [], {"value": X}, [X]),
        ("Constant", 9, None, [], {"value": i64(1, 2)}, [i64(1, 2)]),
        ("Constant", 12, None, [], {"value_int": 3}, [np.int64(3)]),
        ("Constant", 12, None, [], {"value_ints": [3, 4]}, [i64(3, 4)]),
        ("Constant", 12, None, [], {"value_float": 0.5}, [np.float32(0.5)]),
        ("Constant", 12, None, [], {"value_floats": [0.5]}, [np.float32([0.5])]),
        ("Constant", 12, None, [], {"value_string": "a"}, [np.array("a", object)]),
        ("Constant", 12, None, [], {"value_strings": ["a", "b"]}, [np.array(["a", "b"], object)]),
        ("ConstantOfShape", 9, None, [i64(2, 3)], {}, [np.zeros((2, 3), np.float32)]),
        ("ConstantOfShape", 9, None, [i64(0, 2)], {"value": i64(7)}, [np.zeros((0, 2), np.int64)]),
        ("ConstantOfShape", 9, None, [i64()], {"value": i64(7)}, [np.int64(7)]),
        ("ConstantOfShape", 20, None, [i64(1)], {"value": np.array([2], jnp.bfloat16)}, [np.array([2], jnp.bfloat16)]),
    ]
)  # fmt: skip


def same(results, expected):
    """Equal bit for bit, in shape and in type."""
    assert len(results) == len(expected)
    for result, value in zip(map(np.asarray, results), map(np.asarray, expected), strict=True):
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        assert result.tolist() == value.tolist() or result.tobytes() == value.tobytes()


@pytest.mark.parametrize("wrong", [X + 1, X.astype(np.float64), X.T, X[None], np.asfortranarray(X[::-1])])
def test_the_comparison_can_fail(wrong):
    with pytest.raises(AssertionError):
        same([wrong], [X])
    with pytest.raises(AssertionError):
        same([X, X], [X])
    same([np.asfortranarray(X)], [X])


def test_every_version_has_a_row():
    covered = {tuple(row.values[:2]) for row in VALUES}
    assert covered == {(name, v) for name, versions in HISTORY.items() for v in versions}


@pytest.mark.parametrize(("op", "version", "inputs", "attributes", "expected"), VALUES)
def test_value(op, version, inputs, attributes, expected):
    result = getattr(opset(version), op)(*inputs, **attributes)
    same(result if isinstance(result, tuple) else (result,), expected)


@pytest.mark.grid
@pytest.mark.parametrize(("op", "version", "inputs", "attributes", "expected"), VALUES)
def test_onnxruntime_agrees(op, version, inputs, attributes, expected):
    # What onnxruntime has no kernel for, it says when it loads the model; opset 7 is the first it promises.
    if version < 7:
        pytest.skip("onnxruntime begins with opset 7")
    outputs = [f"y{i}" for i in range(attributes.get("n_outputs", len(expected)))]
    attributes = {k: _proto(v) for k, v in attributes.items() if k != "n_outputs"}
    formals = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for i, x in enumerate(map(np.asarray, inputs))
    ]
    node = helper.make_node(op, [f.name for f in formals], outputs, **attributes)
    graph = helper.make_graph([node], op, formals, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        results = session.run(None, {f.name: np.asarray(x) for f, x in zip(formals, inputs, strict=True)})
    except Exception as error:
        text = str(error)
        if any(
            s in text
            for s in (
                "NOT_IMPLEMENTED",
                "under development",
                "Unsupported",
                "not supported",
                "No corresponding Numpy",
                "Numpy_type",
            )
        ):
            pytest.skip(text.splitlines()[0][:100])
        raise
    # It gives 8-bit floats as bytes.
    same([r.view(e.dtype) if r.dtype == np.uint8 else r for r, e in zip(results, expected, strict=True)], expected)


def _proto(value):
    return onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


FORBIDDEN = first(
    [
        ("Reshape", 1, 1, [X, i64(24)], {}, (SignatureError, "got 2 inputs")),
        ("Reshape", 1, 1, [X], {}, (SignatureError, "attribute `shape` is missing")),
        ("Reshape", 5, 13, [X, i64(24)], {"allowzero": 1}, (SignatureError, "unknown attribute `allowzero`")),
        ("Reshape", 5, None, [X, i64(5, -1)], {}, (ShapeError, "24 elements are not a multiple of 5")),
        ("Reshape", 5, None, [X, i64(-1, -1)], {}, (ShapeError, "-1 is at positions 0 and 1")),
        ("Reshape", 5, None, [X, i64(24, -2)], {}, (ShapeError, "-2 at position 1 is negative")),
        ("Reshape", 5, None, [X, i64(24, 1, 1, 0)], {}, (ShapeError, "0 at position 3 copies a size, but data has 3")),
        ("Reshape", 5, None, [EMPTY, i64(0, 0, -1)], {}, (ShapeError, "the other sizes have the product 0")),
        ("Reshape", 14, None, [EMPTY, i64(0, -1)], {"allowzero": 1}, (ShapeError, "cannot have both 0 and -1")),
        ("Reshape", 5, None, [X, np.int32([24])], {}, (DTypeError, "`shape` is int32.*this version takes int64")),
        ("Flatten", 1, 9, [X], {"axis": -1}, (AxisError, "`axis` holds -1; negative axes are allowed from opset 11")),
        ("Flatten", 1, None, [X], {"axis": 4}, (AxisError, "`axis` is 4, but the operand has 3 axes")),
        ("Flatten", 11, None, [X], {"axis": -4}, (AxisError, r"the range is \[-3, 3\]")),
        ("Split", 2, 2, [X, i64(1, 2)], {"axis": 1}, (SignatureError, "got 2 inputs")),
        ("Split", 1, 1, [X, X], {"axis": 1}, (ShapeError, "`split` must be 1-D, but has 3 axes")),
        ("Split", 1, 1, [X, np.float32(2)], {"axis": 1}, (ShapeError, "`split` must be 1-D, but has 0 axes")),
        ("Split", 1, 1, [X, np.float32([np.nan, 1])], {"axis": 1}, (ArgumentError, "`split` must be whole numbers")),
        ("Split", 1, 1, [X, np.float32([0.5, 2.5])], {"axis": 1}, (ArgumentError, "`split` must be whole numbers")),
        ("Split", 13, None, [X, i64(-1, 4)], {"axis": 1}, (ArgumentError, "`split` .* holds -1")),
        ("Split", 1, 13, [X], {"axis": 1, "n_outputs": 2}, (ShapeError, "does not divide into 2 equal outputs")),
        ("Split", 1, 13, [X], {"axis": 1, "num_outputs": 2}, (SignatureError, "unknown attribute `num_outputs`")),
        ("Split", 18, None, [X], {"axis": 1, "n_outputs": 3}, (SignatureError, "`split` or `num_outputs`")),
        ("Split", 18, None, [X, i64(1, 2)], {"axis": 1, "num_outputs": 2}, (SignatureError, "give either the lengths")),
        ("Split", 18, None, [X], {"axis": 1, "num_outputs": 2, "n_outputs": 3}, (SignatureError, "`num_outputs` is 2")),
        ("Split", 13, None, [X, i64(1, 1)], {"axis": 1}, (ShapeError, "sum to 2, but the axis has size 3")),
        ("Split", 13, None, [X, i64(3)], {"axis": 1, "n_outputs": 2}, (SignatureError, "holds 1 length, but 2")),
        ("Shape", 1, 13, [X], {"start": 1}, (SignatureError, "unknown attribute `start`")),
        ("Squeeze", 1, 11, [ONES, i64(0)], {}, (SignatureError, "got 2 inputs")),
        ("Squeeze", 1, 1, [ONES], {"axes": [-1]}, (AxisError, "negative axes are allowed from opset 11")),
        ("Squeeze", 13, None, [ONES, i64(1)], {}, (ShapeError, "axis 1 of .* has size 3, only size 1")),
        ("Unsqueeze", 1, 11, [X], {}, (SignatureError, "required attribute `axes` is missing")),
        ("Unsqueeze", 1, 1, [X], {"axes": [-1]}, (AxisError, "negative axes are allowed from opset 11")),
        ("Unsqueeze", 13, None, [X], {}, (SignatureError, "input 1 `axes` is missing")),
        ("Unsqueeze", 13, None, [X, i64(0, -5)], {}, (AxisError, "`axes` names an axis twice")),
        ("Transpose", 1, None, [X], {"perm": [0, 0, 1]}, (AxisError, "is not a permutation of the 3 axes")),
        ("Transpose", 1, None, [X], {"perm": [0, -1, 1]}, (AxisError, "is not a permutation of the 3 axes")),
        ("Concat", 4, None, [X, X], {}, (SignatureError, "required attribute `axis` is missing")),
        ("Concat", 1, None, [X, X[:1]], {"axis": 1}, (ShapeError, "operand 1 of .* does not fit operand 0")),
        ("Expand", 8, None, [X, i64(2)], {}, (ShapeError, "do not broadcast")),
        ("Expand", 8, None, [X, i64(-1, 4)], {}, (ArgumentError, "holds -1; sizes must not be negative")),
        ("Slice", 1, 1, [X, i64(0), i64(1)], {}, (SignatureError, "required attribute|got 3 inputs")),
        ("Slice", 10, None, [X, i64(0), i64(1), i64(0), i64(0)], {}, (ArgumentError, "`steps` holds 0")),
        ("Slice", 10, None, [X, i64(0), np.int32([1])], {}, (DTypeError, "must have one element type .Tind.")),
        ("Slice", 10, None, [X, i64(0, 1), i64(1)], {}, (ShapeError, "must have one length")),
        ("Gather", 1, None, [X, np.int8([0])], {}, (DTypeError, "this version takes int32, int64")),
        ("Gather", 1, None, [X, i64(2)], {}, (IndexError, "index 2 is outside axis 0 of size 2")),
        ("Cast", 1, 1, [X], {"to": 6}, (ArgumentError, "`to` is 6; it must be of type STRING")),
        ("Cast", 6, None, [X], {"to": "INT32"}, (ArgumentError, "`to` is 'INT32'; it must be of type INT")),
        ("Cast", 6, None, [X], {"to": 999}, (ArgumentError, "`to` is 999, which is not an element type")),
        ("Cast", 6, None, [X], {}, (SignatureError, "required attribute `to` is missing")),
        ("Cast", 6, 13, [X], {"to": 1, "saturate": 1}, (SignatureError, "unknown attribute `saturate`")),
        ("Cast", 19, 23, [X], {"to": 1, "round_mode": "up"}, (SignatureError, "unknown attribute `round_mode`")),
        ("Cast", 24, None, [X], {"to": 24, "round_mode": "odd"}, (ArgumentError, "`round_mode` is 'odd'")),
        ("CastLike", 15, 15, [X, X], {"saturate": 1}, (SignatureError, "unknown attribute `saturate`")),
        ("Constant", 1, 9, [], {}, (SignatureError, "required attribute `value` is missing")),
        ("Constant", 11, None, [], {}, (SignatureError, "give exactly one of value, .* got none")),
        ("Constant", 1, 11, [], {"value_int": 1}, (SignatureError, "unknown attribute `value_int`")),
        ("Constant", 12, None, [], {"value_int": 1, "value": X}, (SignatureError, "got value, value_int")),
        ("ConstantOfShape", 9, None, [np.int32([1])], {}, (DTypeError, "this version takes int64")),
        ("ConstantOfShape", 9, None, [i64(-1)], {}, (ArgumentError, "holds -1; sizes must not be negative")),
        ("ConstantOfShape", 9, None, [i64(1)], {"value": i64(1, 2)}, (ShapeError, "`value` must be one number")),
    ]
)  # fmt: skip


@pytest.mark.parametrize(("op", "version", "inputs", "attributes", "error"), FORBIDDEN)
def test_forbidden(op, version, inputs, attributes, error):
    with pytest.raises(error[0], match=error[1]):
        getattr(opset(version), op)(*inputs, **attributes)


def test_negative_axes_before_11_where_the_text_leaves_them_open():
    # As in onnxruntime, and in models of the standard's own suite.
    assert [piece.shape for piece in opset(2).Split(X, axis=-1, n_outputs=2)] == [(2, 3, 2)] * 2
    assert opset(4).Concat(X, X, axis=-1).shape == (2, 3, 8)
    assert opset(1).Slice(X, starts=[0], ends=[1], axes=[-1]).shape == (2, 3, 1)
    assert opset(10).Slice(X, i64(0), i64(1), i64(-1)).shape == (2, 3, 1)
    np.testing.assert_allclose(opset(1).Softmax(np.float32(X), axis=-1), opset(13).Softmax(np.float32(X)), rtol=1e-6)


def test_the_last_piece_may_be_empty():
    # ceil(4 / 3) is 2: the text allows it ("the last chunk will be smaller"); onnxruntime refuses it.
    assert [piece.shape[2] for piece in opset(18).Split(X, axis=2, num_outputs=3)] == [2, 2, 0]


def test_reshape_from_5_on_takes_its_shape_as_an_input_also_by_name():
    assert opset(5).Reshape(X, shape=[24]).shape == (24,)


@pytest.mark.parametrize(
    ("name", "operand", "formal"),
    [("ReduceSum", 1, "axes"), ("Squeeze", 0, "axes"), ("Expand", 3, "shape"), ("Tile", 2, "repeats")],
)
def test_one_integer_is_no_vector(name, operand, formal):
    """The functions take it, as NumPy does; an opset says 1-D."""
    x = np.ones((1,) if name == "Tile" else (1, 3), np.float32)
    direct = {"ReduceSum": jo.reduce_sum, "Squeeze": jo.squeeze, "Expand": jo.expand, "Tile": jo.tile}[name]
    assert direct(x, operand).ndim >= 1
    with pytest.raises(ShapeError, match=f"{name}-13: input 1 `{formal}` must be 1-D, but has 0 axes"):
        getattr(opset(18), name)(x, operand)


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "error", "match"),
    [
        ("Tile", 1, [X, np.float32([1, 2]), np.float32(0)], ShapeError, "`tiles` must be one number, got 2"),
        ("Tile", 1, [X, np.float32(1.5), np.float32(0)], ArgumentError, "`tiles` must be whole numbers"),
        ("Resize", 10, [X, np.float32(2)], ShapeError, r"`scales` of \(\) must be \(3,\), a number for each axis"),
    ],
)
def test_static_numbers_of_early_versions(op, opset, inputs, error, match):
    with pytest.raises(error, match=match):
        at_opset(op, opset, *inputs)
