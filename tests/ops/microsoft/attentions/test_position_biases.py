"""Position biases of com.microsoft against NumPy; onnxruntime has no kernels for a CPU."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import ours

from jaxops.errors import ArgumentError, ShapeError, StaticError
from jaxops.microsoft import gated_relative_position_bias, relative_position_bias

RNG = np.random.default_rng(11)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def bucket(query, key, count, max_distance, both):
    """The bucket of T5, for one query and one key."""
    first, away = 0, abs(key - query)
    if both:
        count //= 2
        first = count if key > query else 0
    exact = count // 2
    if away < exact:
        return first + away
    ratio = np.log(np.float32(away) / np.float32(exact)) / np.float32(math.log(max_distance / exact))
    return first + min(exact + int(ratio * (count - exact)), count - 1)


@pytest.mark.parametrize(("both", "count", "far", "length"), [(0, 8, 20, 30), (1, 32, 128, 60), (1, 4, 8, 5)])
def test_relative_position_bias(both, count, far, length):
    table = floats(count, 3)
    attributes = {"max_distance": far, "is_bidirectional": both}
    lengths = [np.array([length]), np.array(length)]
    (found,) = ours("RelativePositionBias", [jnp.asarray(table), *lengths], 1, **attributes)
    by_head = table.reshape(3, count)
    places = np.array([[bucket(i, j, count, far, both) for j in range(length)] for i in range(length)])
    np.testing.assert_array_equal(found, by_head[:, places][None])


def gated(query, first, rel, weight, bias, eco, heads):
    """The formula of the text."""
    batch, length, width = query.shape
    q = (query + first).reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)
    halves = (q @ weight + bias).reshape(batch, heads, length, 2, -1).sum(-1)
    u, r = np.split(1 / (1 + np.exp(-halves)), 2, -1)
    return (u * (r * eco - 1.0) + 2.0) * rel


GIVEN = floats(2, 5, 12), floats(12), floats(1, 3, 5, 5), floats(4, 8), floats(8), floats(1, 3, 1, 1)


def test_gated_relative_position_bias():
    found = ours("GatedRelativePositionBias", GIVEN, 1, num_heads=3)[0]
    np.testing.assert_allclose(found, gated(*GIVEN, 3), rtol=1e-5, atol=1e-5)
    offset = np.array([[0, 1, 5, 6, 7], [2, 3, 4, 8, 9]], np.int32)  # 2 and 3 tokens
    real = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], bool)
    found = ours("GatedRelativePositionBias", [GIVEN[0][real], *GIVEN[1:], offset], 1, num_heads=3)[0]
    padded = np.where(real[..., None], GIVEN[0], 0)
    np.testing.assert_allclose(found, gated(padded, *GIVEN[1:], 3), rtol=1e-5, atol=1e-5)


def test_16_bits():
    narrow = [x.astype(np.float16) for x in GIVEN]
    found = gated_relative_position_bias(*narrow, num_heads=3)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, gated(*GIVEN, 3), rtol=2e-2, atol=2e-2)


def test_transformations():
    table = jnp.asarray(floats(8, 2))

    @jax.jit
    def bias(table):
        return relative_position_bias(table, 6, 6, max_distance=16)

    check_grads(bias, (table,), order=1, modes=("rev",))
    queries = jnp.zeros((1, 6, 3))
    made = export(jax.jit(lambda t, q: relative_position_bias(t, q.shape[1], q.shape[1], max_distance=16)))(
        *symbolic_args_specs([table, queries], ["8, 2", "1, s, 3"])
    )
    np.testing.assert_array_equal(made.call(table, queries), bias(table))

    @jax.jit
    def gate(query):
        return gated_relative_position_bias(query, *GIVEN[1:], num_heads=3)

    check_grads(gate, GIVEN[:1], order=1, modes=("rev",), rtol=2e-2)
    found = jax.vmap(gate)(np.stack([GIVEN[0], -GIVEN[0]]))
    np.testing.assert_allclose(found[1], gate(-GIVEN[0]), rtol=1e-5, atol=1e-5)


def test_a_table_in_rows_is_caught():
    table = floats(8, 2)
    found = relative_position_bias(table, 4, 4, max_distance=16)
    assert not np.allclose(found, relative_position_bias(table.T.reshape(8, 2), 4, 4, max_distance=16))


TABLE = floats(8, 2)
ERRORS = [
    (lambda: relative_position_bias(TABLE[0], 4, 4, max_distance=9), ShapeError, r"must be \(buckets, N\)"),
    (lambda: relative_position_bias(TABLE, 4, 5, max_distance=9), ShapeError, "is 4 and `key_length` is 5; they must"),
    (
        lambda: relative_position_bias(TABLE, [4, 4], 4, max_distance=9),
        ShapeError,
        "`query_length` must hold one",
    ),
    (lambda: relative_position_bias(TABLE, 4, 4, max_distance=4), ArgumentError, "is 4; with 8 buckets .* more than 4"),
    (
        lambda: jax.jit(lambda n: relative_position_bias(TABLE, n, n, max_distance=9))(4),
        StaticError,
        "`query_length` must be known while tracing",
    ),
    (
        lambda: gated_relative_position_bias(GIVEN[0][0], *GIVEN[1:], num_heads=3),
        ShapeError,
        r"`query_layer` of \(5, 12\) must be \(B, S, N · H\)",
    ),
    (
        lambda: gated_relative_position_bias(*GIVEN[:5], GIVEN[5][0], num_heads=3),
        ShapeError,
        r"`eco_a` of \(3, 1, 1\) must be \(1, 3, 1, 1\)",
    ),
    (
        lambda: gated_relative_position_bias(*GIVEN[:3], GIVEN[3][:, 1:], GIVEN[4][1:], GIVEN[5], num_heads=3),
        ShapeError,
        r"`weight` of \(4, 7\) must have an even number of columns",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
