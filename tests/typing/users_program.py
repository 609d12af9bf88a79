# pyright: strict, reportUnknownMemberType=false
"""A program as a user writes it. Type checkers must accept it and see the types that it asserts; it also runs."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np

import jaxops as jo

x = jnp.array([[1.0, -2.0, 8.0]])
rows = np.zeros((2, 3), np.float32)
Static = np.ndarray[tuple[Any, ...], np.dtype[Any]]

# Numbers, lists and NumPy arrays stand beside JAX arrays, in any place.
assert_type(jo.add(x, 1.0), jax.Array)
assert_type(jo.add(1.0, x), jax.Array)
assert_type(jo.mul(rows, x), jax.Array)
assert_type(jo.clip(x, 0.0, 6.0), jax.Array)
assert_type(jo.where(x > 3, x, 0), jax.Array)
assert_type(jo.pow(x, 2), jax.Array)
assert_type(jo.gather(x, 0), jax.Array)
assert_type(jo.concat([x, x], axis=0), jax.Array)
assert_type(jo.gemm(x, rows, transB=1), jax.Array)

# Static operands give a static result.
assert_type(jo.relu([1.0]), Static)
assert_type(jo.shape(x), Static)
assert_type(jo.mul(jo.gather(jo.shape(x), 0), 2), Static)
assert_type(jo.unsqueeze(jo.add(rows, 1), (0,)), Static)

# What comes out has the methods of a JAX array.
first, rest = jo.split(x, (1, 2), axis=1)
assert_type(first.at[0].set(1.0), jax.Array)
assert_type(jo.softmax(rest).sum(), jax.Array)
values, positions = jo.top_k(x, 2)
assert_type(values, jax.Array)
assert_type(positions, jax.Array)


def layer(x: jax.Array, weights: jax.Array) -> jax.Array:
    return jo.relu(jo.layer_normalization(jo.matmul(x, weights), jnp.ones(3))[0])


def total(weights: jax.Array) -> jax.Array:
    return layer(x, weights).sum()


assert_type(total(jnp.eye(3)), jax.Array)
microsoft: jax.Array = jo.microsoft.gelu(x)
options = jo.compiler_options


def digit(path: str, image: np.ndarray) -> int:
    model = jo.onnx.load(path)
    same = model.with_params({name: 1.0 * value for name, value in model.params.items()})
    return int(same(image).argmax())
