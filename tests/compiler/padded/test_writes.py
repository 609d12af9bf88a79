"""A write into rows that have their own starts gives what `lax.dynamic_update_slice` gives for each row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

from jaxops.compiler.padded.writes import write

RNG = np.random.default_rng(0)


def update(x, y, *start):
    return lax.dynamic_update_slice(x, y, start)


def random(*sizes):
    return jnp.asarray(RNG.normal(size=sizes).astype(np.float32))


X, Y = random(3, 1, 5, 4), random(3, 1, 2, 4)
STARTS = jnp.array([0, 2, 9]), jnp.int32(0), jnp.array([-9, 0, 1])
CASES = {
    "a start a row": ((X, Y, 0, STARTS[0], 0), (0, 0, None, 0, None)),
    "all starts": ((X, Y, jnp.array([0, 1, 0]), STARTS[0], STARTS[2]), (0, 0, 0, 0, 0)),
    "rows in another axis": ((jnp.moveaxis(X, 0, 2), jnp.moveaxis(Y, 0, 1), 0, STARTS[0], 0), (2, 1, None, 0, None)),
    "the same update": ((X, Y[0], 0, STARTS[0], 0), (0, None, None, 0, None)),
    "the same array": ((X[0], Y, 0, STARTS[0], 0), (None, 0, None, 0, None)),
    "starts alone": ((X[0], Y[0], 0, STARTS[0], 0), (None, None, None, 0, None)),
    "nothing to write": ((X, Y[:, :0], 0, STARTS[0], 0), (0, 0, None, 0, None)),
    "many rows": ((random(40, 1, 5, 4), random(40, 1, 2, 4), 0, jnp.arange(40) % 5, 0), (0, 0, None, 0, None)),
}


def cast(operands):
    return [x if getattr(x, "ndim", 0) > 1 else jnp.asarray(x, np.int32) for x in operands]


@pytest.mark.parametrize("case", CASES)
def test_rows(case):
    operands, axes = CASES[case]
    found = jax.jit(jax.vmap(write, axes))(*cast(operands))
    np.testing.assert_array_equal(found, jax.vmap(update, axes)(*cast(operands)))


def test_nan_and_infinity_stay_in_their_row():
    x = X.at[1].set(np.nan).at[2].set(np.inf)
    found = jax.jit(jax.vmap(write, (0, 0, None, 0, None)))(x, Y, *cast((0, STARTS[0], 0)))
    np.testing.assert_array_equal(found, jax.vmap(update, (0, 0, None, 0, None))(x, Y, *cast((0, STARTS[0], 0))))
    assert not jnp.isnan(found[0]).any()


def test_gradients_and_a_map_of_maps():
    start = cast((0, STARTS[0], 0))

    def loss(fn, x, y):
        return jnp.sum(jax.vmap(fn, (0, 0, None, 0, None))(x, y, *start) ** 3)

    for found, expected in zip(*(jax.grad(loss, (1, 2))(fn, X, Y) for fn in (write, update)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    rows = jax.vmap(jax.vmap(write, (0, 0, None, 0, None)), (0, 0, None, None, None))
    expected = jax.vmap(jax.vmap(update, (0, 0, None, 0, None)), (0, 0, None, None, None))
    pairs = jnp.stack([X, -X]), jnp.stack([Y, -Y])
    np.testing.assert_array_equal(rows(*pairs, *start), expected(*pairs, *start))


def test_rows_on_two_devices_stay_there():
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = [
        jax.device_put(x, NamedSharding(mesh, P("rows"))) for x in (random(4, 6, 4), random(4, 2, 4), jnp.arange(4))
    ]
    axes = 0, 0, 0, None

    def run(fn):
        return jax.jit(jax.vmap(fn, axes)).lower(*rows, jnp.int32(0)).compile()

    np.testing.assert_array_equal(run(write)(*rows, jnp.int32(0)), run(update)(*rows, jnp.int32(0)))
    assert "collective-permute" not in run(write).as_text()
    assert "all-gather" not in run(write).as_text()
