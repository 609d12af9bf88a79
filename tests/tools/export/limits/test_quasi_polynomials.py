"""Sizes of one symbol as quasi-polynomials, beside the same sizes computed number by number."""

import math
import random

import numpy as np
import pytest

from jaxops.symbolic import size_of_text
from jaxops.tools.export.limits.quasi_polynomials import Numbers, Undetermined, bounds, quasi_polynomial

MANY = 3000
FUNCTIONS = {"floordiv": np.floor_divide, "mod": np.mod, "max": np.maximum, "min": np.minimum}


def zero(values):
    return values == 0


def not_negative(values):
    return values >= 0


def counted(text):
    """The size for 0, 1, 2, …."""
    return np.broadcast_to(size_of_text(text, lambda name: np.arange(MANY), FUNCTIONS), MANY)


def some_size(draw, depth):
    """The text of a random size of h."""
    if not depth or draw.random() < 0.15:
        return draw.choice(["h", "h", "h", str(draw.randint(0, 9))])
    a, b = some_size(draw, depth - 1), some_size(draw, depth - 1)
    number = draw.randint(1, 6)
    return draw.choice(
        [
            *(f"({a} + {b})", f"({a} - {b})", f"({draw.randint(-3, 5)}*{a})", f"({a}*{b})"),
            *(f"floordiv({a}, {number})", f"mod({a}, {number})", f"max({a}, {b})", f"min({a}, {b})"),
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_random_sizes(seed):
    draw, decided = random.Random(seed), 0
    for text in (some_size(draw, 5) for _ in range(20)):
        try:
            found = quasi_polynomial(text)
        except Undetermined:
            continue
        decided += 1
        wanted = counted(text)
        np.testing.assert_array_equal(found.first(MANY), wanted, text)
        for fact in (zero, not_negative):
            numbers = Numbers.where(text, fact)
            np.testing.assert_array_equal(numbers.first(MANY), fact(wanted), text)
            first = np.flatnonzero(fact(wanted)[1:]) + 1
            assert not len(first) or numbers.hull[0] == first[0], text
            if numbers.progression:
                step, rest = numbers.progression
                late = np.arange(len(numbers.fits), MANY)
                assert fact(wanted)[late[late % step == rest]].all(), text
        for low, high in ((1, math.inf), (7, math.inf), (3, 50), (2, MANY - 1)):
            least, most = bounds(text, low, high)
            seen = wanted[low : int(min(high, MANY - 1)) + 1]
            assert least <= seen.min(), text
            assert most >= seen.max(), text
            assert high == math.inf or (least, most) == (seen.min(), seen.max()), text
    assert decided > 15


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The smallest k of which a few hundred multiples fit is 31.
        ("2*floordiv(h + 31, 32) - floordiv(h + 15, 16)", (32, 0)),
        ("4*floordiv(h, 4) + 1 - h", (4, 1)),
        ("7*floordiv(h, 7) - h", (7, 0)),
        ("h - h", (1, 0)),
        ("h - 3000", None),
    ],
)
def test_progressions(text, expected):
    assert Numbers.where(text, zero).progression == expected


def test_one_number_far_away():
    assert Numbers.where("h - 3000", zero).hull == (3000, 3000)
    assert Numbers.where("h*h - 144", zero).hull == (12, 12)
    assert Numbers.where("floordiv(h, 4) - 3", zero).hull == (12, 15)
    assert Numbers.where("h + 1", zero).hull == (1, 0)


def test_bounds_of_a_symbol_that_may_be_a_billion():
    assert bounds("max(h - 2, 0) - max(h - 1, 1) + 1", 1, 10**9) == (0, 0)
    assert bounds("floordiv(h, 4) - h", 3, 10**9) == (-750_000_000, -3)


@pytest.mark.parametrize(
    "text",
    [
        "a + b",
        "floordiv(h, 131) + floordiv(h, 137) + floordiv(h, 139)",  # a period of millions
        "floordiv(12, h)",
        "floordiv(h, 0)",
        "h - 9007199254740993",
        "h*h*h*h",
    ],
)
def test_what_is_not_decided(text):
    with pytest.raises(Undetermined):
        quasi_polynomial(text)
