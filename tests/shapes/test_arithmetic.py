"""Arithmetic on sizes that may be symbolic."""

import pytest
from jax import export

from jaxops.errors import ShapeError, SizeError
from jaxops.shapes.arithmetic import agree, floored, must_fit

S, T = export.symbolic_shape("s, t")


@pytest.mark.parametrize(
    ("size", "number", "hint"),
    [
        (S, 5, r"fix 's' when exporting or loading: sizes=\{'s': 5\}"),
        (2 * S, 16, r"or fix a size: sizes=\{'s': 8\}"),
        (S + 3, 5, r"or fix a size: sizes=\{'s': 2\}"),
        (S // 2, 5, r"or fix a size: sizes=\{'s': 10\}"),
        ((S // 8) * (S // 8) + 1, 17, r"or fix a size: sizes=\{'s': 32\}"),
        (16 // (S - 3), 4, r"or fix a size: sizes=\{'s': 7\}"),
        (2 * S, 5, r"sizes=\{'s': 's, 2\*s == 5'\}$"),
        (S * T, 12, r"sizes=\{'s': 's, s\*t == 12'\}$"),
    ],
)
def test_a_hint_fixes_a_size_at_a_number_that_fits_or_at_none(size, number, hint):
    with pytest.raises(SizeError, match=f".* must be equal\n  hint .*{hint}"):
        agree("conv", size, number)
    with pytest.raises(SizeError, match=f".* must be equal\n  hint .*{hint}"):
        agree("conv", number, size)


@pytest.mark.parametrize(
    ("size", "divisor", "text"),
    [(1 - S, 2, "- floordiv(s, 2)"), (-2 * (S // 2) + S, 2, "floordiv(- 2*floordiv(s, 2) + s, 2)")],
)
def test_a_quotient_of_a_negative_size_has_one_form(size, divisor, text):
    """JAX may take minutes to compare it with another one."""
    quotient = floored(size, divisor)
    assert str(quotient) == text
    for s, t in ((1, 5), (4, 1), (7, 7)):
        assert quotient._evaluate({"s": s, "t": t}) == size._evaluate({"s": s, "t": t}) // divisor


@pytest.mark.parametrize("sizes", [None, (2, 3), (2, S), (7, 8, 9), (T, 0, 1)])
def test_sizes_of_an_operand_that_fit(sizes):
    must_fit("x", sizes, (2, "C"), ("N", "H", "W"))


@pytest.mark.parametrize(
    ("sizes", "allowed", "message"),
    [
        ((3,), [("N", "C")], r"`x` of \(3,\) must be \(N, C\), a row each$"),
        ((3, 4), [(3, 5), (3, 1)], r"`x` of \(3, 4\) must be \(3, 5\) or \(3, 1\), a row each$"),
        ((S, 4), [(S, 5)], r"`x` of \(s, 4\) must be \(s, 5\), a row each$"),
    ],
)
def test_sizes_of_an_operand_that_do_not_fit(sizes, allowed, message):
    with pytest.raises(ShapeError, match=message) as caught:
        must_fit("x", sizes, *allowed, reason=", a row each")
    assert not isinstance(caught.value, SizeError)


def test_sizes_of_an_operand_that_fit_for_some_values():
    with pytest.raises(SizeError, match=r"`x` of \(s, 4\) must be \(3, 4\): s and 3 must be equal"):
        must_fit("x", (S, 4), (3, 4))
