"""Products of few rows with weights as the first operand, or in panels: same numbers, and the order that was chosen."""

import jax
import numpy as np
import pytest
from jax import lax
from programs import equations, selected

import jaxops as jo
from jaxops.kernels import target
from jaxops.kernels.matmul import dot

pytestmark = pytest.mark.optimized
RNG = np.random.default_rng(0)
# Rows, whether large weights are (columns, terms), whether they are prepared → how they are multiplied.
LARGE = {
    (1, True, False): "whole",
    (2, True, False): "first",
    (48, True, False): "first",
    (48, False, False): "whole",
    (48, True, True): "first",
    (49, False, False): "panels",
    (49, False, True): "first",
    (50, True, True): "first",
    (95, False, True): "first",
    (96, True, False): "whole",
}


@pytest.mark.parametrize("columns", [1024, 1050])
@pytest.mark.parametrize("case", LARGE)
def test_large_weights_go_first_or_in_panels(case, columns, monkeypatch):
    monkeypatch.setattr(dot, "_LARGE", 4 * 96 * 1000)
    monkeypatch.setattr(dot, "_PANEL", 4 * 96 * 128)
    rows, transposed, prepared = case
    w = RNG.normal(size=(96, columns)).astype(np.float32)
    w[3, 700], w[5, columns - 1] = np.inf, np.nan
    a = RNG.normal(size=(rows, 96) if transposed else (1, rows, 96)).astype(np.float32)

    def fn(a, w):
        return jo.gemm(a, w, transB=1) if transposed else jo.matmul(a, w)

    weights = w.T if transposed else w
    machine = target.Target("cpu", specialized=True, prepared=prepared, packs_whole=True)
    run = selected(fn, machine)
    inner = [e for e in equations(jax.make_jaxpr(run)(a, weights).jaxpr) if e.primitive is lax.dot_general_p]
    sizes = [max(v.aval.shape) for v in inner[0].invars]
    assert (sizes[0] == columns) == (LARGE[case] == "first")
    assert (sizes[1] == 128) == (LARGE[case] == "panels")
    assert len(inner) == (1 + (columns % 128 > 0) if LARGE[case] == "panels" else 1)
    assert_product(np.asarray(jax.jit(run)(a, weights)), a, w)


def assert_product(y, a, w):
    """Compares a product with weights that have an infinity at (3, 700) and a NaN in the last column."""
    expected, columns = a.astype(np.float64) @ w.astype(np.float64), w.shape[1]
    assert y.shape == expected.shape
    assert np.isnan(y[..., -1]).all()
    assert (y[..., 700] == expected[..., 700]).all()
    finite = [c for c in range(columns - 1) if c != 700]
    np.testing.assert_allclose(y[..., finite], expected[..., finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lead", [(32,), (2, 16), (2, 4, 4)])
@pytest.mark.parametrize("axis", [0, -1])
def test_weights_that_go_first(lead, axis):
    """Along any summed axis and for data of any rank, one compiled product: XLA would swap the operands of it."""
    w = RNG.normal(size=(1050, 300)).astype(np.float32)
    w[700, 3], w[-1, 5] = np.inf, np.nan
    a = RNG.normal(size=(*lead, 300)).astype(np.float32)
    over = a.ndim - 1 if axis else 0
    given = a if axis else np.moveaxis(a, -1, 0)
    run = selected(
        lambda a, w: lax.dot_general(a, w, (((over,), (1,)), ((), ()))), target.Target("cpu", specialized=True)
    )
    compiled = jax.jit(run).lower(given, w).compile()
    assert_product(np.asarray(compiled(given, w)), a, w.T)
    is_first = axis == -1 or len(lead) == 1
    jaxpr = jax.make_jaxpr(run)(given, w).jaxpr
    (product,) = [e for e in equations(jaxpr) if e.primitive is lax.dot_general_p]
    assert (product.invars[0].aval.shape == w.shape) == is_first
    assert ("opt-barrier" in jax.jit(run).lower(given, w).as_text("hlo")) == is_first
