"""Products with a matrix of 16-bit floats: their form on each machine, their values, and their memory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.export import symbolic_shape
from programs import equations, specialized

import jaxops as jo
from jaxops.kernels.matmul import narrow_product
from jaxops.kernels.target import Target

RNG = np.random.default_rng(0)
OLD = Target("cpu", packs_whole=True)  # with JAX 0.10
PREPARED = replace(OLD, specialized=True, prepared=True)
DTYPES = {"float16": np.float16, "bfloat16": jnp.bfloat16}
FLOAT = np.dtype(np.float32)


def form(target, dtype, over, shape=(512, 512), rows=1):
    a, b = jax.ShapeDtypeStruct((rows, shape[over]), dtype), jax.ShapeDtypeStruct(shape, dtype)
    found = narrow_product._select(target, a, b, over, FLOAT)
    return found and found.__name__


def test_form_of_a_row():
    assert form(OLD, np.float16, 0) == form(OLD, np.float16, 1) == "_in_panels"
    assert form(Target("cpu", specialized=True, prepared=True), np.float16, 0) == "_in_panels"
    assert form(PREPARED, np.float16, 0) == "_turned"
    assert form(PREPARED, np.float16, 1) == "_in_panels"
    for target in (OLD, Target("cpu"), replace(OLD, specialized=True)):
        assert form(target, jnp.bfloat16, 0) == form(target, jnp.bfloat16, 1) == "_as_one_of_two"
    assert form(PREPARED, jnp.bfloat16, 0) is None
    for shape in ((0, 8), (8, 0), symbolic_shape("k, n")):
        assert form(OLD, np.float16, 0, shape) is form(OLD, jnp.bfloat16, 0, shape) is None
    assert form(Target("gpu"), np.float16, 0) is form(Target("gpu"), jnp.bfloat16, 0) is None


def test_form_of_more_rows():
    for target in (OLD, Target("cpu"), PREPARED):
        assert form(target, np.float16, 0, rows=2) == form(target, np.float16, 1, rows=300) == "_in_panels"
        assert form(target, jnp.bfloat16, 0, rows=2) is form(target, np.float16, 0, (256, 256), rows=2) is None
    assert form(replace(OLD, partitioned=True), np.float16, 0, rows=2) is None
    assert form(OLD, np.float16, 0, rows=symbolic_shape("n")[0]) is None


# K and N: a multiple of a panel, none, and fewer than one.
SIZES = {"panels": (512, 512), "a last panel": (1031, 203), "no panel": (7, 96), "wide": (33, 9001)}


@pytest.mark.optimized
@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lead", [(), (1,), (1, 1), (2,), (2, 8), (17,), (65,), (3, 0)])
def test_values(size, lead, over, monkeypatch):
    monkeypatch.setattr(narrow_product, "_PANEL", 1 << 15)
    k, n = SIZES[size]
    a, w = spoiled((*lead, k), (k, n), np.float16)
    b = w if over == 0 else w.T
    check(jax.jit(lambda a, b: narrow_product._in_panels(a, b, over, FLOAT))(a, b), a, w, 2.0**-18)


@pytest.mark.optimized
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", [(), (1,), (1, 1), (40,)])
def test_values_of_an_operator(dtype, lead):
    a, w = spoiled((*lead, 1031), (1031, 200), DTYPES[dtype])
    check(jax.jit(jo.matmul)(a, w), a, w, 2.0 ** (-8 - 2 * (dtype != "bfloat16")))


def spoiled(a_shape, w_shape, dtype):
    a, w = (RNG.normal(size=shape).astype(dtype) for shape in (a_shape, w_shape))
    w[:, 3] = np.inf
    w[2, 5] = np.nan
    w[-1, 6] = -np.inf
    return a, w


def check(y, a, w, tolerance):
    y, a, w = (np.asarray(x, np.float64) for x in (y, a, w))
    with np.errstate(invalid="ignore"):
        expected = a @ w
    assert y.shape == expected.shape
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    np.testing.assert_allclose(y, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_and_vmap(dtype, rows):
    a, w, many = (RNG.normal(size=s).astype(DTYPES[dtype]) for s in ((rows, 700), (700, 333), (4, rows, 700)))

    def of_form(fn):
        def total(a, w):
            return jnp.square(fn(a, w)).sum()

        return [
            *jax.jit(jax.grad(total, (0, 1)))(a, w),
            *jax.jvp(lambda a: fn(a, w), [a], [a + 1]),
            jax.jit(jax.vmap(fn, (0, None)))(many, w),
            jax.jit(jax.vmap(jax.grad(total), (0, None)))(many, w),
        ]

    def product(a, w):
        return narrow_product.narrow_product(a, w, 0, FLOAT)

    def panels(a, w):
        return narrow_product._in_panels(a, w, 0, FLOAT)

    expected = of_form(lambda a, w: lax.dot(a, w, preferred_element_type=np.float32))
    for found in (of_form(product), of_form(panels)):
        for y, e in zip(found, expected, strict=True):
            assert y.dtype == e.dtype
            np.testing.assert_allclose(
                *(np.asarray(v, np.float64) for v in (y, e)), rtol=0.02, atol=0.02 * np.abs(e).max()
            )


def test_prepared_weights_of_float16_are_turned_for_one_row_alone():
    w = jax.ShapeDtypeStruct((900, 300), np.float16)
    for rows, turned in ((1, True), (2, False)):  # with JAX 0.10
        run = specialized(jo.matmul, replace(OLD, prepared=True))
        made = jax.make_jaxpr(run)(jax.ShapeDtypeStruct((rows, 900), np.float16), w)
        transposes = [e for e in equations(made.jaxpr) if e.primitive is lax.transpose_p]
        assert any(e.invars[0].aval.shape == w.shape for e in transposes) is turned


@pytest.mark.parametrize("rows", [1, 4, 64, 300])
def test_weights_are_not_all_in_memory_as_float32(rows):
    def many(x, weights):
        for w in weights:
            x = jo.matmul(x, w)
        return x

    weights = [jax.ShapeDtypeStruct((1024, 1024), np.float16)] * 12
    compiled = jax.jit(many).lower(jax.ShapeDtypeStruct((rows, 1024), np.float16), weights).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 24 << 20  # all weights in float32: 48 MiB


def test_a_contracted_axis_may_come_first():
    a, w = (RNG.normal(size=(700, n)).astype(np.float16) for n in (3, 300))
    y = jax.jit(lambda a, w: jo.gemm(a, w, transA=1))(a, w)
    expected = a.T.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, atol=1e-3 * np.abs(expected).max())
