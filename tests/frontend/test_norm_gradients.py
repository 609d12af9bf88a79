"""Norms and deviations as exporters write them: the gradient at zero is that of PyTorch's operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from openvino_files import File

import jaxops.onnx
import jaxops.openvino

ONCE = "i = Constant <value_ints: ints = [1]> () two = Constant <value_float: float = 2.0> () "
# What `torch.onnx.export` makes of each, and the gradient that PyTorch's own operator has at [[0, 0], [3, 4]].
NORM = [[0, 0], [0.6, 0.8]]
CHAINS = {
    "norm": ("y = ReduceL2 <axes: ints = [1]> (x)", NORM),
    "matrix norm": (ONCE + "s = Mul(x, x) r = ReduceSum(s, i) y = Sqrt(r)", NORM),
    "norm of order 3": (
        ONCE + "a = Abs(x) c = Constant <value_float: float = 3.0> () s = Pow(a, c) r = ReduceSum(s, i) "
        "e = Constant <value: tensor = float[1] {0.33333334}> () y = Pow(r, e)",
        [[0, 0], [0.4448515, 0.790847]],
    ),
    "std": (
        ONCE
        + "m = ReduceMean <axes: ints = [1]> (x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean <axes: ints = [1]> (s) "
        + "w = Mul(v, two) one = Constant <value_float: float = 1.0> () u = Div(w, one) y = Sqrt(u)",
        [[0, 0], [-0.7071068, 0.7071068]],
    ),
    "distance": (
        ONCE + "z = Sub(x, x) d = Sub(x, z) s = Pow(d, two) r = ReduceSum(s, i) "
        "half = Constant <value_float: float = 0.5> () y = Pow(r, half)",
        NORM,
    ),
    "norms in a cosine": (
        ONCE + "s = Mul(x, x) r = ReduceSum(s, i) c = Mul(r, two) q = Sqrt(c) y = Div(q, two)",
        [[0, 0], [0.6 / 2**0.5, 0.8 / 2**0.5]],
    ),
    "hypotenuse": (
        ONCE + "s = Mul(x, x) t = Mul(two, x) q = Mul(t, t) a = Add(s, q) y = Sqrt(a)",
        [[0, 0], [5**0.5, 5**0.5]],
    ),
    "distance, clipped": (
        ONCE
        + "z = Sub(x, x) d = Sub(x, z) s = Mul(d, d) r = ReduceSum(s, i) low = Constant <value_float: float = 0> () "
        "m = Max(low, r) c = Clip(m, low) p = Relu(c) y = Sqrt(p)",
        NORM,
    ),
    "exponents that are cast": (
        ONCE + "e = Constant <value: tensor = double {2}> () f = Identity(e) g = Cast <to: int = 1> (f) s = Pow(x, g) "
        "r = ReduceSum(s, i) h = Constant <value: tensor = double {0.5}> () j = Cast <to: int = 1> (h) y = Pow(r, j)",
        NORM,
    ),
    "root of a sum of squares": ("s = ReduceSumSquare <axes: ints = [1]> (x) y = Sqrt(s)", NORM),
    "in a function": ("y = own.Norm(x)", NORM),
    "in a branch": (
        ONCE + "yes = Constant <value: tensor = bool {1}> () y = If(yes) <then_branch = t () => (float[M, 1] z) "
        "{ s = Mul(x, x) r = ReduceSum(s, i) z = Sqrt(r) }, "
        "else_branch = e () => (float[M, 1] w) { w = ReduceSum(x, i) }>",
        NORM,
    ),
}
FUNCTION = f"""
<domain: "own", opset_import: ["": 13]>
Norm (a) => (b) {{ {ONCE} s = Mul(a, a) r = ReduceSum(s, i) b = Sqrt(r) }}
"""


def gradient(body, x):
    x = jnp.asarray(x, jnp.float32)
    head = f"m (float{list(x.shape)} x) => (float[M, N] y)"
    proto = model(f"{head} {{ {body} }}", opset=13, functions=FUNCTION, imports=', "own": 1')
    loaded = jaxops.onnx.load(proto)
    return jax.grad(lambda x: jnp.sum(loaded.apply(loaded.params, x)))(x)


@pytest.mark.parametrize("name", CHAINS)
def test_at_zero_the_gradient_is_zero(name):
    body, expected = CHAINS[name]
    np.testing.assert_allclose(gradient(body, [[0, 0], [3, 4]]), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "y = Sqrt(x)",
        "half = Constant <value_float: float = 0.5> () y = Pow(x, half)",
        "s = ReduceSum <keepdims: int = 0> (x) y = Sqrt(s)",
        "one = Constant <value_float: float = 1.0> () s = Pow(x, one) y = Sqrt(s)",
    ],
)
def test_another_root_keeps_its_infinite_derivative(body):
    assert gradient(body, [0.0]).tolist() == [np.inf]


def test_values_stay():
    x = np.array([[0, 0], [3, 4], [np.nan, 1], [np.inf, 1], [-0.0, 1e-30]], np.float32)
    loaded = jaxops.onnx.load(model("m (float[5, 2] x) => (float[5] y) { s = Mul(x, x) y = Sqrt(s) }"))
    np.testing.assert_array_equal(loaded(x), np.sqrt(x * x))


def of_ir(squares, root, exponents, x):
    """The gradients by both operands of the root of the mean of their squared difference, in an IR."""
    file = File("distance")
    a, b = file.parameter(list(x.shape), "f4"), file.parameter(list(x.shape), "f4")

    def number(value):
        constant = file.constant(np.array(value, exponents))
        return file.layer("Convert", 1, [constant], {"destination_type": "f32"}) if exponents == "f2" else constant

    axis = file.constant(np.array([1]))
    if squares == "SquaredDifference":
        square = file.layer("SquaredDifference", 1, [a, b])
    else:
        difference = file.layer("Subtract", 1, [a, b])
        square = file.layer(squares, 1, [difference, difference if squares == "Multiply" else number(2)])
    if root == "ReduceL2":
        file.result(file.layer("ReduceL2", 4, [file.layer("Subtract", 1, [a, b]), axis], {"keep_dims": False}))
    else:
        total = file.layer("ReduceMean", 1, [square, axis], {"keep_dims": False})
        file.result(file.layer(root, 1, [total] if root == "Sqrt" else [total, number(0.5)]))
    net = jaxops.openvino.load(file.xml, weights=file.bin)
    x = jnp.asarray(x, jnp.float32)
    return jax.jit(jax.grad(lambda a, b: jnp.sum(net.apply(net.params, a, b)), (0, 1)))(x, jnp.zeros_like(x))


@pytest.mark.parametrize("exponents", ["f4", "f2"])
@pytest.mark.parametrize("root", ["Sqrt", "Power"])
@pytest.mark.parametrize("squares", ["Multiply", "Power", "SquaredDifference"])
def test_equal_operands_in_an_ir(squares, root, exponents):
    one, other = of_ir(squares, root, exponents, np.array([[0, 0], [3, 4]]))
    np.testing.assert_allclose(one, np.array(NORM) / 2**0.5, rtol=1e-6)
    np.testing.assert_array_equal(other, -one)


def test_equal_operands_of_a_norm_in_an_ir():
    one, other = of_ir("Multiply", "ReduceL2", "f4", np.array([[0, 0], [3, 4]]))
    np.testing.assert_allclose(one, NORM, rtol=1e-6)
    np.testing.assert_array_equal(other, -one)
