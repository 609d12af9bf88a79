"""Integers take no detour through floats that do not hold them, and a number that does not fit is never cut."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError

pytestmark = pytest.mark.optimized

ODD = 2**24 + 1  # the first integer that float32 does not hold
WAYS = [lambda f: f, jax.jit]


@pytest.mark.grid
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32])
@pytest.mark.parametrize("bias", [0, 0.5, 1.5, -2.25, 0.1, 3])
def test_shrink(bias, dtype, way):
    values = range(0 if np.dtype(dtype).kind == "u" else -5, 6)
    for lambd in (0, 0.5, 1, 2.75, -1, 300, math.inf):
        step = Fraction(str(bias))
        exact = [v + step if v < -lambd else v - step if v > lambd else 0 for v in values]
        found = way(lambda x, lambd=lambd: jo.shrink(x, bias=bias, lambd=lambd))(jnp.array(values, dtype))
        assert found.dtype == dtype
        for got, want in zip(found.tolist(), map(math.trunc, exact), strict=True):
            assert got == want or want < np.iinfo(dtype).min


def test_large_integers():
    x = np.array([ODD, -ODD], np.int32)
    assert jo.shrink(x).tolist() == [ODD, -ODD]
    assert jo.shrink(x, bias=-1.5).tolist() == [ODD + 1, -ODD - 1]
    one = np.array([[1]], np.int32)
    assert jo.gemm(x[:, None], one, alpha=0.5).tolist() == [[2**23], [-(2**23)]]
    assert jo.gemm(x[:, None], one, one, alpha=0.5, beta=0.5).tolist() == [[2**23 + 1], [-(2**23)]]
    for convert in (np.asarray, jnp.asarray):
        assert jo.reduce_l2(convert(np.array([9999, 1], np.int32)), keepdims=0) == 9999
        assert jo.reduce_l2(convert(np.array([50000, 50000], np.int32)), keepdims=0) == 70710
        assert jo.pow(convert(x), convert(np.array([1.0, 1.0], np.float32))).tolist() == [ODD, -ODD]
    assert jo.reduce_l2(np.array([94906267, 0]), keepdims=0) == 94906267
    largest = np.array([2**31 - 1, 3], np.int32)  # as float32 its norm is 2**31
    for found in (jo.reduce_l2(largest), jo.reduce_l2(jnp.asarray(largest)), jax.jit(jo.reduce_l2)(largest)):
        assert found == 2**31 - 1
    assert jo.reduce_sum_square(np.array(1e30)) == 1e30 * 1e30


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1), (0.1, 0.3), (-0.25, 2.5), (1, float(np.float32(0.7)))])
def test_gemm(alpha, beta, dtype):
    rng, low = np.random.default_rng(0), np.iinfo(dtype).min
    a, b, c = (rng.integers(max(low, -9), 9, shape).astype(dtype) for shape in ((3, 4), (4, 2), (3, 2)))
    p, q = Fraction(str(np.float32(alpha))), Fraction(str(np.float32(beta)))
    want = [p * int(x) + q * int(y) for x, y in zip((a.astype(int) @ b.astype(int)).flat, c.flat, strict=True)]
    found = jo.gemm(a, b, c, alpha=alpha, beta=beta)
    assert found.dtype == dtype
    for got, exact in zip(np.asarray(found).ravel().tolist(), map(math.trunc, want), strict=True):
        assert got == exact or not low <= exact <= np.iinfo(dtype).max


def test_gemm_that_cannot_be_exact():
    x = np.ones((1, 1), np.int32)
    with pytest.raises(
        ArgumentError, match=r"gemm: `alpha` 0.12345678 .* exactly to integers in int32; give fractions"
    ):
        jo.gemm(x, x, alpha=0.12345678)
    with jax.enable_x64(True):
        assert jo.gemm(x * 10**8, x, alpha=0.12345678).tolist() == [[12345678]]
    with pytest.raises(ArgumentError, match="exactly to integers in uint32"):
        jo.gemm(x.astype(np.uint32), x.astype(np.uint32), alpha=-0.5)
    for call in (lambda: jo.gemm(x, x, alpha=math.inf), lambda: jo.shrink(x, bias=math.nan)):
        with pytest.raises(ArgumentError, match=r"`(alpha|bias)` is (inf|nan); on integers it must be finite"):
            call()


UNFIT = [
    (lambda x: jo.pad(x.astype(np.int32), (1, 1), 1.5), r"pad: `constant_value` 1.5 does not fit int32"),
    (lambda x: jo.pad(x.astype(np.uint8), (1, 1), 300), r"pad: `constant_value` 300 does not fit uint8"),
    (lambda x: jo.pad(x.astype(np.float16), (1, 1), 1e9), r"pad: `constant_value` 1000000000.0 does not fit float16"),
    (lambda x: jo.pad(x.astype(bool), (1, 1), 2), r"pad: `constant_value` 2 does not fit bool"),
    (lambda x: jo.where(x > 1, x.astype(np.uint8), 300), r"where: the number 300 does not fit uint8"),
    (lambda x: jo.add(x.astype(np.int8), -129), r"add: the number -129 does not fit int8"),
]


@pytest.mark.parametrize(("call", "match"), UNFIT)
def test_numbers_that_do_not_fit(call, match):
    for convert in (np.asarray, jnp.asarray):
        with pytest.raises(ArgumentError, match=match + ", the type of the other operands; convert"):
            call(convert(np.arange(3)))


def test_numbers_that_fit():
    assert jo.pad(np.arange(2), (1, 0), 2.0).tolist() == [2, 0, 1]
    assert jo.pad(np.array([True]), (1, 0), 0).tolist() == [False, True]
    assert jo.pad(np.array(["a"]), (1, 0), "xyz").tolist() == ["xyz", "a"]
    with pytest.raises(DTypeError, match="data int64, constant_value string"):
        jo.pad(np.arange(2), (1, 0), "a")
    assert jo.clip(np.array([1, 9], np.uint8), -5, 300).tolist() == [1, 9]


def test_numbers_beyond_64_bits():
    with pytest.raises(OutOfRangeError, match="the number 18446744073709551616 does not fit int64"):
        jo.constant_of_shape((2,), value=2**64)
    for x in (np.zeros((2, 2), np.int32), jnp.zeros((2, 2), np.int32)):
        assert jo.eye_like(x, k=2**40).tolist() == jo.eye_like(x, k=-(2**40)).tolist() == [[0, 0], [0, 0]]
