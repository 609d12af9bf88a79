"""What an export learns from a question about sizes that is open."""

import pytest
from jax.export import symbolic_shape

from jaxops.errors import SizeError
from jaxops.shapes.arithmetic import floored
from jaxops.tools.export.limits.factors import factored
from jaxops.tools.export.limits.learned import Limits
from jaxops.tools.export.limits.ranges import Range, bounds_known


def learned(needs, given=(), axes=None):
    """The limits after a question, and whether it taught something."""
    limits = Limits(given, axes or {})
    limits.sizes({})
    return limits, limits.learn(SizeError("open", needs=needs))


@pytest.mark.parametrize(
    ("needs", "symbol", "meaning"),
    [
        ("2*floordiv(h + 31, 32) == floordiv(h + 15, 16)", "h", "32*h"),
        ("4*floordiv(floordiv(h + 31, 32) + 1, 2) == floordiv(h + 15, 16)", "h", "64*h"),
        ("4*floordiv(s, 4) + 1 == s", "s", "4*s - 3"),
        ("b*6 == 12", "b", "2"),
        ("s*s == 144", "s", "12"),
        ("total == past + s", "total", "s + past"),
        ("past + s - total == 0", "total", "s + past"),
        ("b*s == b*t", "t", "s"),
        ("4*floordiv(h, 2)*floordiv(w, 2) == h*w", "h", "2*h"),
        ("floordiv(b, 2)*floordiv(9*b, floordiv(b, 2)) == 9*b", "b", "2*b"),
        ("6*t*floordiv(s, 24)*floordiv(s*t, 6*t*floordiv(s, 24)) == s*t", "s", "24*s"),
    ],
)
def test_what_a_symbol_stands_for(needs, symbol, meaning):
    limits, taught = learned(needs)
    assert taught
    assert (limits.learned[0].symbol, limits.learned[0].meaning) == (symbol, meaning)
    assert str(limits.sizes({symbol: symbol})[symbol]) == limits.learned[0].meaning


@pytest.mark.parametrize(
    ("needs", "constraints", "said", "meaning"),
    [
        ("4*floordiv(h*w, 4) == h*w", ["mod(h*w, 4) == 0"], "h*w must be a multiple of 4", "4*h"),
        (
            "4*b*floordiv(6*b*h*w, 4*b) == 6*b*h*w",
            ["mod(h*w, 2) == 0", "4*b*floordiv(6*b*h*w, 4*b) == 6*b*h*w"],
            "h*w must be a multiple of 2",
            "2*h",
        ),
        ("4*floordiv(h*h, 4) == h*h", [], None, "2*h"),
    ],
)
def test_products_and_then_multiples(needs, constraints, said, meaning):
    limits, taught = learned(needs)
    assert taught
    if said is not None:  # squares of one size have the multiples of a number as their roots
        assert (list(limits.constraints), limits.learned[0].said) == (constraints, said)
        assert limits.splits_products()
        assert limits.learn(SizeError("a problem", needs=needs))
    assert str(limits.sizes({"h": "h"})["h"]) == meaning
    assert not limits.splits_products()


@pytest.mark.parametrize(
    ("needs", "constraints"),
    [
        ("min(t, 63) == t", ("t <= 63",)),
        ("b*min(t, 63) == b*t", ("t <= 63",)),
        ("2*floordiv(h, 4) == 6", ("floordiv(h, 4) == 3", "h >= 12", "h <= 15")),
        ("floordiv(t, 20) - 1 >= 1", ("t >= 40",)),
        ("b*floordiv(t, 20) - b >= 1", ("t >= 40",)),
        ("max(h, 7) == h", ("h >= 7",)),
        ("126 - 2*h >= 0", ("h <= 63",)),
        ("s >= t", ("s >= t",)),
        ("s == t*min(s, t)", ("t*min(s, t) == s",)),  # JAX compares the operands of a minimum that it makes
        ("3*floordiv(h, 8)*floordiv(w, 8) == 24", ("floordiv(h, 8)*floordiv(w, 8) == 8",)),
        ("24*b == 3*b*h*floordiv(w, 8)", ("h*floordiv(w, 8) == 8",)),
    ],
)
def test_constraints(needs, constraints):
    limits, taught = learned(needs)
    assert taught
    assert limits.learned[0].constraints == constraints


@pytest.mark.parametrize(
    ("needs", "given"),
    [
        ("", ()),
        ("s == 8", ("s <= 5",)),
        ("s >= 8", ("s <= 5",)),
        ("2*s == 7", ()),
        ("2048*floordiv(h, 2048) == h", ()),  # such multiples are too large
        ("2 == 3", ()),
    ],
)
def test_what_cannot_be_met_teaches_nothing(needs, given):
    limits, taught = learned(needs, given)
    assert not taught
    assert limits.learned == []


def test_limits_follow_each_other():
    limits, _ = learned("2*floordiv(h, 2) == h", ("h >= 9",))
    assert limits.learn(SizeError("open", needs="3*floordiv(h, 3) == h"))
    assert limits.learn(SizeError("open", needs="h >= 4"))
    assert str(limits.sizes({"height": "h"})["height"]) == "6*h"
    assert limits.sizes({"height": "h"})["height"] >= 24
    assert limits.learn(SizeError("open", needs="h == w"))
    sizes = limits.sizes({"width": "w", "height": "h"})
    assert sizes["height"] == 6 * sizes["width"]


def test_what_was_learned_of_a_number_is_forgotten():
    """The batch had to be a multiple of 7 only as long as it was open that the sequence is 7."""
    limits, _ = learned("7*floordiv(b*t, 7) == b*t")
    assert limits.learn(SizeError("open", needs="t == 7")) or limits.learn(SizeError("open", needs="7*t == 7"))
    sizes = limits.sizes({"b": "b", "t": "t"})
    assert sizes["t"] == 7
    assert str(sizes["b"]) == "b"


def test_sizes_of_a_trace_are_renewed():
    limits = Limits()
    size = limits.sizes({"h": "h"})["h"]
    assert limits.assume(SizeError("open", needs="4*floordiv(h, 4) == h"))
    assert str(limits._now(floored(size, 2))) == "2*h"
    assert limits.assume(SizeError("open", needs="h >= 5"))
    assert limits._now(size) >= 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b*floordiv(t, 20) - b", (0, float("inf"))),
        ("8*b*s*floordiv(t, 20) + 4*s - 3", (9, float("inf"))),
        ("a + floordiv(b, 2) - 1", (0, float("inf"))),
        ("mod(a, 8) - 9*mod(b, 2) - 10", (-19, -3)),
        ("a*b - 4", None),
        ("mod(a - 2, a) - 1", None),
        ("a - b", None),
    ],
)
def test_bounds_of_several_symbols(text, expected):
    ranges = {"t": Range(20), "s": Range(1, 1000)}
    assert bounds_known(ranges, symbolic_shape(text)[0]) == expected


def test_quotients_of_quotients_have_one_form():
    (t,) = symbolic_shape("t")
    assert str(floored(floored(floored(t - 10, 5) + 1 - 3, 2) + 1 - 3, 2) + 1) == "floordiv(t, 20) - 1"
    assert str(floored(floored(t + 1, 2) + 1, 2)) == "floordiv(t + 3, 4)"
    for n in range(300):
        assert (((n - 10) // 5 - 2) // 2 - 2) // 2 + 1 == n // 20 - 1


@pytest.mark.parametrize(
    ("text", "factor", "remaining"),
    [
        ("6*s*t^2 - 3*s*t", "3*s*t", "2*t - 1"),
        ("4*s*floordiv(s*t + 1, 2)^2 - 6*s^2", "2*s", "2*floordiv(s*t + 1, 2)^2 - 3*s"),
        ("4*b - 2*c", "2", "2*b - c"),
        ("h - 1", "1", "h - 1"),
        ("6*b", "6*b", "1"),
    ],
)
def test_factors_of_all_terms(text, factor, remaining):
    size, factor, remaining = symbolic_shape(f"{text}, {factor}, {remaining}")
    assert factored(size) == (factor, remaining)


def test_an_equation_of_a_product_holds_for_each_number_of_samples():
    """Else JAX would divide without end."""
    limits, _ = learned("3*floordiv(h, 8)*floordiv(w, 8) == 24", axes={"b": 0, "h": 2, "w": 3})
    b, h, w = (limits.sizes({name: name})[name] for name in "bhw")
    assert b * (h // 8) * (w // 8) * 3 // b == 24
