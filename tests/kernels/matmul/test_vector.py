"""A row times a matrix, and a matrix times a column, as what is there."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import info, node
from jax import lax
from onnx import helper, numpy_helper
from programs import specialized

import jaxops.onnx
from jaxops.compiler.xla_options import program_options
from jaxops.kernels.matmul.vector import column_product, row_product
from jaxops.kernels.target import this_machine
from jaxops.ops.math.linear_algebra import matmul

RNG = np.random.default_rng(0)


def compiled(fn, *operands):
    return jax.jit(fn, compiler_options=program_options(this_machine())).lower(*operands).compile()


def operations(program):
    """The names of what a compiled program runs."""
    return set(re.findall(r" ([\w-]+)\(", program.as_text()))


@pytest.mark.optimized
@pytest.mark.parametrize(("k", "m"), [(2, 3), (7, 300), (480, 120), (257, 256), (960, 240), (3, 40_000)])
def test_a_row_times_a_matrix(k, m):
    row, matrix = RNG.standard_normal(k, np.float32), RNG.standard_normal((k, m), np.float32)
    row[0], matrix[0, :2], matrix[1, 1] = np.inf, (0, 1), np.nan
    run = compiled(row_product, row, matrix)
    with np.errstate(invalid="ignore"):
        wanted = row.astype(float) @ matrix
    np.testing.assert_allclose(run(row, matrix), wanted, rtol=2e-4, atol=2e-4)
    assert operations(run) & {"convolution", "dot"}


@pytest.mark.optimized
@pytest.mark.parametrize(
    ("a", "b"), [((1, 512, 16), (1, 16, 1)), ((512, 32), (1, 1, 32, 1)), ((1, 1, 5, 1), (1, 1, 1)), ((4, 0), (1, 0, 1))]
)
def test_a_small_matrix_times_a_column_is_a_sum(a, b):
    a, b = RNG.standard_normal(a, np.float32), RNG.standard_normal(b, np.float32)
    if a.shape[-1] > 1:
        a[..., 0, 0], a[..., 1, 1], b[..., 1, 0] = np.inf, np.inf, 0

    found = compiled(specialized(matmul), a, b)
    with np.errstate(invalid="ignore"):
        wanted = a.astype(float) @ b
    np.testing.assert_allclose(found(a, b), wanted, rtol=1e-5, atol=1e-5)
    assert "dot" not in operations(found)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 512, 33), (1, 33, 1)),  # two loops
        ((1, 513, 32), (1, 32, 1)),  # worth XLA's loop
        ((2, 8, 16), (1, 16, 1)),
        ((1, 8, 16), (2, 16, 1)),
        ((1, 8, 16), (1, 16, 2)),
        ((16,), (1, 16, 1)),
        ((1, 8, 16), (16,)),
    ],
)
def test_other_products_stay_as_they_are(a, b):
    assert column_product(jnp.ones(a), jnp.ones(b), jnp.matmul) is None
    assert column_product(jnp.ones((8, 16), jnp.float16), jnp.ones((16, 1), jnp.float16), jnp.matmul) is None


@pytest.mark.optimized
@pytest.mark.parametrize("squeezed", [8, 96])
def test_squeeze_and_excitation_of_a_model(squeezed):
    """Both products of one row run as convolutions or as products of two rows; none is a loop."""
    channels = 768
    tensors = {
        "w": RNG.standard_normal((channels, 3, 1, 1), np.float32),
        "w1": RNG.standard_normal((squeezed, channels, 1, 1), np.float32) / 30,
        "w2": RNG.standard_normal((channels, squeezed, 1, 1), np.float32) / 10,
    }
    nodes = [
        node("Conv", ["x", "w"], ["h"]),
        node("GlobalAveragePool", ["h"], ["m"]),
        node("Conv", ["m", "w1"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w2"], ["s"]),
        node("Sigmoid", ["s"], ["g"]),
        node("Mul", ["h", "g"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(x, name) for name, x in tensors.items()]
    graph = helper.make_graph(nodes, "g", [info("x", [1, 3, 7, 7])], [info("y", None)], initializers)
    model = jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    x = RNG.standard_normal((1, 3, 7, 7), np.float32)
    h = lax.conv(x, tensors["w"], (1, 1), "VALID")
    m = np.maximum(tensors["w1"][..., 0, 0] @ np.asarray(h).mean((0, 2, 3)), 0)
    gate = 1 / (1 + np.exp(-(tensors["w2"][..., 0, 0] @ m)))
    np.testing.assert_allclose(model(x), h * gate[None, :, None, None], rtol=1e-4, atol=1e-4)
    (part,) = model._weights.cache.executables.values()
    names = operations(part.run.lower(part.prepared, part.weights, [x]).compile())
    assert names & {"convolution", "dot"}
