"""Products of bytes in a loop: each form has the sums of integers of 64 bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import equations, specialized

from jaxops.kernels import target
from jaxops.kernels.matmul.int8_in_loops import turned, turned_product

RNG = np.random.default_rng(5)
STEPS = 3


def integers(kind, *shape):
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max + 1, shape).astype(kind)


def in_a_loop(a, zero, b, b_zero):
    """Products of the rows of each step, as a loop has them."""
    matrix = turned(b, b_zero)
    return lax.scan(lambda _, row: (None, turned_product(row, zero, matrix)), None, a)[1]


def case(rows, k, n, kind, columns):
    a, b = integers(np.uint8, STEPS, rows, k), integers(kind, k, n)
    zeros = np.uint8(RNG.integers(1, 256)), integers(kind, 1, n if columns else 1)
    wide = [x.astype(np.int64) for x in (a, zeros[0], b, zeros[1])]
    return (a, zeros[0], b, zeros[1]), (wide[0] - wide[1]) @ (wide[2] - wide[3])


@pytest.mark.parametrize("special", [lambda fn: fn, specialized], ids=["plain", "specialized"])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 1, 3), (4, 240, 65), (1, 241, 65), (1, 300, 7), (1, 2048, 5)])
def test_sums(special, kind, rows, k, n):
    operands, expected = case(rows, k, n, kind, columns=n > 5)
    found = jax.jit(special(in_a_loop))(*operands)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, expected)


# What a processor can do; rows, terms → an operation of the form.
FORMS = [
    ({"avx512_vnni"}, 1, 512, "slice"),
    ({"avx512_vnni"}, 3, 512, "mixed_product"),
    ({"avx512_vnni"}, 1, 2049, "mixed_product"),
    ({"avx512_vnni"}, 3, 96, "dot_general"),
    ({"avx2"}, 3, 512, "bitcast_convert_type"),
]


@pytest.mark.parametrize(("features", "rows", "k", "operation"), FORMS)
def test_forms_by_processor_and_sizes(features, rows, k, operation, monkeypatch):
    monkeypatch.setattr(target, "processor_features", lambda: frozenset(features))
    operands, expected = case(rows, k, 40, np.int8, columns=True)
    function = specialized(in_a_loop)
    assert operation in {eqn.primitive.name for eqn in equations(jax.make_jaxpr(function)(*operands).jaxpr)}
    np.testing.assert_array_equal(jax.jit(function)(*operands), expected)
