"""That products read a transposed matrix as it lies, with the same results, and that no other transpose is left out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET

import jaxops as jo
from jaxops.compiler import ir, pipeline
from jaxops.compiler.passes.fold_transposes import fold_transposes
from jaxops.compiler.pipeline import optimized
from jaxops.kernels.matmul.dot import dot

RNG = np.random.default_rng(3)
X, W = RNG.standard_normal((2, 5, 7), np.float32), RNG.standard_normal((9, 7), np.float32)
W[2, 3], W[4, 1] = np.inf, np.nan
VECTOR, BATCH = RNG.standard_normal(9).astype(np.float32), RNG.standard_normal((2, 9, 7), np.float32)


def product(a, b, over_a=2, over_b=0, batch=((), ())):
    return lax.dot_general(a, b, (((over_a,), (over_b,)), batch))


CASES = {
    "a matrix": (lambda x, w: product(x, w.T), (X, W), 0),
    "its columns": (lambda x, w: product(x, w.T, 1, 1), (X, RNG.standard_normal((5, 4), np.float32)), 0),
    "twice read": (lambda x, w: (product(x, w.T), w.T * 2), (X, W), 1),
    "a result of operations": (lambda x, w: product(x, (w * 2).T), (X, W), 0),
    "the first operand": (lambda x, w: product(w.T, x[0, :, :], 0, 1), (X, W[:7]), 1),
    "a batch": (lambda x, w: product(x, w.swapaxes(1, 2), 2, 1, ((0,), (0,))), (X, BATCH), 1),
    "two axes at once": (
        lambda x, w: lax.dot_general(x, w.T, (((1, 2), (0, 1)), ((), ()))),
        (X, RNG.standard_normal((7, 5), np.float32)),
        1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_transposes(name):
    fn, operands, transposes = CASES[name]
    operands = list(map(jnp.asarray, operands))
    program = ir.Program.of(jax.make_jaxpr(fn)(*operands))
    folded = fold_transposes(program, TARGET)
    assert [o.name for o in folded.operations].count("transpose") == transposes
    found = ir.run(folded, operands)
    for y, expected in zip(found, jax.tree.leaves(fn(*operands)), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert [y.shape for y in found] == [program.types[v].shape for v in program.outputs]


def test_products_in_kernels_read_the_matrix_too():
    a, b = RNG.integers(0, 256, (5, 7), np.uint8), RNG.integers(-128, 128, (9, 7), np.int8)
    closed = jax.make_jaxpr(lambda a, b: jo.matmul_integer(a, b.T, np.uint8(3)))(a, b)
    function = optimized(closed, dataclasses.replace(TARGET, prepared=False))
    assert "transpose" not in {eqn.primitive.name for eqn in jax.make_jaxpr(function)(a, b).eqns}
    np.testing.assert_array_equal(jax.jit(function)(a, b)[0], (a.astype(int) - 3) @ b.T.astype(int))


def test_a_kernel_may_turn_weights_that_are_prepared():
    """49 rows times (N, K): the kernel reads (K, N)."""
    closed = jax.make_jaxpr(lambda x, w: dot(x, w, (((1,), (1,)), ((), ())), np.float32))(
        np.ones((49, 7), np.float32), W
    )
    for prepared in (False, True):
        program = pipeline.apply(pipeline.PASSES, ir.Program.of(closed), dataclasses.replace(TARGET, prepared=prepared))
        assert ("transpose" in {o.name for o in program.operations}) == prepared


@pytest.mark.parametrize("prepared", [False, True])
def test_no_second_table_of_words_is_made(prepared, monkeypatch):
    """The table is read as it lies, as the first operand of the product."""
    monkeypatch.setattr("jaxops.kernels.matmul.dot._LARGE", 0)
    table = RNG.standard_normal((50, 7), np.float32)
    closed = jax.make_jaxpr(lambda x, w: product(x, w.T))(X, table)
    function = optimized(closed, dataclasses.replace(TARGET, prepared=prepared, packs_whole=True))
    text = str(jax.make_jaxpr(lambda *operands: function(*operands))(X, table))
    assert "f32[50,10] = dot_general" in text
    assert "f32[7,50]" not in text
    np.testing.assert_allclose(function(X, table)[0], X @ table.T, rtol=1e-5, atol=1e-5)
