"""Sizes of a concatenation, with numbers and with symbolic dimensions."""

import time

import jax
import numpy as np
import pytest
from jax.export import symbolic_shape

import jaxops
from jaxops import ops
from jaxops.errors import ShapeError
from jaxops.ops.tensor.joining import concatenated_sizes

b, c = symbolic_shape("b, c")


def test_concat():
    assert concatenated_sizes([(2, 3), (2, 4)], 1) == (2, 7)
    assert concatenated_sizes([(0, 3), (0, 3)], 0) == (0, 3)
    assert concatenated_sizes([(b, 3), (c, 3)], 0) == (b + c, 3)
    assert concatenated_sizes([(b, 3), (b, 4), (b, 0)], 1) == (b, 7)
    for other in ((2,), (3, 3), (2, 3, 1), (b, 3)):
        with pytest.raises(
            ShapeError, match=r"operand 1 of .* does not fit operand 0 of \(2, 3\); .* only along axis 1"
        ):
            concatenated_sizes([(2, 3), other], 1)


@pytest.mark.parametrize("count", [64, 65, 300])
def test_many_arrays_of_one_value(count):
    def fn(x, y):
        return ops.concat([x, y] * (count // 2) + [x] * (count % 2), axis=-1)

    x, y = np.float32([[1, np.nan], [2, 3]]), np.float32([[4], [np.inf]])
    expected = np.concatenate([x, y] * (count // 2) + [x] * (count % 2), axis=-1)
    np.testing.assert_array_equal(jax.jit(fn)(x, y), expected)
    np.testing.assert_array_equal(jax.vmap(fn)(x[:, None], y[:, None])[:, 0], expected)
    gradient = jax.jit(jax.grad(lambda x: (fn(x, y) * np.arange(expected.shape[1], dtype=np.float32)[None]).sum()))(x)
    assert gradient.shape == x.shape
    np.testing.assert_array_equal(gradient[0, 0], sum(range(0, expected.shape[1], 3)))


def test_thousands_of_operands_compile_soon():
    x = np.ones(10, np.float32)
    started = time.monotonic()
    options = jaxops.compiler_options()
    assert jax.jit(lambda x: ops.concat([x] * 2000, axis=0), compiler_options=options)(x).sum() == 20_000
    assert time.monotonic() - started < 15
