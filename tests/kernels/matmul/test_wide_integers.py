"""Products of integers wrap around exactly, whatever the kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

import jaxops as jo
from jaxops.kernels.matmul import dot, wide_integers
from jaxops.kernels.target import Target
from jaxops.onnx import load

CPU = Target("cpu")
DTYPES = ("int16", "uint16", "int32", "uint32", "int64", "uint64")
# (a, b): one row, the fewest rows with a kernel, as many terms as parts of 22 bits allow and one more, batches that
# broadcast, a vector.
SHAPES = [
    ((1, 64), (64, 9)),
    ((130, 128), (128, 140)),
    ((9, 2048), (2048, 130)),
    ((16, 2049), (2049, 80)),
    ((3, 64, 130), (130, 100)),
    ((2, 1, 80, 96), (3, 96, 90)),
    ((500,), (4, 500, 1100)),
]


def integers(dtype, shape, seed):
    """Numbers of all magnitudes and signs; a quarter are extremes and powers of two, with which sums wrap around."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    values = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    values >>= rng.integers(0, info.bits, shape).astype(dtype)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, *(1 << k for k in range(info.bits - 1))]
    return np.where(rng.random(shape) < 0.25, rng.choice(np.array(edges, dtype), shape), values)


def expected(a, b):
    """The product modulo 2^bits: NumPy's integers wrap around."""
    return np.matmul(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products_wrap_around(shapes, dtype):
    a, b = (integers(dtype, shape, seed) for seed, shape in enumerate(shapes))
    with jax.enable_x64(dtype.endswith("64")):
        y = jax.jit(jo.matmul)(a, b)
        assert y.dtype == dtype
        np.testing.assert_array_equal(np.asarray(y), expected(a, b))


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -(2**21), 2**21, -(2**43) - 2**21, 2**43 + 2**21 - 1])
@pytest.mark.parametrize("terms", [2048, 2049])
def test_sums_of_equal_extremes(value, terms):
    """The largest sums that float64 holds: all parts have the same sign and the largest magnitude."""
    with jax.enable_x64():
        a, b = np.full((40, terms), value), np.full((terms, 40), value)
        np.testing.assert_array_equal(np.asarray(jax.jit(jo.matmul)(a, b)), expected(a, b))


def product(dtype):
    return dot.Multiply(jnp.matmul, (("preferred_element_type", np.dtype(dtype)),))


def types(dtype, *shapes):
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


def test_form_by_platform_and_size():
    def form(target, *shapes, dtype="int64"):
        with jax.enable_x64():
            return wide_integers._select(target, *types(dtype, *shapes), product(dtype))

    assert form(CPU, (200, 200), (200, 200)) is wide_integers._in_float64
    assert form(CPU, (200, 200), (200, 200), dtype="uint64") is wide_integers._in_float64
    assert form(CPU, (2, 2), (2, 2), dtype="uint32") is wide_integers._in_int32
    assert form(Target("gpu"), (200, 200), (200, 200)) is None
    assert form(CPU, (7, 600), (600, 600)) is None  # few rows
    assert form(CPU, (600, 600), (600, 7)) is None  # few columns
    assert form(CPU, (600, 63), (63, 600)) is None  # few terms
    assert form(CPU, (8, 1 << 24), (1 << 24, 8)) is None  # sums of more terms are not exact


@pytest.mark.parametrize("bits", [22, 16])
def test_a_wrong_part_is_seen(bits, monkeypatch):
    """Unsigned parts of 22 bits would have sums that float64 rounds: the test above must see that."""

    def unsigned(x, bits):
        rest = x.astype(jnp.uint64)
        return [((rest >> np.uint64(k)) & np.uint64(2**bits - 1)).astype(jnp.float64) for k in range(0, 64, bits)]

    monkeypatch.setattr(wide_integers, "_parts", unsigned)
    monkeypatch.setattr(wide_integers, "_PARTS", ((bits, 1 << 23),))
    with jax.enable_x64():
        a, b = np.full((64, 2049), -1), np.full((2049, 64), -1)
        y = wide_integers._in_float64(jnp.asarray(a), jnp.asarray(b), product("int64"))
        assert (np.asarray(y) == expected(a, b)).all() == (bits == 16)


@pytest.mark.parametrize("options", [{}, {"alpha": 0.5}, {"transA": 1, "transB": 1}], ids=str)
def test_gemm(options):
    a, b = integers("int64", (130, 130), 2) >> 8, integers("int64", (130, 130), 3) >> 50
    with jax.enable_x64():
        y = np.asarray(jax.jit(lambda a, b: jo.gemm(a, b, **options))(a, b))
    whole = expected(a.T, b.T) if "transA" in options else expected(a, b)
    halves = np.sign(whole) * (np.abs(whole) // 2)  # truncated toward zero
    np.testing.assert_array_equal(y, halves if "alpha" in options else whole)


def test_mapped_products():
    a, b = integers("int64", (2, 130, 130), 4), integers("int64", (130, 130), 5)
    with jax.enable_x64():
        y = jax.jit(jax.vmap(jo.matmul, (0, None)))(a, b)
        np.testing.assert_array_equal(np.asarray(y), expected(a, b))


def test_model_multiplies_in_floats():
    loaded = load(model("m (int64[130,130] x, int64[130,130] w) => (int64[130,130] y) { y = MatMul(x, w) }"), x64=True)
    a, b = integers("int64", (130, 130), 6), integers("int64", (130, 130), 7)
    np.testing.assert_array_equal(np.asarray(loaded(a, b)), expected(a, b))
    with jax.enable_x64():
        compiled = jax.jit(loaded.apply).lower(loaded.params, a, b).as_text()
    if jax.default_backend() == "cpu":
        assert "tensor<130x130xf64>" in compiled
