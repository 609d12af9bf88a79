"""Programs run on blocks of rows: the same results for each size, only as many blocks as there are rows, and none for a
program whose rows depend on one another, or on their place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node
from jax import lax
from jax.export import symbolic_shape
from onnx import save

import jaxops.onnx
from jaxops.compiler.padded.blocks import may_run_in_blocks, run_in_blocks
from jaxops.compiler.padded.values import Capacity

RNG = np.random.default_rng(0)
MOST = 150  # the last block overlaps with the one before
TABLE = RNG.standard_normal(16).astype(np.float32)


def traced(fn, *shapes):
    """The program of a function of arrays of n rows."""
    (n,) = symbolic_shape("n")
    types = [jax.ShapeDtypeStruct(tuple(n if d == "n" else d for d in shape), np.float32) for shape in shapes]
    return jax.make_jaxpr(fn)(*types)


def capacity(size):
    return Capacity({"n": jnp.int32(size)}, {"n": MOST}, {})


def steps(x, w):
    """A loop through a table, as the way of a row through a tree."""
    places = lax.fori_loop(
        0, 3, lambda _, k: jnp.where(x > jnp.asarray(TABLE)[k], k * 2, k + 1) % 16, jnp.int32(x * 4) % 16
    )
    return jnp.exp(x * jnp.broadcast_to(w, x.shape)) + jnp.asarray(TABLE)[places], jnp.sum(x, 1)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 149, 150])
def test_values(size):
    closed = traced(steps, ("n", 3), (3,))
    assert may_run_in_blocks(closed, capacity(size))
    x, w = np.zeros((MOST, 3), np.float32), RNG.standard_normal(3).astype(np.float32)
    x[:size] = RNG.standard_normal((size, 3))
    x[size // 2] = np.inf, np.nan, -1
    found = jax.jit(lambda size: [y.array for y in run_in_blocks(closed, [x, w], capacity(size))])(size)
    for y, expected in zip(found, steps(jnp.asarray(x), jnp.asarray(w)), strict=True):
        np.testing.assert_array_equal(y[:size], expected[:size])
        # No row of another block is computed: exp(0) is 1.
        blocks = -(-size // 64) * 64
        assert not np.asarray(y[blocks:]).any() or blocks >= MOST


OTHERS = {
    "sums over rows": (lambda x: x + jnp.sum(x, 0, keepdims=True), ("n", 3)),
    "the number of a row": (lambda x: x + lax.broadcasted_iota(np.float32, x.shape, 0), ("n", 3)),
    "in a loop": (
        lambda x: lax.fori_loop(0, 2, lambda _, y: y + lax.broadcasted_iota(np.float32, y.shape, 0), x),
        ("n", 3),
    ),
    "a product": (lambda x: lax.dot_general(x, np.eye(3, dtype=np.float32), (((1,), (0,)), ((), ()))), ("n", 3)),
    "rows behind": (lambda x: x.T, ("n", 3)),
    "no rows": (lambda x: (x, jnp.float32(1)), ("n", 3)),
    "two rows for one": (lambda x: lax.reshape(x, (2 * x.shape[0], 2)), ("n", 4)),
    "columns": (lambda x: x.T, (3, "n")),
}


@pytest.mark.parametrize("name", OTHERS)
def test_programs_that_run_as_a_whole(name):
    fn, shape = OTHERS[name]
    assert not may_run_in_blocks(traced(fn, shape), capacity(MOST))


def test_few_rows_run_as_a_whole():
    assert not may_run_in_blocks(traced(steps, ("n", 3), (3,)), Capacity({"n": jnp.int32(3)}, {"n": 64}, {}))


def test_trees_in_one_program_for_all_batches(tmp_path):
    tree = node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0] * 3,
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[1, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[1.5, 2.5],
    )
    save(build(tree, inputs=[info("x", ["batch", 2])], opsets=(("", 18), ("ai.onnx.ml", 3))), tmp_path / "m.onnx")
    model = jaxops.onnx.load(tmp_path / "m.onnx", buckets={"batch": 200})
    for size in (1, 130, 200):
        x = RNG.standard_normal((size, 2)).astype(np.float32)
        np.testing.assert_array_equal(model(x), np.where(x[:, 1:] <= 0.5, 1.5, 2.5))
