"""Cast: values beyond the matrix of types (`test_matrix.py`): overflow, rounding, strings, symbolic sizes, errors."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from harness import Case, data, equations, name, same, table
from jax.export import export, symbolic_args_specs

import jaxops as jo
from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError, StaticError

X = data(2, 3)
E8 = ml_dtypes.float8_e8m0fnu


def cast(x, to, expected=None, symbolic=None, **attributes):
    return Case(
        f"cast/{x.dtype}->{np.dtype(to)} {attributes}",
        lambda v: jo.cast(v, to=to, **attributes),
        (x,),
        x.astype(to) if expected is None else expected,
        symbolic,
    )


CASES = [
    cast(X, np.float16, symbolic=("b, c",)),
    cast(X, ml_dtypes.bfloat16, symbolic=("b, 3",)),
    cast(X, np.int32, symbolic=("b, c",)),
    cast(X, bool),
    cast(X, np.float32),
    cast(X.astype(np.int32), np.float32),
    cast(data(), np.float16),
    cast(data(0, 2), np.int8),
    cast(np.array([1.7, -1.7, 0.5, -0.5], np.float32), np.int32, np.array([1, -1, 0, 0], np.int32)),
    cast(np.array([300, -1, 128, 255], np.int32), np.uint8, np.array([44, 255, 128, 255], np.uint8)),
    cast(np.array([300, -129, 128], np.int32), np.int8, np.array([44, 127, -128], np.int8)),
    # Out of range is undefined in the standard: like C by way of 32 bits, as onnxruntime has it.
    cast(np.array([300.7, -1.2, 128], np.float32), np.uint8, np.array([44, 255, 128], np.uint8)),
    cast(np.array([300.7, -129.2], np.float32), np.int8, np.array([44, 127], np.int8)),
    cast(np.array([0.0, -0.0, 0.1, np.nan, np.inf], np.float32), bool, np.array([False, False, True, True, True])),
    cast(np.array([17, -9], np.int32), ml_dtypes.int4, np.array([1, 7], np.int8).astype(ml_dtypes.int4)),
    cast(np.array([1, 0, 1], bool), ml_dtypes.float8_e5m2),
]


@pytest.mark.grid
@pytest.mark.parametrize(
    ("way", "case"), [pair for pair in table(CASES) if pair[0].__name__ != "differentiated"], ids=name
)
def test_value(way, case):
    way(case)


F8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["static", "traced"])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("target", F8)
def test_saturate(target, source, kind):
    target, x = np.dtype(target), kind(np.array([1e4, -1e4, np.inf, -np.inf, 1.0, 0.0], source))
    if target.name.startswith("float8_e5m2"):
        x = x * kind(np.array(6.5, source))  # its largest number is 57344
    largest = float(ml_dtypes.finfo(target).max)
    saturated = np.asarray(jo.cast(x, to=target)).astype(np.float32)
    np.testing.assert_array_equal(saturated[:4], [largest, -largest, largest, -largest])
    cut = np.asarray(jo.cast(x, to=target, saturate=0)).astype(np.float32)
    special = np.isinf(cut[:4]) if target.name == "float8_e5m2" else np.isnan(cut[:4])
    assert special.all()
    assert np.isnan(np.asarray(jo.cast(kind(np.array([np.nan], source)), to=target)).astype(np.float32)).all()


def exponents(*values):
    return np.ldexp(np.float32(1), np.array(values)).astype(np.float32)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["static", "traced"])
@pytest.mark.parametrize(
    ("mode", "bits"),
    # of 1, 1.25, 1.5, 1.75, 2**-127, 1.5 * 2**-127, 2**127, NaN; 127 stands for 1
    [
        ("up", [127, 128, 128, 128, 0, 1, 254, 255]),
        ("down", [127, 127, 127, 127, 0, 0, 254, 255]),
        ("nearest", [127, 127, 128, 128, 0, 1, 254, 255]),
    ],
)
def test_round_mode_of_powers_of_two(mode, bits, kind):
    tiny = np.float32(2.0**-127)
    x = np.array([1, 1.25, 1.5, 1.75, tiny, tiny * np.float32(1.5), 2.0**127, np.nan], np.float32)
    found = np.asarray(jo.cast(kind(x), to=E8, round_mode=mode))
    assert found.view(np.uint8).tolist() == bits
    # Beyond the largest: the largest, or NaN without saturation.
    huge = kind(np.array([3.0e38, np.inf], np.float32))
    assert np.asarray(jo.cast(huge, to=E8, round_mode="up")).view(np.uint8).tolist() == [254, 254]
    assert np.asarray(jo.cast(huge, to=E8, round_mode="up", saturate=0)).view(np.uint8).tolist() == [255, 255]


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["static", "traced"])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_below_the_smallest_power_of_two(mode, kind):
    x = kind(np.array([0, -0.0, 2.0**-128, 2.0**-127], np.float32))
    assert np.asarray(jo.cast(x, to=E8, round_mode=mode, saturate=0)).view(np.uint8).tolist() == [255, 255, 255, 0]
    assert np.asarray(jo.cast(x, to=E8, round_mode=mode)).view(np.uint8).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("target", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
def test_floats_out_of_range(source, target, x64):
    values = np.array([np.nan, np.inf, -np.inf, 6e4, -6e4, -1.5], source)
    if source != "float16":
        values = np.append(values, np.array([3e9, -3e9, 5e9, 1e20, -1e20, 2.0**31, 2.0**63, 2.0**64], source))
    found = jo.cast(values, to=target)
    same(jo.cast(jnp.asarray(values), to=target), found)
    if np.dtype(target).itemsize >= 4:
        limits = np.iinfo(target)
        assert found[:3].tolist() == [0, limits.max, limits.min]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_strings_to_eight_bits_saturate(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    words, numbers = np.array(["1e9", "-INF", "nan", "1.0625"], object), np.array([1e9, -np.inf, np.nan, 1.0625])
    for saturate in (0, 1):
        found, expected = (jo.cast(x, to=dtype, saturate=saturate) for x in (words, numbers))
        assert found.dtype == dtype
        assert found.tobytes() == expected.tobytes()
    largest = float(ml_dtypes.finfo(dtype).max)
    assert jo.cast(words, to=dtype)[:2].tolist() == [largest, -largest]


def test_strings():
    same(jo.cast(np.array(["3.5", "-2", "1e3"], object), to=np.float32), np.array([3.5, -2, 1000], np.float32))
    same(jo.cast(np.array(["INF", "-INF", "+INF"]), to=np.float64), np.array([np.inf, -np.inf, np.inf]))
    assert np.isnan(jo.cast(np.array(["NaN"]), to=np.float32)).all()
    same(jo.cast(np.array([["9007199254740993"]]), to=np.int64), np.array([[2**53 + 1]]))
    same(jo.cast(np.array([b"7"], object), to=np.int32), np.array([7], np.int32))
    same(jo.cast(np.array([str(2**64 - 1), "1"]), to=np.uint64), np.array([2**64 - 1, 1], np.uint64))
    same(jo.cast(np.array(["100.5", "1e2"]), to=np.int8), np.array([100, 100], np.int8))
    same(jo.cast(np.array(["1e39"]), to=np.float32), np.array([np.inf], np.float32))
    same(jo.cast(np.array(["1", "0"]), to=bool), np.array([True, False]))
    assert jo.cast(np.array([1.5, np.nan, -np.inf, np.inf], np.float32), to=str).tolist() == [
        "1.5",
        "NaN",
        "-INF",
        "INF",
    ]
    assert jo.cast(np.array([0.1]), to=str).tolist() == ["0.10000000000000001"]
    assert jo.cast(np.array([2**63 - 1, -1]), to=str).tolist() == [str(2**63 - 1), "-1"]
    assert jo.cast(np.array([True, False]), to=str).tolist() == ["1", "0"]
    assert jo.cast(np.array([[-3, 2]], ml_dtypes.int4), to=str).tolist() == [["-3", "2"]]
    assert jo.cast(np.array([1.5], ml_dtypes.bfloat16), to=str).tolist() == ["1.5"]


def test_x64_off_gives_the_32_bit_type():
    for wide, narrow in [(np.int64, np.int32), (np.float64, np.float32), (np.uint64, np.uint32)]:
        assert jo.cast(jnp.ones(2, np.uint16), to=wide).dtype == narrow
        assert jo.cast(np.ones(2, np.int16), to=wide).dtype == wide  # static: as it says


@pytest.mark.parametrize("source", ["int8", "int16", "int32", "int4", "uint32"])
def test_x64_off_refuses_integers_whose_sign_32_bits_would_change(source):
    x, target = np.ones(2, jnp.dtype(source)), np.dtype(np.int64 if source == "uint32" else np.uint64)
    text = (
        f"cast: traced {source} may not fit {canonical(target).name}, which stands for {target.name} while x64 is off"
    )
    for convert in (lambda x: jo.cast(x, to=target), lambda x: jo.cast_like(x, np.zeros(1, target))):
        for run in (convert, jax.jit(convert)):
            with pytest.raises(OutOfRangeError, match=text):
                run(jnp.asarray(x))
    assert jo.cast(x, to=target).dtype == target  # static
    assert jo.cast(jnp.asarray(x), to=canonical(target)).dtype == canonical(target)  # keeps the lower bits
    with jax.enable_x64(True):
        same(np.asarray(jo.cast(jnp.asarray(x), to=target)), np.ones(2, target))


def test_x64_on(x64):
    assert jo.cast(jnp.ones(2, np.int16), to=np.int64).dtype == np.int64


def test_static_keeps_64_bits():
    same(jo.cast(np.array([2**40]), to=np.float64), np.array([2.0**40]))
    same(jo.cast(np.array([2**40 + 1]), to=np.int32), np.array([1], np.int32))


def test_gradient():
    found = jax.grad(lambda x: jo.cast(jo.cast(x, to=np.float16), to=np.float32).sum())(jnp.asarray(X))
    same(found, np.ones((2, 3), np.float32))


def test_symbolic_sizes():
    def fn(x):
        sizes = jo.cast(jo.shape(x), to=np.int64)
        assert isinstance(sizes, np.ndarray)
        return jo.cast(sizes, to=np.float32)

    made = export(jax.jit(fn))(*symbolic_args_specs([jnp.asarray(X)], ["b, 3"]))
    same(made.call(jnp.asarray(X)), np.array([2, 3], np.float32))


def test_one_equation():
    assert equations(lambda x: jo.cast(x, to=np.float16), X) == 1
    assert equations(lambda x: jo.cast(x, to=np.float32), X) == 0


def test_cast_like():
    for x in (X, jnp.asarray(X)):
        found = jo.cast_like(x, jnp.zeros(2, jnp.float8_e8m0fnu), round_mode="down")
        assert type(found) is type(jo.cast(x, to=np.int32))
        same(found, np.asarray(jo.cast(X, to=jnp.float8_e8m0fnu, round_mode="down")))


BITS = {
    2: ["int2", "uint2"],
    4: ["int4", "uint4", "float4_e2m1fn"],
    8: [
        "bool",
        "int8",
        "uint8",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ],
    16: ["int16", "uint16", "float16", "bfloat16"],
    32: ["int32", "uint32", "float32"],
    64: ["int64", "uint64", "float64", "complex64"],
    128: ["complex128"],
}


def patterns(width, dtype):
    """All bits of a narrow type, any bits of a wide one: NaNs and subnormal numbers, too."""
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if dtype.kind == "b":
        return np.array([[True, False]])
    if width < 8:
        return np.arange(2**width, dtype=np.uint8).view(dtype).reshape(2, -1)
    return np.frombuffer(np.random.default_rng(3).bytes(width // 8 * 3000), dtype).reshape(3, -1)


@pytest.mark.grid
@pytest.mark.parametrize("width", BITS)
def test_bit_cast(width, x64):
    for source in BITS[width]:
        x = patterns(width, source)
        for target in BITS[width]:
            to = np.dtype(getattr(ml_dtypes, target, target))
            wanted = x.view(np.uint8) != 0 if target == "bool" else x.view(to)
            same(jo.bit_cast(x, to=to), wanted)
            same(jo.bit_cast(jnp.asarray(x), to=to), wanted)
            same(jax.jit(lambda v: jo.bit_cast(v, to=to))(x), wanted)  # noqa: B023
            if target != "bool":
                same(jo.bit_cast(jo.bit_cast(jnp.asarray(x), to=to), to=x.dtype), x)
            same(np.asarray(jo.bit_cast(jnp.asarray(x[0, 0]), to=to)), wanted[0, 0])


def test_bit_cast_with_x64_off():
    x = np.array([1.5, -0.0])
    same(jo.bit_cast(x, to=np.int64), x.view(np.int64))  # static: as it says
    with pytest.raises(DTypeError, match="`to` is int64, but a traced array can only be int32 while x64 is off"):
        jo.bit_cast(jnp.asarray(x), to=np.int64)
    made = export(jax.jit(lambda v: jo.bit_cast(v, to=np.uint32)))(*symbolic_args_specs([jnp.asarray(X)], ["b, 3"]))
    same(np.asarray(made.call(X)), X.view(np.uint32))
    same(jax.vmap(lambda v: jo.bit_cast(v, to=np.int32))(jnp.asarray(X)), X.view(np.int32))


ERRORS = [
    (lambda: jo.bit_cast(X, to=np.int16), DTypeError, "`input` is float32 of 32 bits, `to` is int16 of 16; both must"),
    (lambda: jo.bit_cast(jnp.ones(2, jnp.int4), to=np.int8), DTypeError, "`input` is int4 of 4 bits, `to` is int8"),
    (lambda: jo.bit_cast(np.array(["a"]), to=np.int8), DTypeError, "bit_cast: strings have no fixed number of bits"),
    (lambda: jo.bit_cast(X, to=str), DTypeError, "bit_cast: strings have no fixed number of bits"),
    (lambda: jo.cast(X, to=np.float32, round_mode="away"), ArgumentError,
     r"`round_mode` is 'away'; .* 'up', 'down', 'nearest'"),
    (lambda: jo.cast(X, to=np.float32, saturate=2), ArgumentError, r"cast: `saturate` is 2; it must be 0 or 1"),
    (lambda: jax.jit(lambda x: jo.cast(x, to=str).shape)(X), StaticError, r"cast: `input` must be known while tracing"),
    (lambda: jo.cast(np.array(["x1"]), to=np.float32), ArgumentError,
     r"the string 'x1' is not a number of type float32"),
    (lambda: jo.cast(np.array(["NaN"]), to=np.int32), ArgumentError, r"the string 'NaN' is not a number of type int32"),
    *((lambda s=s, to=to: jo.cast(np.array([s]), to=to), ArgumentError,
       f"the string '{s}' is not a number of type {np.dtype(to).name}")
      for s, to in [("300", np.int8), ("-1", np.uint8), ("9223372036854775808", np.int64), ("1_0", np.int32),
                    ("9" * 23, np.int64), ("8", ml_dtypes.int4), ("1_0", np.float32), ("1e30", np.int64)]),
    *((lambda to=to: jo.cast(X, to=to), DTypeError, r"cast: `to` is .*; it must be an element type, such as np.float32")
      for to in ("foo", None, "datetime64[s]", 7)),
    (lambda: jax.jit(lambda s: jo.cast(X, to=np.float16, saturate=s))(1), StaticError, r"`saturate` must be known"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "error", "match"), ERRORS, ids=[f"{i}" for i in range(len(ERRORS))])
def test_error(fn, error, match):
    with pytest.raises(error, match=match):
        fn()
