"""What a 64-bit value becomes with x64 off and on, operands of one type, types that XLA:CPU is weak on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import same
from jax.export import export, symbolic_args_specs

import jaxops as jo
from jaxops import dtypes
from jaxops.errors import DTypeError, OutOfRangeError

NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
KEPT = ["bool", "int8", "uint16", "int32", "float16", "float32", "bfloat16", "int4", "float8_e4m3fn", "complex64"]


@pytest.mark.parametrize("name", [*NARROWED, *KEPT])
def test_canonical(name):
    dtype = jnp.dtype(name)
    assert dtypes.canonical(dtype) == NARROWED.get(name, name)
    assert dtypes.as_traced(np.ones(2).astype(dtype)).dtype == NARROWED.get(name, name)
    assert dtypes.as_traced(np.ones(()).astype(dtype)).shape == ()
    with jax.enable_x64(True):
        assert dtypes.canonical(dtype) == name
        assert dtypes.as_traced(np.ones(2).astype(dtype)).dtype == name


@pytest.mark.parametrize(
    "value",
    [
        np.array([2**31 - 1, -(2**31)]),
        np.array([2**32 - 1, 0], np.uint64),
        np.array([float(np.finfo(np.float32).max), -1.0]),
        np.array([np.inf, -np.inf, np.nan]),
        np.array([complex(np.inf, -1)]),
        np.array([1e-300]),
        np.zeros((0, 2), np.int64),
        np.array(7),
        np.complex128(1 + 2j),
        np.ones((2, 2), np.complex128).T,
        True,
        3,
        2.5,
        [1, 2],
    ],
    ids=repr,
)
def test_constants_that_fit(value):
    found = np.asarray(dtypes.as_traced(value))
    np.testing.assert_allclose(found, np.asarray(value), atol=1e-40, rtol=1e-7)


UNFIT = [
    (np.array([0, 2**31]), "the int64 value 2147483648 does not fit int32"),
    (np.array([-(2**31) - 1]), "the int64 value -2147483649 does not fit int32"),
    (np.array(2**63 - 1), "the int64 value 9223372036854775807 does not fit int32"),
    (np.array([2**32], np.uint64), "the uint64 value 4294967296 does not fit uint32"),
    (np.array([2**64 - 1], np.uint64), "the uint64 value 18446744073709551615 does not fit uint32"),
    (np.array([1e39, np.inf]), r"the float64 value 1e\+39 does not fit float32"),
    (np.array([-1e39]), "does not fit float32"),
    (np.array([1, 1e300j]), r"the complex128 value 1e\+300 does not fit complex64"),
    (np.complex128(1e300), "does not fit complex64"),
]


@pytest.mark.parametrize(("value", "match"), UNFIT, ids=repr)
def test_constants_that_do_not_fit(value, match):
    with pytest.raises(
        OutOfRangeError, match=f"{match}, which stands for .* while x64 is off; turn it on with jax.config"
    ):
        dtypes.as_traced(value)
    assert issubclass(OutOfRangeError, OverflowError)
    with jax.enable_x64(True):
        same(dtypes.as_traced(value), np.asarray(value))


def test_a_constant_that_does_not_fit_reaches_no_program():
    with pytest.raises(OutOfRangeError, match="1099511627776 does not fit int32"):
        jax.jit(lambda x: jo.concat([x, np.array([2**40])], axis=0))(jnp.array([1]))
    with pytest.raises(OutOfRangeError, match="does not fit float32"):
        jo.gather(np.array([1e300, 1.0]), jnp.array([0]))


def test_sentinels_are_no_constants():
    """INT64_MAX and INT64_MIN are bounds: clamped, never wrapped, with x64 off and on."""
    x = jnp.arange(5)
    for start, end, step in [
        (1, 2**63 - 1, 1),
        (-(2**63), 2**63 - 1, 2),
        (2**63 - 1, -(2**63), -1),
        (2**31 - 1, -(2**31), -2),
    ]:
        expected = np.arange(5)[start:end:step]
        assert jo.slice(x, (start,), (end,), (0,), (step,)).tolist() == expected.tolist()
        assert (
            jax.jit(lambda x, s=(start,), e=(end,), t=(step,): jo.slice(x, s, e, (0,), t))(x).tolist()
            == expected.tolist()
        )
        with jax.enable_x64(True):
            assert jo.slice(x, (start,), (end,), (0,), (step,)).tolist() == expected.tolist()


def test_static_stays_64_bit():
    huge = np.array([2**62, 2**40])
    same(jo.concat([huge, huge], axis=0), np.array([2**62, 2**40] * 2))
    same(jo.gather(huge, np.array([1])), np.array([2**40]))
    assert jo.reshape(np.array([1e300]), ()).dtype == np.float64


def test_as_traced_passes_jax_arrays():
    x = jnp.ones(2)
    assert dtypes.as_traced(x) is x
    assert dtypes.as_traced(x, np.float64) is x  # float32 stands for it
    assert dtypes.as_traced(x, np.float16).dtype == np.float16
    assert dtypes.as_traced(np.ones(2), np.int64).dtype == np.int32


def test_as_traced_of_symbolic_sizes():
    def fn(x):
        return dtypes.as_traced(jo.shape(x)), dtypes.as_traced(jo.size(x))

    made = export(jax.jit(fn))(*symbolic_args_specs([jnp.zeros((2, 3))], ["b, 3"]))
    sizes, count = made.call(jnp.zeros((5, 3)))
    assert (sizes.tolist(), int(count), sizes.dtype) == ([5, 3], 15, np.int32)


def test_strings_do_not_become_traced():
    for strings in (np.array(["a"]), np.array(["a"], object), np.array([b"a"]), np.array(["a"], "T")):
        assert dtypes.is_string(strings)
        with pytest.raises(DTypeError, match=r"strings stay static \(NumPy\) and cannot become a JAX array: "):
            dtypes.as_traced(strings)
    assert not dtypes.is_string(jnp.ones(1))
    assert not dtypes.is_string(np.ones(1))


def test_is_float():
    floats = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn"]
    assert all(dtypes.is_float(jnp.dtype(name)) for name in floats)
    assert not any(dtypes.is_float(jnp.dtype(name)) for name in ("int4", "bool", "uint64", "complex64"))


def test_unify():
    static = dtypes.unify(([1], np.array([2])))
    assert all(isinstance(v, np.ndarray) for v in static)
    mixed = dtypes.unify((jnp.array([1]), np.array([2])))
    assert all(isinstance(v, jax.Array) and v.dtype == np.int32 for v in mixed)
    with pytest.raises(
        DTypeError, match=r"^operands must have one element type, got int32, float32; convert with jaxops.cast"
    ):
        dtypes.unify((jnp.array([1]), np.ones(1)))
    with pytest.raises(DTypeError, match=r"^operands .* got a int64, b float64; convert"):
        dtypes.unify((np.array([1]), np.ones(1)), ("a ", "b "))
    with pytest.raises(DTypeError, match="one element type"):
        dtypes.unify((np.array([1]), np.array(["a"])))


@pytest.mark.parametrize("name", ["int2", "int4", "uint2", "uint4"])
def test_widened(name):
    """XLA:CPU of jaxlib 0.10.2 ends the process when it concatenates these (the pairs are in ops/test_matrix.py)."""
    x = jnp.array([0, 1], name)
    text = jax.jit(lambda v: jo.concat([v, v], axis=0)).lower(x).as_text()
    assert "concatenate" in text
    narrow = name.replace("int", "i") + ">"  # as StableHLO spells it: i4, ui2
    assert narrow in text
    assert not any(narrow in line for line in text.splitlines() if "concatenate" in line)
    same(jo.concat([x, x], axis=0), np.array([0, 1, 0, 1], name))
