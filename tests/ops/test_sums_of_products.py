"""Sums of products of tens of thousands of short vectors, compared with NumPy's.

On CPUs, jaxlib 0.10.2 computes them wrongly (https://github.com/jax-ml/jax/issues/39103), in programs that a caller
compiles: where a (2, 3) or (3, 3) matrix is multiplied by the transpose of x, and the rows of the product are summed.
The wrong ones are behind the first 32,768 of x, if it has at most 43,000 rows of float32; of float64, half as many. So
a JAX with that error is seen here; `pyproject.toml` excludes it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

import jaxops as jo
import jaxops.onnx

N = 40_000
RNG = np.random.default_rng(0)
M = RNG.standard_normal((3, 3)).astype(np.float32)
X = RNG.standard_normal((N, 3)).astype(np.float32)
PRODUCTS = np.float64(M) @ np.float64(X).T
reduce_squares = functools.partial(jo.reduce_sum_square, axes=(0,), keepdims=0)
SQUARES = (PRODUCTS**2).sum(0)


def convolved(m, x):
    pixels = jo.unsqueeze(jo.transpose(x, perm=(1, 0)), (0,))
    return jo.reduce_sum_square(jo.conv(pixels, jo.unsqueeze(m, (2,))), (1,), keepdims=0)[0]


PROGRAMS = {
    "of JAX alone": (lambda m, x: jax.vmap(lambda row: jnp.sum((m @ row) ** 2))(x), SQUARES),
    "matmul": (lambda m, x: reduce_squares(jo.matmul(m, jo.transpose(x, perm=(1, 0)))), SQUARES),
    "gemm": (lambda m, x: reduce_squares(jo.gemm(m, x, transB=1)), SQUARES),
    "einsum": (lambda m, x: reduce_squares(jo.einsum([m, x], equation="ij,nj->in")), SQUARES),
    "conv": (convolved, SQUARES),
    "vmap of matmul": (lambda m, x: jax.vmap(lambda row: reduce_squares(jo.matmul(m, row)))(x), SQUARES),
    "vmap of softmax": (
        lambda m, x: jax.vmap(lambda row: jo.softmax(jo.matmul(m, row), axis=0))(x),
        (np.exp(PRODUCTS) / np.exp(PRODUCTS).sum(0)).T,
    ),
}
close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("program", "expected"), PROGRAMS.values(), ids=PROGRAMS)
def test_operators(program, expected):
    close(jax.jit(program)(M, X), expected)
    close(jax.jit(lambda x: program(jnp.asarray(M), x))(X), expected)


def test_types_of_64_bits(x64):
    x = np.float64(X[:20_000])
    close(jax.jit(PROGRAMS["gemm"][0])(np.float64(M), x), SQUARES[:20_000])


def test_models():
    many = jaxops.onnx.load(
        model(
            "main (float[n,3] x) => (float[n] y) { h = Gemm<transB=1>(w, x) y = ReduceSumSquare<keepdims=0>(h, a) }",
            initializers={"w": M, "a": np.array([0])},
        )
    )
    prepare, run = many.specialize(X)
    prepared = prepare(many.params)
    close(many(X), SQUARES)
    close(many.apply(many.params, X), SQUARES)
    close(jax.jit(many.apply)(many.params, X), SQUARES)
    close(jax.jit(lambda x: many(x))(X), SQUARES)
    close(jax.jit(run)(prepared, X), SQUARES)


def test_a_model_of_one_vector_over_many():
    one = jaxops.onnx.load(
        model(
            "main (float[3] x) => (float y) { h = MatMul(w, x) y = ReduceSumSquare<keepdims=0>(h, a) }",
            initializers={"w": M, "a": np.array([0])},
        )
    )
    close(jax.vmap(one)(X), SQUARES)
    close(jax.jit(jax.vmap(one.apply, (None, 0)))(one.params, X), SQUARES)
