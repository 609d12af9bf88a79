"""The rule for out-of-range indices, once for all operators: see `jaxops.ops.common.indices`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxops as jo
from jaxops import microsoft
from jaxops.errors import BoundsError

# Outside of five rows, on either side and at the borders of 32 bits; the last one is inside.
OUTSIDE = np.int32([5, -6, 2**31 - 1, -(2**31), -1])
READS = {
    "gather": lambda d, i: jo.gather(d, i),
    "gather of the last axis": lambda d, i: jo.gather(d[None], i, axis=1)[0],
    "gather_elements": lambda d, i: jo.gather_elements(d, i),
    "gather_nd": lambda d, i: jo.gather_nd(d, i[:, None]),
    "gather_nd of batches": lambda d, i: jo.gather_nd(d[None], i[None, :, None], batch_dims=1)[0],
}
WRITES = {
    "scatter_elements": lambda d, i, u, how: jo.scatter_elements(d, i, u, reduction=how),
    "scatter_nd": lambda d, i, u, how: jo.scatter_nd(d, i[:, None], u, reduction=how),
}
READ_AS = {
    "float32": np.nan, "bfloat16": np.nan, "float16": np.nan, "int32": -(2**31), "int8": -128, "uint8": 255,
    "uint32": 2**32 - 1, "bool": True,
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_what_is_read(name):
    every = {dtype: jnp.asarray(np.arange(5) % 2, dtype) for dtype in READ_AS}
    found = jax.jit(lambda every, i: {dtype: READS[name](data, i) for dtype, data in every.items()})(every, OUTSIDE)
    for dtype, value in READ_AS.items():
        assert found[dtype].dtype == dtype
        np.testing.assert_array_equal(np.asarray(found[dtype], np.float64), [value] * 4 + [0])
    np.testing.assert_array_equal(READS[name](every["float32"], jnp.asarray(OUTSIDE)), found["float32"])
    with pytest.raises(BoundsError, match="index 5 "):
        READS[name](every["float32"], OUTSIDE)


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written(name):
    last = {"none": 2, "add": 9, "mul": 14, "max": 7, "min": 2}
    types = "float32", "int32", "uint8"

    def run(i):
        every = {dtype: jnp.asarray([[3, 4, 5, 6, 7], [9, 9, 9, 9, 2]], dtype) for dtype in types}
        return {(how, dtype): WRITES[name](x[0], i, x[1], how) for how in last for dtype, x in every.items()}

    for (how, dtype), found in jax.jit(run)(OUTSIDE).items():
        np.testing.assert_array_equal(found, np.asarray([3, 4, 5, 6, last[how]], dtype))
    with pytest.raises(BoundsError, match="index 5 "):
        run(OUTSIDE)


def test_wide_and_narrow_indices(x64):
    data = jnp.arange(5.0)
    outside = {"int64": [2**32, -(2**32), -1], "uint64": [2**32, 2**64 - 1, 4], "int8": [5, -6, -1]}
    every = [np.asarray(values, kind) for kind, values in outside.items()]
    for found in jax.jit(lambda every: [run(data, i) for i in every for run in READS.values()])(every):
        np.testing.assert_array_equal(found, [np.nan, np.nan, 4])


def test_one_hot_selects_nothing():
    for kind in (np.float32, np.int32):
        found = jax.jit(lambda i, kind=kind: jo.one_hot(i, 5, jnp.asarray([0, 1], kind)))(OUTSIDE)
        np.testing.assert_array_equal(found, np.eye(5)[[4] * 5] * (OUTSIDE == -1)[:, None])


def test_tables_read_nan():
    table, ones, ids = jnp.eye(5), jnp.ones(5), jnp.asarray([[5, 1]])
    normal = jax.jit(lambda ids: microsoft.embed_layer_normalization(ids, None, table, table, None, ones, ones))(ids)
    assert np.isnan(np.asarray(normal)).any(-1).tolist() == [[True, False]]
    x = jnp.ones((1, 2, 2, 4))
    turned = jax.jit(lambda p: jo.rotary_embedding(x, jnp.ones((5, 2)), jnp.ones((5, 2)), p))(ids)
    assert np.isnan(np.asarray(turned)).any((1, 3)).tolist() == [[True, False]]
    loss = jax.jit(lambda t: jo.negative_log_likelihood_loss(jnp.ones((2, 5)), t, reduction="none"))(ids[0])
    assert np.isnan(np.asarray(loss)).tolist() == [True, False]
