"""A program of ours as one operation of a user's program, which a transformation opens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from jax.extend.core import jaxpr_as_fun
from jax.sharding import PartitionSpec as P

from jaxops.compiler.part_of_program import as_one_operation
from jaxops.onnx import load

RNG = np.random.default_rng(0)
NETWORK = """
    main (float[n, 8, h, w] x) => (float[n, 10] y, int64[n] top, int64[4] sizes) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        r = Relu (c)
        d = Conv <pads = [1, 1, 1, 1], group = 16> (r, depthwise)
        m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d)
        e = Conv <pads = [1, 1, 1, 1]> (m, deep)
        a = GlobalAveragePool (e)
        v = Flatten (a)
        y = MatMul (v, head)
        top = ArgMax <axis = 1, keepdims = 0> (y)
        sizes = Shape (x)
    }
"""


def numbers(*sizes):
    return RNG.standard_normal(sizes, np.float32) * np.float32(0.3)


WEIGHTS = {"w": numbers(16, 8, 3, 3), "depthwise": numbers(16, 1, 3, 3), "deep": numbers(64, 16, 3, 3)}
LOADED = load(model(NETWORK, opset=20, initializers=WEIGHTS | {"head": numbers(64, 10)}))
PARAMS, X = jax.device_put(LOADED.params), jnp.asarray(numbers(2, 8, 10, 6))
EXPECTED = LOADED.apply(LOADED.params, X)


def operations(fn, *arguments):
    return str(jax.make_jaxpr(fn)(*arguments)).count("program[")


def close(results, expected, tolerance=2e-5):
    for a, b in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(np.abs(b).max(), 1e-3))


def loss(params, x):
    return jnp.sum(LOADED.apply(params, x).y ** 2)


def test_it_is_one_operation_and_gives_the_same():
    assert operations(LOADED.apply, PARAMS, X) == 1
    results = jax.jit(LOADED.apply)(PARAMS, X)
    close(results, EXPECTED)
    assert results._fields == EXPECTED._fields
    assert all(isinstance(y, jax.Array) for y in results)


def test_its_convolutions_are_channels_last_and_turn_no_large_weights():
    text = jax.jit(LOADED.apply).lower(PARAMS, X[:1]).as_text()
    assert "x[0, 1, i, o]->[b, 0, 1, f]" in text
    assert "tensor<64x16x3x3xf32>) -> tensor<64x144xf32>" in text  # fewer windows than weights
    results, expected = jax.jit(LOADED.apply)(PARAMS, X[:1]), LOADED.apply(PARAMS, X[:1])
    close(results, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite(value):
    x = X.at[0, 1, 4, 3].set(value)
    results, expected = jax.jit(LOADED.apply)(PARAMS, x), LOADED.apply(PARAMS, x)
    np.testing.assert_array_equal(np.isfinite(results.y), np.isfinite(expected.y))


def test_derivatives():
    expected = jax.grad(loss)(PARAMS, X)
    for fn in (jax.jit(jax.grad(loss)), jax.grad(jax.jit(loss)), jax.jit(jax.grad(jax.checkpoint(loss)))):
        close(fn(PARAMS, X), expected)
    assert operations(jax.grad(loss), PARAMS, X) == 0
    along = (PARAMS, jnp.ones_like(X))
    values, tangents = jax.jvp(jax.jit(LOADED.apply), (PARAMS, X), along)
    expected = jax.jvp(lambda params, x: LOADED.apply(params, x).y, (PARAMS, X), along)
    close((values.y, tangents.y), expected)
    assert tangents.top.dtype == jax.dtypes.float0


def test_derivatives_by_some_parameters():
    def partly(head, params, x):
        return loss({**params, "head": head}, x)

    close(jax.grad(jax.jit(partly))(PARAMS["head"], PARAMS, X), jax.grad(partly)(PARAMS["head"], PARAMS, X))


def test_mapped():
    xs, stacked = jnp.stack([X, X + 1]), jax.tree.map(lambda w: jnp.stack([w, w * 2]), PARAMS)
    each = [LOADED.apply(PARAMS, x) for x in xs]
    close(jax.vmap(jax.jit(LOADED.apply), (None, 0))(PARAMS, xs).y, jnp.stack([y.y for y in each]))
    results = jax.vmap(jax.jit(lambda p, x: LOADED.apply(p, x).y), (0, None))(stacked, X)
    close(results, jnp.stack([EXPECTED.y, LOADED.apply(jax.tree.map(lambda w: w * 2, PARAMS), X).y]))


def test_in_a_loop():
    xs = jnp.stack([X, X + 1])

    def total(params, xs):
        start = jnp.zeros_like(EXPECTED.y)
        return jax.lax.scan(lambda y, x: (y + LOADED.apply(params, x).y, None), start, xs)[0]

    def plainly(params, xs):
        return sum(LOADED.apply(params, x).y for x in xs)

    assert operations(total, PARAMS, xs) == 1
    close(jax.jit(total)(PARAMS, xs), plainly(PARAMS, xs))
    close(jax.grad(lambda p: jnp.sum(total(p, xs)))(PARAMS), jax.grad(lambda p: jnp.sum(plainly(p, xs)))(PARAMS))


def test_evaluated_outside_of_jit():
    close(jaxpr_as_fun(jax.make_jaxpr(LOADED.apply)(PARAMS, X))(*jax.tree.leaves((PARAMS, X))), EXPECTED)
    with jax.disable_jit():
        close(jax.jit(LOADED.apply)(PARAMS, X), EXPECTED)


def test_known_arrays_stay_known():
    assert operations(lambda x: LOADED.apply(LOADED.params, x), X) == 0


def test_symbolic_sizes_and_several_platforms():
    (n,) = jax.export.symbolic_shape("n")
    types = {name: jax.ShapeDtypeStruct(w.shape, w.dtype) for name, w in PARAMS.items()}
    x = jax.ShapeDtypeStruct((n, *X.shape[1:]), X.dtype)
    close(jax.export.export(jax.jit(LOADED.apply))(types, x).call(PARAMS, X), EXPECTED)
    types = types, jax.ShapeDtypeStruct(X.shape, X.dtype)
    both = jax.export.export(jax.jit(LOADED.apply), platforms=("cpu", "cuda"))(*types)
    close(both.call(PARAMS, X), EXPECTED)


def test_operations_that_jax_replaces_late():
    x = jnp.array([0.0, 5.0, 0.0, 7.0])
    fn = jax.jit(lambda x: as_one_operation(lambda x: jnp.nonzero(x, size=3, fill_value=-1), x))
    for call in (fn, jax.export.export(fn)(x).call):
        assert call(x)[0].tolist() == [1, 3, -1]


def test_on_a_mesh_it_is_open():
    mesh = jax.make_mesh((1,), ("data",))
    with jax.set_mesh(mesh):
        x = jax.device_put(X, P("data"))
        assert operations(LOADED.apply, PARAMS, x) == 0
        close(jax.jit(LOADED.apply)(PARAMS, x), EXPECTED)


def test_effects_are_not_hidden():
    seen = []

    def fn(x):
        jax.debug.callback(lambda value: seen.append(float(value)), x)
        return x + 1

    assert float(jax.jit(lambda x: as_one_operation(fn, x))(jnp.float32(2))) == 3
    jax.effects_barrier()
    assert seen == [2.0]
