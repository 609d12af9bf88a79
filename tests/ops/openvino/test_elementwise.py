"""FakeConvert, ErfInv, GRN, SquaredDifference and ConvertPromoteTypes against NumPy and against OpenVINO."""

import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.test_util import check_grads
from openvino_peer import agree

from jaxops.errors import ArgumentError, DTypeError, ShapeError
from jaxops.openvino import ops

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 3, 7, 5)).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "dtype", "most"), [("f8e4m3", ml_dtypes.float8_e4m3fn, 448), ("f8e5m2", ml_dtypes.float8_e5m2, 57344)]
)
def test_fake_convert(kind, dtype, most):
    scale = RNG.uniform(1, 3, (3, 1, 1)).astype(np.float32)
    shift = RNG.normal(size=(3, 1, 1)).astype(np.float32)
    wide = np.clip(X * scale - shift, -most, most).astype(np.float16)
    expected = (wide.astype(dtype).astype(np.float32) + shift) / scale
    y = jax.jit(lambda *v: ops.fake_convert(*v, destination_type=kind))(X, scale, shift)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    agree(13, "FakeConvert", [X, scale, shift], {"destination_type": kind}, y)
    edges = np.array([0, 460, -1e9, 1e9, 61000, 2**-10, 2**-17, 2**-18], np.float32)
    one = np.array(1, np.float32)
    found = ops.fake_convert(edges, one, destination_type=kind)
    assert float(jnp.abs(found).max()) == most
    agree(13, "FakeConvert", [edges, one], {"destination_type": kind}, found)


def test_erf_inv():
    x = np.linspace(-1.1, 1.1, 23).astype(np.float32)
    y = ops.erf_inv(x)
    inside = np.abs(x) < 0.999
    np.testing.assert_allclose([math.erf(v) for v in np.asarray(y)[inside]], x[inside], atol=1e-6)
    assert np.isnan(y[0])
    agree(17, "ErfInv", [x], {}, y)
    assert ops.erf_inv(np.array([-1, 1], np.float16)).tolist() == [-np.inf, np.inf]


def test_grn():
    y = ops.grn(X, bias=0.1)
    np.testing.assert_allclose(y, X / np.sqrt((X.astype(float) ** 2).sum(1, keepdims=True) + 0.1), atol=1e-6)
    agree(1, "GRN", [X], {"bias": 0.1}, y)
    check_grads(lambda x: ops.grn(x, bias=0.1), (jnp.asarray(X[:1]),), 1, ["rev"], 1e-2, 1e-2)


@pytest.mark.parametrize(
    ("a", "b", "expected", "is_safe"),
    [
        ("int8", "float32", "float32", True),
        ("int32", "uint8", "int32", True),
        ("bool", "int8", "int8", True),
        ("bool", "float16", "float16", True),
        ("uint8", "uint16", "uint16", True),
        ("float16", "float32", "float32", True),
        ("float16", "int32", "float16", False),
        ("int8", "uint8", "int16", False),
        ("int8", "uint16", "int32", False),
        ("float16", "bfloat16", "float32", False),
        ("float8_e4m3fn", "float8_e5m2", "float16", False),
    ],
)
def test_types_in_common(a, b, expected, is_safe):
    x, y = jnp.ones(2, a), jnp.zeros((3, 1), b)
    for operands in ((x, y), (y, x)):
        found = ops.convert_promote_types(*operands, promote_unsafe=True)
        assert [v.dtype.name for v in found] == [expected] * 2
        assert [v.shape for v in found] == [v.shape for v in operands]
        if not is_safe:
            with pytest.raises(DTypeError, match="allow it with promote_unsafe=True"):
                ops.convert_promote_types(*operands)


def test_scalars_and_64_bits(x64):
    scalar, row = np.array(3, np.int64), np.ones(2, np.uint8)
    found = ops.convert_promote_types(scalar, row, promote_unsafe=True, pytorch_scalar_promotion=True)
    assert found[0].dtype == np.uint8
    mixed = ops.convert_promote_types(np.float16(1), np.ones(2, np.int8), pytorch_scalar_promotion=True)
    assert mixed[1].dtype == np.float16
    large = ops.convert_promote_types(np.ones(1, np.uint64), np.ones(1, np.int8), promote_unsafe=True)
    assert large[0].dtype == np.float32
    other = ops.convert_promote_types(
        np.ones(1, np.uint64), np.ones(1, np.int8), promote_unsafe=True, u64_integer_promotion_target="int64"
    )
    assert other[0].dtype == np.int64
    with pytest.raises(DTypeError, match="int64 and uint8 become uint8"):
        ops.convert_promote_types(scalar, row, pytorch_scalar_promotion=True)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            ArgumentError,
            "`destination_type` is 'f8'",
            lambda: ops.fake_convert(X, X[0, 0, 0, 0], destination_type="f8"),
        ),
        (ShapeError, "must broadcast to `data`", lambda: ops.fake_convert(X[0], X)),
        (DTypeError, "`data` must be floating-point", lambda: ops.erf_inv([1])),
        (
            ShapeError,
            r"squared_difference: .*\(3,\).*\(2,\)",
            lambda: ops.squared_difference(X[0, :, 0, 0], X[:, 0, 0, 0]),
        ),
        (DTypeError, "squared_difference: ", lambda: ops.squared_difference(X, np.int32(1))),
        (ShapeError, "must have a batch and channels", lambda: ops.grn(X[0, 0, 0], bias=0.1)),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("run", [ops.squared_difference, jax.jit(ops.squared_difference)])
def test_squared_difference(run):
    x = np.array([np.nan, np.inf, 3, -2], np.float32)
    np.testing.assert_array_equal(run(jnp.asarray(x), jnp.ones(1)), [np.nan, np.inf, 4, 9])
    check_grads(run, (jnp.asarray(X), jnp.asarray(X[:1, :, :1])), order=1, modes=["rev"], rtol=1e-2)
