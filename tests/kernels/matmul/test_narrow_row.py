"""One row times a matrix of 16-bit floats: its form on each machine, and its values."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.export import symbolic_shape
from programs import equations, specialized

import jaxops as jo
from jaxops.kernels.matmul import narrow_row
from jaxops.kernels.target import Target

RNG = np.random.default_rng(0)
OLD = Target("cpu", packs_whole=True)  # with JAX 0.10
DTYPES = {"float16": np.float16, "bfloat16": jnp.bfloat16}


def form(target, dtype, over, shape=(512, 512)):
    a, b = jax.ShapeDtypeStruct((1, shape[over]), dtype), jax.ShapeDtypeStruct(shape, dtype)
    found = narrow_row._select(target, a, b, (((1,), (over,)), ((), ())), np.dtype(np.float32))
    return found and found.__name__


def test_form_chosen():
    assert form(OLD, np.float16, 0) == "_in_panels"
    assert form(OLD, np.float16, 1) is None
    assert form(Target("cpu", specialized=True, prepared=True), np.float16, 0) == "_in_panels"
    assert form(replace(OLD, specialized=True, prepared=True), np.float16, 0) is None  # `dot_form` turns the weights
    for target in (OLD, Target("cpu"), replace(OLD, specialized=True)):
        assert form(target, jnp.bfloat16, 0) == form(target, jnp.bfloat16, 1) == "_as_one_of_two"
    assert form(replace(OLD, specialized=True, prepared=True), jnp.bfloat16, 0) is None
    for shape in ((0, 8), (8, 0), symbolic_shape("k, n")):
        assert form(OLD, np.float16, 0, shape) is form(OLD, jnp.bfloat16, 0, shape) is None
    assert form(Target("gpu"), np.float16, 0) is form(Target("gpu"), jnp.bfloat16, 0) is None


# Columns, rows of the weights: a multiple of a panel, none, and fewer than one.
SIZES = {"panels": (512, 512), "a last panel": (1031, 200), "no panel": (7, 96), "wide": (33, 40_000)}


@pytest.mark.optimized
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lead", [(), (1,), (1, 1)])
def test_values(dtype, size, lead):
    k, n = SIZES[size]
    a, w = (RNG.normal(size=s).astype(DTYPES[dtype]) for s in ((*lead, k), (k, n)))
    w[:, 3] = np.inf
    w[2, 5] = np.nan
    w[k - 1, 6] = -np.inf
    for name, form in {"row": jo.matmul, "panels": panels}.items():
        y = np.asarray(jax.jit(form)(a, w), np.float64)
        assert y.shape == (*lead, n), name
        finite = np.isfinite(w.astype(np.float64)).all(0)
        expected = a.astype(np.float64) @ np.where(finite, w.astype(np.float64), 0)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            y[..., finite], expected[..., finite], atol=scale * 2.0 ** (-8 - 2 * (dtype != "bfloat16"))
        )
        assert np.isnan(y[..., [3, 5]]).all()
        assert (y[..., 6] == -np.inf * np.sign(a.reshape(-1)[-1].astype(np.float64))).all()


def panels(a, w):
    over = (((a.ndim - 1,), (0,)), ((), ()))
    return narrow_row._in_panels(a, w, over, np.dtype(np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_and_vmap(dtype):
    a, w, many = (RNG.normal(size=s).astype(DTYPES[dtype]) for s in ((1, 70), (70, 33), (4, 1, 70)))
    over = (((1,), (0,)), ((), ()))

    def of_form(fn):
        def total(a, w):
            return jnp.square(fn(a, w)).sum()

        return [*jax.jit(jax.grad(total, (0, 1)))(a, w), jax.jit(jax.vmap(fn, (0, None)))(many, w)]

    def row(a, w):
        return narrow_row.narrow_row(a, w, over, np.dtype(np.float32))

    expected = of_form(lambda a, w: lax.dot_general(a, w, over, preferred_element_type=np.float32))
    for found in (of_form(row), of_form(panels)):
        for y, e in zip(found, expected, strict=True):
            assert y.dtype == e.dtype
            np.testing.assert_allclose(
                *(np.asarray(v, np.float64) for v in (y, e)), rtol=0.02, atol=0.02 * np.abs(e).max()
            )


def test_prepared_weights_of_float16_are_turned_for_one_row_alone():
    w = jax.ShapeDtypeStruct((300, 96), np.float16)
    for rows, over in ((1, 1), (2, 0)):  # with JAX 0.10
        run = specialized(jo.matmul, replace(OLD, prepared=True))
        made = jax.make_jaxpr(run)(jax.ShapeDtypeStruct((rows, 300), np.float16), w)
        (product,) = [e for e in equations(made.jaxpr) if e.primitive is lax.dot_general_p]
        assert product.params["dimension_numbers"][0][1] == (over,)
