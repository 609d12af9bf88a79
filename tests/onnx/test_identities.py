"""Identities of real numbers that floats do not have: a compiled model computes each operation that its file names.

The results must be those of the operations one by one, at zeros of both signs, infinities, NaN, and where a value in
between overflows. `+` marks an operand that has passed through operations which XLA removes.
"""

import jax
import numpy as np
import pytest
from graphs import model

from jaxops.onnx import load

pytestmark = pytest.mark.optimized

# No value in between is a subnormal number, which XLA replaces by zero.
SPECIAL = [0.0, -0.0, 1, -1, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e30, -1e30, 120, -120, 0.5, -0.5, 3, -3, 88.8, -87]
EXPONENTS = [3, 2, 0.5, -1, -2, 0, 1]
X = np.tile(np.float32(SPECIAL), 30 * len(EXPONENTS))
P = np.repeat(np.float32(EXPONENTS), 30 * len(SPECIAL))
CONSTANTS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "half": 0.5,
    "zero": 0,
    "nought": -0.0,
    "less": -1,
    "big": 1e20,
    "small": -1e20,
}

# `r` is `b` after a sum over an axis of size 1.
SUM = "u = Unsqueeze(b, axis) r = ReduceSum<keepdims=0>(u, axis)"
IDENTITIES = {
    "log(exp)": "a = Exp(x) y = Log(a)",
    "exp(log)": "a = Log(x) y = Exp(a)",
    "log(exp)+": f"b = Exp(x) {SUM} y = Log(r)",
    "log(pow)": "a = Pow(x, p) y = Log(a)",
    "log(pow)+": f"b = Pow(x, p) {SUM} y = Log(r)",
    "log(pow)*1": "a = Pow(x, p) b = Mul(one, a) c = Div(b, one) y = Log(c)",
    "log(pow)-0": "a = Pow(x, p) b = Sub(a, zero) c = Add(nought, b) y = Log(c)",
    "log of a cube": "a = Pow(x, three) y = Log(a)",
    "log of one maximum": "a = Pow(x, p) u = Unsqueeze(a, axis) b = ReduceMax<keepdims=0>(u, axis) y = Log(b)",
    "log of one sum": "a = Pow(x, p) u = Unsqueeze(a, axis) b = CumSum(u, at) c = Squeeze(b, axis) y = Log(c)",
    "ReduceLogSum(pow)": "a = Pow(x, p) u = Unsqueeze(a, axis) y = ReduceLogSum<keepdims=0>(u, axis)",
    "ReduceLogSum(exp)": "a = Exp(x) u = Unsqueeze(a, axis) y = ReduceLogSum<keepdims=0>(u, axis)",
    "ReduceLogSumExp": "u = Unsqueeze(x, axis) y = ReduceLogSumExp<keepdims=0>(u, axis)",
    "log(x*x)": "a = Mul(x, x) y = Log(a)",
    "log(sqrt)": "a = Sqrt(x) y = Log(a)",
    "log(1/x)": "a = Reciprocal(x) y = Log(a)",
    "log(exp*exp)": "a = Exp(x) b = Exp(p) c = Mul(a, b) y = Log(c)",
    "log((exp-1)+1)": "a = Exp(x) b = Sub(a, one) c = Add(b, one) y = Log(c)",
    "sqrt(x*x)": "a = Mul(x, x) y = Sqrt(a)",
    "sqrt(x*x)+": f"b = Mul(x, x) {SUM} y = Sqrt(r)",
    "sqrt(pow)": "a = Pow(x, p) y = Sqrt(a)",
    "sqrt*sqrt": "a = Sqrt(x) y = Mul(a, a)",
    "pow(pow)": "a = Pow(x, p) y = Pow(a, half)",
    "pow(pow)+": f"b = Pow(x, two) {SUM} y = Pow(r, half)",
    "pow(exp)": "a = Exp(x) y = Pow(a, p)",
    "pow(sqrt)": "a = Sqrt(x) y = Pow(a, two)",
    "exp*exp": "n = Neg(x) a = Exp(x) b = Exp(n) y = Mul(a, b)",
    "exp*exp+": f"n = Neg(x) a = Exp(x) b = Exp(n) {SUM} y = Mul(a, r)",
    "exp/exp": "a = Exp(x) y = Div(a, a)",
    "x/exp": "a = Exp(x) y = Div(x, a)",
    "x/pow": "a = Pow(x, p) y = Div(x, a)",
    "x/pow+": f"b = Pow(x, p) {SUM} y = Div(x, r)",
    "x/(1/x)": "a = Reciprocal(x) y = Div(x, a)",
    "x*(1/x)": "a = Reciprocal(x) y = Mul(x, a)",
    "x/sqrt": "a = Sqrt(x) y = Div(x, a)",
    "x*0": "y = Mul(x, zero)",
    "x-x": "y = Sub(x, x)",
    "x/x": "y = Div(x, x)",
    "x+(-x)": "a = Neg(x) y = Add(x, a)",
    "x-(x-1)": "a = Sub(x, one) y = Sub(x, a)",
    "(x+c)-c+": f"b = Add(x, big) {SUM} y = Sub(r, big)",
    "(x*c)*d+": f"b = Mul(x, big) {SUM} y = Mul(r, small)",
    "c*x+d*x": "a = Mul(x, two) b = Mul(x, less) y = Add(a, b)",
    "1/(x+0)": "a = Add(x, zero) y = Reciprocal(a)",
    "1/(0+x)": "a = Add(zero, x) y = Reciprocal(a)",
    "1/(x+(-0))": "a = Add(x, nought) y = Reciprocal(a)",
    "1/(x-0)": "a = Sub(x, zero) y = Reciprocal(a)",
    "1/(x-(-0))": "a = Sub(x, nought) y = Reciprocal(a)",
    "1/(0-x)": "a = Sub(zero, x) y = Reciprocal(a)",
    "1/(x*0+0)": "b = Mul(x, zero) a = Add(b, zero) y = Reciprocal(a)",
    "1/Sum": "a = Sum(x, zero) y = Reciprocal(a)",
    "1/Mean": "a = Mean(x, zero) y = Reciprocal(a)",
    "1/(x*-1)": "a = Mul(x, less) y = Reciprocal(a)",
    "1/max(x,0)": "a = Max(x, zero) y = Reciprocal(a)",
}


def of(nodes):
    constants = {name: np.float32(value) for name, value in CONSTANTS.items()}
    integers = {"axis": np.array([1]), "at": np.array(1)}
    return load(
        model(f"main (float[n] x, float[n] p) => (float[n] y) {{ {nodes} }}", initializers=constants | integers)
    )


def same(found, expected):
    """Asserts that two arrays agree: signs of zeros, infinities and NaNs exactly, and numbers to rounding."""
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("name", IDENTITIES)
def test_operations_are_computed_as_they_are_named(name):
    found = of(IDENTITIES[name])
    with jax.disable_jit():
        expected = np.asarray(found.apply(found.params, X, P))
    same(np.asarray(found(X, P)), expected)
    same(np.asarray(jax.jit(found.apply)(found.params, X, P)), expected)


def test_signs_of_zeros_are_compared():
    with pytest.raises(AssertionError):
        same(np.float32([0]), np.float32([-0.0]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double"])
def test_zeros_of_other_types(dtype):
    text = f"main ({dtype}[n] x) => ({dtype}[n] y) {{ a = Add(x, zero) y = Reciprocal(a) }}"
    wide = dtype == "double"
    numpy = jax.numpy.dtype("float64" if wide else dtype)
    with jax.enable_x64(wide):
        found = load(model(text, initializers={"zero": np.asarray(0, numpy)}))
        x = np.full(4096, -0.0, numpy)
        for call in (found, lambda x: found.apply(found.params, x), jax.jit(found)):
            np.testing.assert_array_equal(np.asarray(call(x), np.float64), np.inf)


def test_what_the_guide_says_of_products_of_exponentials():
    """notebooks/performance.ipynb: NaN where the operations are kept apart, 1 where XLA may merge them."""
    found = load(model("main (float[n] x) => (float[n] y) { m = Neg(x) a = Exp(x) b = Exp(m) y = Mul(a, b) }"))
    x = np.full(4096, 120, np.float32)

    def apply(x):
        return found.apply(found.params, x)

    for call in (found, jax.jit(apply), lambda x: found.export(sizes={"n": 4096}).call(found.params, x)):
        assert np.isnan(call(x)).all()
    merged = (
        apply,
        lambda x: jax.jit(jax.vmap(apply))(x[None]),
        lambda x: jax.value_and_grad(lambda x: apply(x).sum())(x)[0] / len(x),
        lambda x: found.export().call(found.params, x),
    )
    for call in merged:
        y = np.asarray(call(x))
        assert (np.isnan(y) | (y == 1)).all()


def test_what_the_guide_says_of_a_difference_of_products():
    """notebooks/performance.ipynb: a product and the sum behind it have one rounding."""
    nodes = "c = Mul(a, x) d = Mul(b, x) y = Add(c, d)"
    found = load(model(f"main (float[n] x, float[n] a, float[n] b) => (float[n] y) {{ {nodes} }}"))
    x, a = np.full(4096, 1e10, np.float32), np.full(4096, 1e20, np.float32)
    off = abs(float(x[0]) * float(a[0]) - float(x[0] * a[0]))  # the rounding of one product
    assert 4e21 < off < 6e21
    for call in (found, jax.jit(lambda *of: found.apply(found.params, *of))):
        y = np.abs(call(x, a, -a))
        assert (np.isclose(y, off) | (y == 0)).all()
