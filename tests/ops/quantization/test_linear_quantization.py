"""Linear quantization against its formulas in NumPy, and against onnxruntime."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from peer import runtime

import jaxops as jo
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError
from jaxops.ops.common.quantized_numbers import FLOAT8, in_precision

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(5)
INTEGERS = ["int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"]
ALL = [*INTEGERS, *FLOAT8, "float4_e2m1fn"]
SHAPE = (6, 40, 35)
# scale's shape, attributes
WAYS = {
    "scalar": ((), {}),
    "one element": ((1,), {}),
    "axis": ((40,), {"axis": 1}),
    "negative axis": ((35,), {"axis": -1}),
    "blocks": ((6, 5, 35), {"axis": 1, "block_size": 8}),
    "uneven blocks": ((6, 40, 3), {"axis": -1, "block_size": 16}),
    "one block": ((1, 40, 35), {"axis": 0, "block_size": 6}),
}


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def limits(dtype):
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def spread(scale, attributes):
    """The scale, an element for each of the data."""
    axis = attributes.get("axis", 1)
    if scale.size == 1:
        return scale.reshape(())
    if "block_size" in attributes:
        wide = np.repeat(scale, attributes["block_size"], axis)
        return wide.take(np.arange(SHAPE[axis]), axis)
    return scale.reshape([-1 if i == axis % 3 else 1 for i in range(3)])


def operands(name, way, shape=SHAPE):
    """Numbers, of which some are out of range, their scale and zero point."""
    dtype, sizes = dtype_of(name), WAYS[way][0]
    scale = RNG.uniform(0.01, 0.2, sizes).astype(np.float32)
    if name not in INTEGERS:
        return RNG.normal(size=shape).astype(np.float32) * 3, scale, np.zeros(sizes, dtype)
    low, high = limits(dtype)
    x = (RNG.uniform(low - 3, high + 3, shape) * 0.1 * 1.2).astype(np.float32)
    return x, scale, RNG.integers(low, high + 1, sizes).astype(np.int32).astype(dtype)


def expected(x, scale, zero, attributes):
    ratio = (x / spread(scale, attributes)).astype(x.dtype)
    if zero.dtype.name not in INTEGERS:
        largest = float(ml_dtypes.finfo(zero.dtype).max)
        return np.clip(ratio, -largest, largest).astype(zero.dtype)
    origin = spread(zero.astype(np.int64), attributes)
    return np.clip(np.rint(ratio).astype(np.int64) + origin, *limits(zero.dtype)).astype(np.int32).astype(zero.dtype)


def same(found, wanted):
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    differ = (found.astype(np.float64) != wanted.astype(np.float64)).sum()
    assert differ == 0, f"{differ} of {wanted.size} differ"


@pytest.mark.grid
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALL)
def test_quantize(name, way):
    attributes = WAYS[way][1]
    given = operands(name, way)
    wanted = expected(*given, attributes)
    same(jax.jit(lambda *v: jo.quantize_linear(*v, **attributes))(*given), wanted)
    # Static scales are constants of the program; without a zero point it is 0.
    x, scale, zero = given
    wanted = expected(x, scale, np.zeros_like(zero), attributes)
    same(jax.jit(lambda v: jo.quantize_linear(v, scale, output_dtype=zero.dtype, **attributes))(x), wanted)


# Two-bit types and float4 are not in onnxruntime.
@pytest.mark.grid
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int4", "uint4", *FLOAT8])
def test_quantize_as_onnxruntime(name, way):
    attributes = WAYS[way][1]
    given = operands(name, way)
    found = at_opset("QuantizeLinear", 21, *given, **attributes)[0]
    (theirs,) = runtime("QuantizeLinear", given, 21, **attributes)
    same(np.asarray(found).astype(theirs.dtype), theirs)


@pytest.mark.grid
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*ALL, "int32"])
def test_dequantize(name, way):
    sizes, attributes = WAYS[way]
    dtype = dtype_of(name)
    low, high = limits(dtype) if name not in (*FLOAT8, "float4_e2m1fn") else (-6, 6)
    x, zero = (RNG.integers(low, high + 1, s).astype(np.float64).astype(dtype) for s in (SHAPE, sizes))
    if name not in INTEGERS:
        zero = np.zeros_like(zero)
    scale = RNG.uniform(0.01, 0.2, sizes).astype(np.float32)
    wanted = (x.astype(np.int64) - spread(zero.astype(np.int64), attributes)) if "int" in name else x
    wanted = wanted.astype(np.float32) * spread(scale, attributes)
    same(jax.jit(lambda *v: jo.dequantize_linear(*v, **attributes))(x, scale, zero), wanted)
    if name not in ("int2", "uint2", "float4_e2m1fn"):
        same(wanted, runtime("DequantizeLinear", (x, scale, zero), 21, **attributes)[0])
    for narrow in (np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore"):
            rounded = wanted.astype(narrow)
        same(jo.dequantize_linear(x, scale, zero, output_dtype=narrow, **attributes), rounded)


@pytest.mark.parametrize("scale", [np.float16, ml_dtypes.bfloat16])
def test_dequantize_in_16_bits(scale):
    x, by = RNG.integers(-(2**15), 2**15, 5000).astype(np.int16), np.asarray(0.013, scale)
    found = jax.jit(jo.dequantize_linear)(x, by, np.int16(77))
    same(found, ((x.astype(np.float32) - 77) * by.astype(np.float32)).astype(scale))


def test_ties_round_to_even():
    x = np.arange(-8, 9, dtype=np.float32) / 2
    assert jo.quantize_linear(x, 1.0, np.int8(0)).tolist() == np.rint(x).tolist()
    # The zero point is added after: it does not decide what is even.
    assert jo.quantize_linear(x, 1.0, np.int8(1)).tolist() == (np.rint(x) + 1).tolist()


def test_infinities_and_nan():
    x = np.float32([np.inf, -np.inf, 3e38, -3e38, np.nan])
    for name in ("int8", "uint8", "int16", "uint16"):
        low, high = limits(dtype_of(name))
        zero = np.asarray(3, name)
        found = jax.jit(lambda v: jo.quantize_linear(v, 0.5, zero))(x)  # noqa: B023
        assert found.tolist() == [high, low, high, low, low]
        same(found, runtime("QuantizeLinear", (x, np.float32(0.5), zero), 21)[0].astype(name))


@pytest.mark.parametrize("name", FLOAT8)
def test_saturate(name):
    x, dtype = np.float32([1e6, -1e6, 1.0, np.nan]), dtype_of(name)
    for saturate in (0, 1):
        found = np.asarray(jo.quantize_linear(x, 1.0, np.zeros((), dtype), saturate=saturate))
        assert found.tobytes() == np.asarray(jo.cast(jnp.asarray(x), to=dtype, saturate=saturate)).tobytes()
    assert np.isfinite(found[:2].astype(np.float32)).all()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["int8", "int16", "float8_e5m2"])
def test_precision_of_the_division(name, kind):
    """It is that of the scale from opset 23 on; onnxruntime takes float32, as we do in the opsets that say nothing."""
    x, by, zero = RNG.normal(size=8000).astype(np.float32) * 100, np.asarray(0.013, kind), np.zeros((), dtype_of(name))
    if name == "float8_e5m2":
        x = x * np.float32(1e-7)  # quotients that are subnormal in float16

    def result(ratio):
        ratio = np.asarray(ratio, np.float32)
        low, high = limits(zero.dtype) if "int" in name else (-57344, 57344)
        return np.clip(np.rint(ratio) if "int" in name else ratio, low, high).astype(zero.dtype)

    narrow, single = x.astype(kind), np.float32
    ours = jax.jit(jo.quantize_linear)(x, by, zero)
    same(ours, result(narrow / by))
    same(jax.jit(jo.quantize_linear)(narrow, by, zero), result(narrow / by))
    wanted = result(narrow.astype(single) / by.astype(single))
    same(jax.jit(lambda *v: jo.quantize_linear(*v, precision=np.float32))(narrow, by, zero), wanted)
    same(at_opset("QuantizeLinear", 23, narrow, by, zero, precision=1)[0], wanted)
    if name == "int16":
        assert (np.asarray(ours) != wanted).any()
    same(at_opset("QuantizeLinear", 21, narrow, by, zero)[0], wanted)
    if kind is np.float16:
        (theirs,) = runtime("QuantizeLinear", (narrow, by, zero), 21)
        same(wanted.astype(theirs.dtype), theirs)


def test_rounding_to_16_bits():
    x = np.frombuffer(RNG.bytes(4 * 100_000), np.float32)
    x = np.concatenate([x[np.abs(x) > 1e-37], RNG.normal(size=10_000).astype(np.float32) * np.float32(3e-5)])
    for kind in (np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore"):
            wanted = x.astype(kind).astype(np.float32)
        np.testing.assert_array_equal(jax.jit(lambda v: in_precision(v, np.dtype(kind)))(x), wanted)  # noqa: B023


def test_integers_are_divided_exactly():
    x = np.append(RNG.integers(-(2**31), 2**31, 3000), [2**31 - 1, -(2**31), 2**24 + 1, 6, 10, -6, -10]).astype(
        np.int32
    )
    for by in (1, 3, 4, 2**16 + 1, -4):
        ratio = x.astype(np.float64) / by
        found = jax.jit(lambda v: jo.quantize_linear(v, np.int32(by), np.int16(-5)))(x)  # noqa: B023
        same(found, np.clip(np.rint(ratio) - 5, -(2**15), 2**15 - 1).astype(np.int16))
    same(jo.quantize_linear(x, np.int32(2)), np.clip(np.rint(x / 2), 0, 255).astype(np.uint8))
    # A float scale has float32 division.
    by = np.float32(3e5)
    same(jo.quantize_linear(x, by, np.int16(0)), np.rint(x.astype(np.float32) / by).astype(np.int16))


def test_other_scales():
    x = RNG.normal(size=4000).astype(np.float32) * 30
    power = np.asarray(0.25, ml_dtypes.float8_e8m0fnu)
    same(jax.jit(jo.quantize_linear)(x, power, np.int8(0)), np.clip(np.rint(x * 4), -128, 127).astype(np.int8))
    same(jo.quantize_linear(x, np.int32(2), np.int8(0)), np.clip(np.rint(x / 2), -128, 127).astype(np.int8))
    found = jo.quantize_linear(np.int32([5, 7]), np.int32(2), output_dtype=jnp.float8_e5m2)
    assert found.astype(np.float32).tolist() == [2.5, 3.5]
    found = jo.dequantize_linear(np.int8([3, -4]), power, output_dtype=np.float32)
    assert found.tolist() == [0.75, -1.0]


def test_python_numbers():
    assert jo.quantize_linear(np.float32([1, 400]), 2, 3).tolist() == [3, 203]
    assert jo.quantize_linear(np.float32([1, 400]), 2.0, -3, output_dtype=np.int8).tolist() == [-3, 127]
    assert jo.dequantize_linear(np.uint8([1, 4]), 0.5, 2).tolist() == [-0.5, 1.0]


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25])
def test_versions(opset):
    x, scale, zero = operands("uint8", "scalar")
    wanted = expected(x, scale, zero, {})
    same(at_opset("QuantizeLinear", opset, x, scale, zero)[0], wanted)
    same(at_opset("QuantizeLinear", opset, x, scale)[0], expected(x, scale, np.uint8(0), {}))
    back = at_opset("DequantizeLinear", opset, wanted, scale, zero)[0]
    same(back, (wanted.astype(np.float32) - zero) * scale)
    if opset <= 23:
        same(runtime("DequantizeLinear", (wanted, scale, zero), opset)[0], np.asarray(back))
        same(runtime("QuantizeLinear", (x, scale, zero), opset)[0].astype(np.uint8), wanted)
    vector = np.full(SHAPE[1], scale)
    for op, data in (("QuantizeLinear", x), ("DequantizeLinear", wanted)):
        if opset == 10:
            with pytest.raises(ShapeError, match=r"`[xy]_scale` of \(40,\) must be a scalar before opset 13"):
                at_opset(op, opset, data, vector)
        else:
            assert at_opset(op, opset, data, vector)[0].shape == SHAPE


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("size", [3, 20_000])
def test_dynamic(size, x64):
    with jax.enable_x64(x64):
        for low, high in ((-3, 5), (1, 5), (-5, -1), (0, 0), (-1e-3, 0)):
            x = RNG.uniform(low, high, size).astype(np.float32)
            for fn in (jo.dynamic_quantize_linear, jax.jit(jo.dynamic_quantize_linear)):
                for ours, theirs in zip(fn(x), runtime("DynamicQuantizeLinear", (x,), 11, 3), strict=True):
                    same(ours, theirs)


def test_dynamic_of_nothing():
    y, scale, zero = jo.dynamic_quantize_linear(np.zeros((0, 2), np.float32))
    assert (y.shape, scale, zero) == ((0, 2), 1, 0)


@pytest.mark.parametrize("way", WAYS)
def test_under_vmap_and_export(way):
    attributes = WAYS[way][1]
    many = [np.stack(v) for v in zip(*(operands("int4", way) for _ in range(2)), strict=True)]
    fn = jax.jit(lambda *v: jo.quantize_linear(*v, **attributes))
    same(jax.vmap(fn)(*many), np.stack([fn(*(m[i] for m in many)) for i in range(2)]))
    x, scale, zero = operands("uint8", way)
    names = "b, 40, 35" if way != "one block" else "6, 40, b"
    shapes = names if len(scale.shape) == 3 else ",".join(map(str, scale.shape))
    if len(scale.shape) == 3:
        shapes = {"blocks": "b, 5, 35", "uneven blocks": "b, 40, 3", "one block": "1, 40, b"}[way]
    made = export(fn)(*symbolic_args_specs([jnp.asarray(v) for v in (x, scale, zero)], [names, shapes, shapes]))
    same(made.call(x, scale, zero), expected(x, scale, zero, attributes))


def test_derivatives():
    x = RNG.integers(0, 16, (3, 4)).astype(np.uint8)
    scale, zero = RNG.uniform(1, 2, 4).astype(np.float32), RNG.integers(0, 16, 4).astype(np.uint8)
    check_grads(lambda s: jo.dequantize_linear(x, s, zero), (jnp.asarray(scale),), order=1)
    # A step function: 0 everywhere, and no NaN.
    fn = jax.grad(lambda v, s: jo.dequantize_linear(jo.quantize_linear(v, s), jnp.float32(1)).sum(), (0, 1))
    for found in fn(jnp.asarray(x, jnp.float32), jnp.asarray(scale)):
        assert not np.asarray(found).any()


def test_scalar_data():
    assert jo.quantize_linear(np.float32(3), np.float32(0.5)) == 6
    assert jo.dequantize_linear(np.int8(-3), np.float32([0.5])).tolist() == -1.5


def test_a_wrong_scale_is_caught():
    x, scale, zero = operands("int8", "axis")
    with pytest.raises(AssertionError, match="differ"):
        same(jo.quantize_linear(x, scale[::-1], zero), expected(x, scale, zero, {"axis": 1}))


X, Q, S = np.ones((4, 6), np.float32), np.ones((4, 6), np.int8), np.float32(1)
ERRORS = [
    (lambda: jo.quantize_linear(Q, S), DTypeError, "`x` is int8; it must be int32 or floating-point of 16 bits"),
    (lambda: jo.quantize_linear(X, np.int8(1)), DTypeError, "`y_scale` is int8; .* or more, float8_e8m0fnu, int32"),
    (lambda: jo.quantize_linear(X, S, np.float32(1)), DTypeError, "`y_zero_point` is float32; it must be of type int8"),
    (
        lambda: jo.quantize_linear(X, S, np.int8(1), output_dtype=np.uint8),
        DTypeError,
        "`y_zero_point` is int8; it must be uint8, as `output_dtype` is",
    ),
    (lambda: jo.quantize_linear(X, S, output_dtype=np.int32), DTypeError, "`output_dtype` is int32; it must be one of"),
    (lambda: jo.quantize_linear(X, S, precision=np.int32), DTypeError, "`precision` is int32; it must be floating"),
    (lambda: jo.quantize_linear(X, S, saturate=2), ArgumentError, "`saturate` is 2; it must be 0 or 1"),
    (lambda: jo.quantize_linear(X, np.ones(4, "f4")), ShapeError, r"\(4,\) does not fit axis 1 of .* 6 elements"),
    (lambda: jo.quantize_linear(X, np.ones(4, "f4"), axis=2), AxisError, "`axis` is 2, but the operand has 2 axes"),
    (lambda: jo.quantize_linear(X, np.ones((4, 3), "f4")), ShapeError, "must be a scalar .* give `block_size`"),
    (lambda: jo.quantize_linear(X, np.ones(6, "f4"), np.zeros((), "u1")), ShapeError, r"`y_zero_point` of \(\) must"),
    (
        lambda: jo.quantize_linear(X, np.ones((4, 3), "f4"), block_size=3),
        ShapeError,
        r"`y_scale` of \(4, 3\) does not fit `x` of \(4, 6\) in blocks of 3 on axis 1; it must be \(4, 2\), or a sc",
    ),
    (
        lambda: jo.quantize_linear(X, np.ones(6, "f4"), block_size=3),
        ShapeError,
        r"`y_scale` of \(6,\) does not fit .* it must be \(4, 2\)",
    ),
    (lambda: jo.quantize_linear(X, S, block_size=-1), ArgumentError, "`block_size` is -1; it must be positive, or 0"),
    (lambda: jo.dequantize_linear(X, S), DTypeError, "`x` is float32; it must be of type int8, .*, int32"),
    (lambda: jo.dequantize_linear(Q, S, np.uint8(1)), DTypeError, "`x_zero_point` is uint8; it must be int8, as `x`"),
    (lambda: jo.dequantize_linear(Q, np.int32(1)), DTypeError, "`x_scale` is int32; it must be floating-point"),
    (
        lambda: jo.dequantize_linear(Q, np.ones((), jnp.float8_e8m0fnu)),
        DTypeError,
        "the result would be float8_e8m0fnu; give a floating-point type of 16 bits or more as `output_dtype`",
    ),
    (lambda: jo.dequantize_linear(Q, np.ones(5, "f4")), ShapeError, r"`x_scale` of \(5,\) does not fit axis 1"),
    (lambda: jo.dynamic_quantize_linear(X.astype("f2")), DTypeError, "`x` is float16; it must be float32"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
