"""Symbolic sizes, computed from the tree that JAX has."""

import numpy as np
import pytest
from jax.export import symbolic_shape

from jaxops.jax_internals import evaluated
from jaxops.shapes.arithmetic import divided
from jaxops.symbolic import (
    OF_ARRAYS,
    arguments_of,
    at_zero,
    computed,
    numbers_of,
    operations,
    quotient_in,
    recomputed,
    sides,
    size_of_text,
    without_shared_operations,
)

S, T = symbolic_shape("s, t")
SIZES = [
    S,
    3 * S * S * T - T + 4,
    -S + 7,
    2 * (S // 4) * T - (S % 3),
    S.max(5) - (S * T).min(40 - T),
    ((S + 3) // 4 * T) // 3 + (S - T).max(0) // 2,
]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_computed_is_what_jax_evaluates(size):
    numbers = {"s": np.arange(1, 30)[:, None], "t": np.arange(1, 20)}
    found = np.broadcast_to(computed(size, numbers.__getitem__, OF_ARRAYS), (29, 19))
    for s in (1, 4, 5, 17, 29):
        for t in (1, 2, 19):
            assert found[s - 1, t - 1] == evaluated(size, {"s": s, "t": t})
    assert recomputed(size, {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b} | SYMBOLIC) == size


SYMBOLIC = {"max": lambda a, b: a.max(b), "min": lambda a, b: a.min(b)}


def test_a_number_is_a_size():
    assert computed(7, {}.__getitem__, {}) == 7
    assert list(operations(7)) == []
    assert arguments_of("min", 7) == ()


def test_operations_come_from_the_inside():
    assert [str(f.size) for f in operations((S // 4 * T) // 3 + S.max(2))] == [
        "floordiv(s, 4)",
        "floordiv(t*floordiv(s, 4), 3)",
        "max(s, 2)",
    ]


@pytest.mark.parametrize(
    ("size", "expected"),
    [(S.min(8), (S, 8)), (2 * S.min(8), ()), (S.min(8) + 1, ()), (S.min(8) ** 2, ()), (S.max(8), ()), (S, ())],
    ids=str,
)
def test_arguments_of_a_minimum(size, expected):
    assert arguments_of("min", size) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (S // 4, (S, 4)),
        (S // 4 - 3, (S - 12, 4)),
        (2 * (S // 4), None),
        (S // 4 + T, None),
        (S // T, None),
        (T * (S // 4), None),
        (S, None),
    ],
    ids=str,
)
def test_the_quotient_in_a_size(size, expected):
    assert quotient_in(size) == expected


def test_at_zero():
    assert at_zero(S * T - (S - 5) // 4 + 3) == 5
    assert at_zero(8 // S + 3) == 0  # it divides by the symbol


def test_numbers_of_a_size():
    assert numbers_of(S // 2, {"s": range(3, 7)}).tolist() == [1, 2, 2, 3]
    assert numbers_of(8 // (S - 3), {"s": range(3, 7)}) is None
    assert numbers_of(S * T, {"s": range(4000), "t": range(4000)}) is None


def test_texts():
    assert size_of_text("past + 2*sequence - 1", {"past": 3, "sequence": 4}.__getitem__) == 10
    assert sides("s*t>= 4 - u") == ("s*t", ">=", "4 - u")


def test_sizes_without_the_operations_that_they_share():
    """JAX's own division of the first by the second does not terminate."""
    b, k = symbolic_shape("b, k", constraints=["mod(b*k, 4) == 0"])
    quarter = b * k // 4
    assert without_shared_operations(4 * b * quarter**2, 3 * quarter) == (b * b * k, 3)
    assert without_shared_operations(b * k, 3 * quarter) == (b * k, 3 * quarter)
    assert without_shared_operations(6 * quarter**2 + quarter, quarter) == (6 * quarter + 1, 1)
    assert divided("a problem", 4 * quarter**2, quarter) == b * k
