"""A row times a matrix, a matrix times a column, and the mean of the places of an image, as what is there."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import info, node
from jax import lax
from onnx import helper, numpy_helper
from programs import primitives, specialized

import jaxops.onnx
from jaxops.compiler.xla_options import program_options
from jaxops.kernels.matmul import vector
from jaxops.kernels.matmul.vector import column_product, mean_of_places, row_product
from jaxops.kernels.target import this_machine
from jaxops.ops.math.linear_algebra import matmul
from jaxops.ops.nn.pooling import average_pool, global_average_pool
from jaxops.ops.reduction.reductions import reduce_mean

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


# Both forms, an odd and a prime number of places, three axes.
SIZES = [(960, 7, 7), (3, 11, 3), (512, 16, 16), (1024, 16, 16), (144, 56, 56), (3, 224, 224), (5, 41, 1), (9, 4, 4, 4)]


@pytest.mark.optimized
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_mean_of_places(sizes):
    x = RNG.standard_normal((1, *sizes), np.float32) + 1
    x[0, 1].flat[0], x[0, 2].flat[-1] = np.nan, -np.inf
    axes = tuple(range(2, x.ndim))

    run = compiled(specialized(lambda x: mean_of_places(x, axes)), x)
    np.testing.assert_allclose(run(x), x.astype(float).mean(axes), rtol=1e-6, atol=1e-6)
    assert "reduce-window" not in operations(run)
    np.testing.assert_allclose(run(np.full_like(x, 3)), np.full((1, sizes[0]), 3), rtol=1e-6)


@pytest.mark.parametrize(("count", "places"), [(33, 33), (49, 49), (196, 196), (392, 12_544)])
def test_weights_of_a_mean_are_one_together(count, places):
    """A mean of ones is one. XLA would make a loop of numbers that are all the same."""
    weights = vector._weights(count, places)
    assert math.fsum(weights) == pytest.approx(count / places, rel=1e-8)
    assert len(set(weights)) == 2


@pytest.mark.parametrize(
    ("x", "axes"),
    [
        (np.ones((2, 8, 9, 9), np.float32), (2, 3)),
        (np.ones((1, 8, 5, 5), np.float32), (2, 3)),  # few places
        (np.ones((1, 1, 1031, 1), np.float32), (2, 3)),  # a prime number of many
        (np.ones((1, 8, 81), np.float32), (2,)),
        (np.ones((1, 9, 9, 8), np.float32), (1, 2)),
        (np.ones((1, 8, 9, 9), np.float32), (3,)),
        (np.ones((1, 8, 9, 9), np.float16), (2, 3)),
        (np.ones((1, 8, 9, 9), np.int32), (2, 3)),
    ],
    ids=lambda x: f"{x.shape} {x.dtype}" if isinstance(x, np.ndarray) else str(x),
)
def test_other_means_stay_as_they_are(x, axes):
    assert mean_of_places(jnp.asarray(x), axes) is None


def test_only_in_specialized_programs():
    """In other programs a loop can be a part of others, and derivatives are those of a mean."""

    def mean(x):
        return mean_of_places(x, (2, 3))

    x = jnp.ones((1, 8, 9, 9))
    assert "reduce_sum" in primitives(mean, x)
    assert "reduce_sum" not in primitives(specialized(mean), x)
    np.testing.assert_allclose(jax.grad(lambda x: mean(x)[0, 3])(x)[0, 3], np.full((9, 9), 1 / 81), rtol=1e-6)


@pytest.mark.optimized
@pytest.mark.parametrize(
    "mean",
    [
        global_average_pool,
        lambda x: average_pool(x, kernel_shape=x.shape[2:]),
        lambda x: reduce_mean(x, (2, 3)),
        lambda x: reduce_mean(x, (-1, -2), keepdims=0)[..., None, None],
    ],
    ids=["global", "window", "mean", "dropped"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_operators(mean, dtype):
    x = RNG.standard_normal((1, 64, 14, 14), np.float32).astype(dtype)

    found = compiled(specialized(mean), x)
    y = found(x)
    assert y.shape == (1, 64, 1, 1)
    assert y.dtype == dtype
    wanted = x.astype(float).mean((2, 3), keepdims=True)
    np.testing.assert_allclose(y, wanted, rtol=1e-5 if dtype == np.float32 else 2e-3, atol=1e-5)
    assert not operations(found) & {"reduce", "reduce-window"}


def test_a_window_with_padding_is_no_mean_of_all():
    x = RNG.standard_normal((1, 8, 9, 9), np.float32)
    attributes = {"kernel_shape": (9, 9), "pads": (0, 0, 1, 1), "strides": (9, 9), "count_include_pad": 1}
    found = specialized(lambda x: average_pool(x, **attributes))(x)
    np.testing.assert_allclose(found, x.mean((2, 3), keepdims=True), rtol=1e-5, atol=1e-6)


@pytest.mark.optimized
@pytest.mark.parametrize("squeezed", [8, 96])
def test_squeeze_and_excitation_of_a_model(squeezed):
    """Data stay channels last, and no loop sums anything."""
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
    assert not names & {"reduce", "reduce-window"}
