"""`jaxops.onnx.opset(n)` as a thing to call: operands, attributes, signatures, text, and its refusals."""

import inspect
import pydoc

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from onnx import defs

from jaxops.errors import ArgumentError, DTypeError, JaxopsError, ShapeError, SignatureError, StaticError
from jaxops.onnx import opset

X = np.arange(6, dtype=np.float32).reshape(2, 3)
NEWEST = defs.onnx_opset_version()


def test_inputs_by_position_and_by_name():
    op = opset(14)
    for given in (
        op.Reshape(X, [3, 2]),
        op.Reshape(data=X, shape=[3, 2]),
        op.Reshape(X, shape=np.array([3, 2])),
        op.Reshape(shape=(3, 2), data=X),
        op.Reshape(X, jnp.array([3, 2]), allowzero=True),
    ):
        np.testing.assert_array_equal(given, X.reshape(3, 2))


def test_a_variadic_input_by_many_positions_or_one_list():
    op = opset(13)
    for given in (op.Concat(X, X, axis=-1), op.Concat([X, X], axis=-1), op.Concat((X, X), axis=-1)):
        np.testing.assert_array_equal(given, np.concatenate([X, X], -1))


@pytest.mark.parametrize(
    ("value", "kin", "dtype"),
    [
        (1, None, np.int64),
        (1.0, None, np.float32),
        (True, None, np.bool_),
        ([1, 2], None, np.int64),
        ([], None, np.int64),
        ([[1.5], [2.0]], None, np.float32),
        ("a", None, object),
        (1, np.float16, np.float16),
        (1, jnp.bfloat16, jnp.bfloat16),
        ([1], np.uint8, np.uint8),
        (1.5, np.float64, np.float64),
        (1.5, jnp.bfloat16, jnp.bfloat16),
        (255, np.uint8, np.uint8),
        (1, np.bool_, np.bool_),
        (3.4028235e38, np.float32, np.float32),
        (np.inf, np.float16, np.float16),
        ([], np.int32, np.int32),
    ],
)
def test_python_numbers_take_the_type_of_their_kin(value, kin, dtype):
    if kin is None:
        assert opset(14).Identity(value).dtype == dtype
    else:
        result = opset(14).Concat(np.zeros(1, kin), np.atleast_1d(value).tolist(), axis=0)
        assert result.dtype == dtype


@pytest.mark.parametrize(
    ("kin", "value", "text"),
    [
        (np.int8, 300, "300, but int8 holds -128 to 127"),
        (np.int8, [1, -129], "-129, but int8"),
        (np.uint8, -1, "-1, but uint8 holds 0 to 255"),
        (np.uint64, -1, "-1, but uint64"),
        (np.int64, 2**63, "9223372036854775808, but int64"),
        (np.int64, 2**64, "18446744073709551616, which no type"),
        (jnp.int4, 8, "8, but int4 holds -8 to 7"),
        (np.bool_, 2, "2, but bool holds 0 to 1"),
        (np.float16, 1e6, r"1000000.0, but float16 holds -65504.0 to 65504.0"),
        (np.float16, 10**6, "1000000, but float16"),
        (np.float32, -1e60, r"-1e\+60, but float32"),
        (jnp.bfloat16, 1e39, r"1e\+39, but bfloat16"),
        (jnp.float8_e4m3fn, 1000, "1000, but float8_e4m3fn"),
    ],
)
def test_a_number_that_its_kin_cannot_hold(kin, value, text):
    with pytest.raises(ArgumentError, match=f"Where-16: input `Y` is {text}"):
        opset(24).Where(np.array([True]), np.zeros(1, kin), value)


def test_a_number_without_kin_that_float32_cannot_hold():
    with pytest.raises(ArgumentError, match=r"input `input` is 1e\+60, but float32"):
        opset(24).Identity(1e60)
    with pytest.raises(ArgumentError, match=r"attribute `value` is 1e\+60, but float32"):
        opset(24).Constant(value=[1e60])


def test_a_float_does_not_become_an_integer_to_please_its_kin():
    with pytest.raises(DTypeError, match=r"inputs `A` and `B` must have one element type \(T\)"):
        opset(14).Add(np.arange(3), 0.5)


def test_static_stays_static_and_traced_stays_traced():
    op = opset(18)
    assert isinstance(op.Reshape(X, [6]), np.ndarray)
    assert isinstance(op.Reshape(jnp.array(X), [6]), jax.Array)
    assert isinstance(op.Shape(jnp.array(X)), np.ndarray)


def test_under_jit_a_shape_is_computed_from_a_shape():
    op = opset(18)

    @jax.jit
    def flat(x):
        return op.Reshape(x, op.Concat(op.Gather(op.Shape(x), [0]), [-1], axis=0))

    np.testing.assert_array_equal(flat(X), X)


def test_grad_and_vmap_pass_through():
    op = opset(11)
    grad = jax.grad(lambda x: op.ReduceSum(op.Mul(op.Flatten(x, axis=-1), 3.0), keepdims=0))(jnp.array(X))
    np.testing.assert_array_equal(grad, np.full_like(X, 3))
    assert jax.vmap(lambda x: op.Unsqueeze(x, axes=[0]))(X).shape == (2, 1, 3)


def test_attributes_from_lists_arrays_and_numpy_integers():
    op = opset(11)
    for axes in ([0], (0,), np.array([0]), np.array([0], np.int32), jnp.array([0]), [np.int64(0)]):
        assert op.Unsqueeze(X, axes=axes).shape == (1, 2, 3)
    for axis in (np.int64(1), np.array(1), np.array([1]), jnp.array(1), jnp.array([1])):
        assert op.Flatten(X, axis=axis).shape == (2, 3)
    np.testing.assert_array_equal(op.Elu(-X, alpha=np.array(0.0)), -X * 0)


@pytest.mark.parametrize("value", [np.arange(3), [0, 1, 2], (0, 1, 2), jnp.arange(3), np.arange(3)[:, None]])
def test_a_tensor_attribute_is_an_array(value):
    expected = np.asarray(value)
    result = opset(11).Constant(value=value)
    np.testing.assert_array_equal(result, expected)
    assert result.shape == expected.shape


def test_the_number_of_outputs():
    op = opset(18)
    assert len(op.Split(X, [1, 2], axis=1)) == 2
    assert len(op.Split(X, axis=1, num_outputs=2)) == 2
    assert len(opset(13).Split(X, axis=1, n_outputs=3)) == 3
    (only,) = op.Split(X, [3], axis=1)  # as many as there are: still a tuple
    np.testing.assert_array_equal(only, X)


def test_identity_keeps_a_list_of_arrays_a_sequence_where_the_version_has_sequences():
    assert isinstance(opset(14).Identity([X, X]), list)
    assert opset(13).Identity([X, X]).shape == (2, 2, 3)


REFUSED = [
    (
        "unknown attribute",
        13,
        lambda op: op.Reshape(X, [6], allowzero=0),
        SignatureError,
        "Reshape-13: unknown attribute `allowzero`; the version has: none",
    ),
    (
        "attribute of later version",
        10,
        lambda op: op.Slice(X, [0], [1], ends=3, starts=1),
        SignatureError,
        "given twice",
    ),
    (
        "surplus input",
        14,
        lambda op: op.Reshape(X, [6], 1),
        SignatureError,
        "got 3 inputs, but the version takes 2:",
    ),
    ("missing input", 14, lambda op: op.Reshape(X), SignatureError, "Reshape-14: input 1 `shape` is missing"),
    ("missing first input", 14, lambda op: op.Reshape(shape=[6]), SignatureError, "input 0 `data` is missing"),
    ("input given as None", 14, lambda op: op.Reshape(None, [6]), SignatureError, "input 0 `data` is missing"),
    ("input given twice", 14, lambda op: op.Reshape(X, [6], shape=[6]), SignatureError, "`shape` was given twice"),
    ("inputs where there are none", 13, lambda op: op.Constant(X), SignatureError, "takes no inputs, but got 1"),
    ("no variadic input", 13, lambda op: op.Concat(axis=0), SignatureError, "got 0 inputs"),
    ("variadic by name", 13, lambda op: op.Concat(inputs=[X], axis=0), SignatureError, "inputs; give them by position"),
    ("required attribute", 13, lambda op: op.Concat(X), SignatureError, "required attribute `axis` is missing"),
    (
        "float for an integer",
        14,
        lambda op: op.Flatten(X, axis=1.0),
        ArgumentError,
        "`axis` is 1.0; it must be of type INT",
    ),
    (
        "string for an integer",
        14,
        lambda op: op.Flatten(X, axis="1"),
        ArgumentError,
        "`axis` is '1'; it must be of type INT",
    ),
    (
        "array of floats for an integer",
        14,
        lambda op: op.Flatten(X, axis=np.array(1.0)),
        ArgumentError,
        "`axis` is 1.0; it must be of type INT",
    ),
    (
        "array of no axes for integers",
        11,
        lambda op: op.Squeeze(X, axes=np.array(0)),
        ArgumentError,
        r"`axes` is 0; it must be a sequence \(INTS\)",
    ),
    ("lengths without an axis", 13, lambda op: op.Split(X, 2), ShapeError, "`split` must be 1-D, but has 0 axes"),
    ("no element type", 24, lambda op: op.Cast(X, to=77), ArgumentError, "Cast-24: `to` is 77, which is not"),
    ("no element type by name", 1, lambda op: op.Cast(X, to="FLOAT9"), ArgumentError, "`to` is 'FLOAT9', which is not"),
    (
        "type of a later version",
        22,
        lambda op: op.EyeLike(X, dtype=17),
        DTypeError,
        "EyeLike-22: output `output` would be float8e4m3fn, as `dtype` says; this version gives bfloat16, bool",
    ),
    (
        "padding that there is not",
        24,
        lambda op: op.MaxPool(X[None, None], kernel_shape=[1, 1], auto_pad="FOO"),
        ArgumentError,
        "MaxPool-22: `auto_pad` is 'FOO'; it must be one of 'NOTSET', 'SAME_UPPER'",
    ),
    (
        "8-bit type that the standard has not",
        24,
        lambda op: op.Relu(np.zeros(2, ml_dtypes.float8_e4m3b11fnuz)),
        DTypeError,
        r"Relu-14: input 0 `X` is float8_e4m3b11fnuz\[2\].*; this version takes bfloat16",
    ),
    (
        "dates",
        24,
        lambda op: op.Add(np.zeros(2, "datetime64[D]"), 1),
        DTypeError,
        r"input 0 `A` is datetime64\[D\]\[2\]",
    ),
    (
        "random keys",
        24,
        lambda op: op.Relu(jax.random.key(0)),
        DTypeError,
        "input 0 `X` holds key<fry>, which are not numbers",
    ),
    (
        "integer for integers",
        11,
        lambda op: op.Squeeze(X, axes=0),
        ArgumentError,
        r"`axes` is 0; it must be a sequence \(INTS\)",
    ),
    (
        "floats for integers",
        11,
        lambda op: op.Squeeze(X, axes=[0.0]),
        ArgumentError,
        r"`axes` is \(0.0,\); it must be of type INTS",
    ),
    (
        "number for a string",
        24,
        lambda op: op.Cast(X, to=1, round_mode=1),
        ArgumentError,
        "`round_mode` is 1; it must be of type STRING",
    ),
    (
        "shape of int32",
        14,
        lambda op: op.Reshape(X, np.int32([6])),
        DTypeError,
        r"input 1 `shape` is int32\[1\] \[6\]; this version takes int64; convert with Cast",
    ),
    ("shape of floats", 14, lambda op: op.Reshape(X, [6.0]), DTypeError, "`shape` is float32"),
    ("shape of booleans", 14, lambda op: op.Reshape(X, [True]), DTypeError, "`shape` is bool"),
    ("shape of two axes", 14, lambda op: op.Reshape(X, [[6]]), ShapeError, "`shape` must be 1-D, but has 2 axes"),
    (
        "types that differ",
        13,
        lambda op: op.Concat(X, X.astype(np.float16), axis=0),
        DTypeError,
        r"must have one element type \(T\), got tensor\(float\) and tensor\(float16\)",
    ),
    ("random key", 14, lambda op: op.Relu(X, rng=jax.random.key(0)), SignatureError, "no random numbers; leave out"),
    (
        "outputs beyond the version",
        14,
        lambda op: op.Relu(X, n_outputs=2),
        SignatureError,
        "2 outputs asked for, but the version has 1",
    ),
    ("outputs left open", 13, lambda op: op.Split(X), SignatureError, "outputs is unknown; give `n_outputs`"),
    ("an attribute by position", 13, lambda op: op.Flatten(X, 1), SignatureError, r"its attributes are \['axis'\]"),
    ("jax arrays in a list", 14, lambda op: op.Reshape(X, [jnp.int32(6)]), SignatureError, "stack them into one array"),
    ("a missing input", 14, lambda op: op.Add(X), SignatureError, r"`B` is missing; the inputs are \[\'A\', \'B\'\]"),
]


@pytest.mark.parametrize(
    ("version", "call", "error", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(version, call, error, text):
    with pytest.raises(error, match=text) as raised:
        call(opset(version))
    assert isinstance(raised.value, JaxopsError)


def test_a_traced_shape_says_what_to_do():
    with pytest.raises(StaticError, match=r"`shape` must be known while tracing(.|\n)*hint") as raised:
        jax.jit(lambda x, s: opset(14).Reshape(x, s))(X, jnp.array([6]))
    assert "in node 'Reshape-14' (Reshape, opset 14)" in raised.value.__notes__[0]
    assert "data    'data' float32[2,3]" in raised.value.__notes__[0]


def test_a_traced_attribute_says_what_to_do():
    with pytest.raises(StaticError, match="`axis` must be known while tracing"):
        jax.jit(lambda x, axis: opset(14).Flatten(x, axis=axis))(X, 1)
    with pytest.raises(StaticError, match="split: `split` must be known while tracing"):
        jax.jit(lambda x, split: opset(14).Split(x, split))(X, np.array([1, 1]))


@pytest.mark.parametrize("version", [0, -1, NEWEST + 1, "9", 9.0, None])
def test_opsets_that_are_not_there(version):
    with pytest.raises(ArgumentError, match=f"opset .*: the installed onnx knows opsets 1 to {NEWEST}"):
        opset(version)


@pytest.mark.parametrize(
    ("version", "name", "text"),
    [
        (8, "ConstantOfShape", "ConstantOfShape: not in opset 8; it begins with opset 9"),
        (9, "Nope", "Nope: not in opset 9; the standard has no such operator"),
        (10, "Upsample", "Upsample: deprecated since opset 10"),
    ],
)
def test_operators_that_are_not_there(version, name, text):
    with pytest.raises(AttributeError, match=text):
        getattr(opset(version), name)
    assert not hasattr(opset(version), name)
    assert name not in dir(opset(version))


def test_dir_lists_what_can_be_called():
    for version in (1, 9, 18, NEWEST):
        op, names = opset(version), set(dir(opset(version)))
        assert {"Reshape", "Flatten", "Split", "Identity", "Transpose"} <= names
        functions = [name for name in names - {"version", "domain"} if not name.startswith("_")]
        assert all(callable(getattr(op, name)) for name in functions)
    assert "Expand" not in dir(opset(7))
    assert "Expand" in dir(opset(8))


def test_help_is_the_text_of_the_version():
    old, new = (pydoc.render_doc(opset(n).Reshape, renderer=pydoc.plaintext) for n in (5, 14))
    assert "Reshape(data, shape)" in old
    assert "Reshape, version 5 (opset 5)" in old
    assert "allowzero" not in old
    assert "Reshape(data, shape, *, allowzero=0)" in new
    assert "At most one dimension of the new shape can be -1" in new
    assert "shape: tensor(int64)" in new
    assert "allowzero: int" in new
    assert "tensor(bfloat16)" in new
    assert "version 14 (opset 17)" in opset(17).Reshape.__doc__


@pytest.mark.parametrize(
    ("version", "name", "expected"),
    [
        (1, "Flatten", "(input, *, axis=1)"),
        (1, "Reshape", "(data, *, consumed_inputs=None, shape=None)"),
        (14, "Reshape", "(data, shape, *, allowzero=0)"),
        (13, "Concat", "(*inputs, axis)"),
        (13, "Split", "(input, split=None, *, axis=0, n_outputs=None)"),
        (10, "Slice", "(data, starts, ends, axes=None, steps=None)"),
        (1, "Gather", "(data, indices, *, axis=0)"),
        (9, "Cast", "(input, *, to)"),
        (14, "Dropout", None),
    ],
)
def test_signature(version, name, expected):
    signature = inspect.signature(getattr(opset(version), name))
    if expected is None:
        assert {"n_outputs", "rng"} <= set(signature.parameters)
    else:
        assert str(signature) == expected


def test_repr():
    assert repr(opset(9)) == "jaxops.onnx.opset(9)"
    assert opset(9).Flatten.__name__ == "Flatten"
