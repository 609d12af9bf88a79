"""What XLA:CPU makes of operators that move data, and of elementwise ones: bitcasts, copies and slices, or one loop."""

import jax
import numpy as np
import pytest
from hlo_texts import operations
from jax import lax

import jaxops as jo

CUBE, MATRIX = (64, 128, 96), (512, 1024)
MOVED = {
    "reshape": (lambda x: jo.reshape(x, (0, -1)), CUBE),
    "flatten": (lambda x: jo.flatten(x, axis=2), CUBE),
    "split": (lambda x: jo.split(x, num_outputs=3, axis=1), CUBE),
    "variadic_split": (lambda x: jo.variadic_split(x, axis=0, split_lengths=(1, -1, 3)), CUBE),
}
MOVES = {"parameter", "bitcast", "copy", "slice", "tuple", "fusion", "call"}


def compiled(function, *sizes):
    types = [jax.ShapeDtypeStruct(x, np.float32) if isinstance(x, tuple) else x for x in sizes]
    return jax.jit(function).lower(*types).compile()


@pytest.mark.parametrize("name", MOVED)
def test_movement(name):
    assert set(operations(compiled(*MOVED[name]))) <= MOVES


def test_the_harness_sees_what_is_more_than_movement():
    assert not set(operations(compiled(lambda x: jo.gather(x, np.array([[2, 1], [0, 2]])), CUBE))) <= MOVES
    assert not set(operations(compiled(lambda x: x + 1, CUBE))) <= MOVES
    assert operations(compiled(lambda x: lax.map(lambda row: row @ row, x), MATRIX))["while"] == 1


INDICES = jax.ShapeDtypeStruct((32, 1024), np.int32)
# An operator and the plain form of `lax`.
LOOPS = {
    "arg_max": (lambda x: jo.arg_max(x, axis=-1), lambda x: lax.argmax(x, 1, np.int32), MATRIX),
    "top_k": (lambda x: jo.top_k(x, np.array([5]), axis=-1), lambda x: lax.top_k(x, 5), MATRIX),
    "sorted": (lambda x: jo.top_k(x, np.array([1024]), axis=-1), lax.sort, MATRIX),
    "cumsum": (lambda x: jo.cumsum(x, np.array(1)), lambda x: lax.cumsum(x, 1), MATRIX),
    "scatter": (
        lambda x, i, u: jo.scatter_elements(x, i, u, axis=0),
        lambda x, i, u: x.at[i, np.arange(1024)[None]].set(u),
        *(MATRIX, INDICES, (32, 1024)),
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_no_loop_over_elements_where_lax_has_none(name):
    operator, plain, *sizes = LOOPS[name]
    assert operations(compiled(operator, *sizes))["while"] <= operations(compiled(plain, *sizes))["while"]


@pytest.mark.parametrize("operator", [jo.gelu, jo.sigmoid, jo.mish])
def test_elementwise_operators_are_one_fusion(operator):
    assert set(operations(compiled(operator, MATRIX), outer=True)) <= {"parameter", "fusion"}
    assert operations(compiled(operator, MATRIX), outer=True)["fusion"] == 1
