"""The limits under which a requirement on sizes holds."""

import pytest

from jaxops.tools.export.limits.solver import Limit, limits_for


@pytest.mark.parametrize(
    ("needs", "found"),
    [
        ("4*b*min(t, 63) == 4*b*t", ["t <= 63"]),
        ("min(2*t - 1, 63) == 2*t - 1", ["t <= 32"]),
        ("min(h, 8)*min(w, 9) == h*w", ["h <= 8", "w <= 9"]),
        ("min(h, 8) == 8", ["min(h, 8) == 8", "h >= 8"]),
        ("b*max(t, 9) == b*t", ["t >= 9"]),
        ("max(floordiv(t, 4) - 1, 0) == floordiv(t, 4) - 1", ["t >= 4"]),
        ("min(s, c) == s", ["s <= c"]),
        ("min(h*w, 8) == 8", ["h*w >= 8"]),
        ("min(s, c) == 4", ["min(s, c) == 4"]),  # either of both may be larger
        ("63 >= t", ["t <= 63"]),
        ("a - 2 >= b", ["a - 2 >= b"]),
        ("min(s, c) >= 4", ["min(s, c) >= 4"]),
        ("min(s, c) >= s", ["s <= c"]),
        ("b*floordiv(s + 5, 6) >= max(b, 14) - 2", ["b*floordiv(s + 5, 6) >= max(b, 14) - 2"]),  # not b >= 14
        ("t >= s*floordiv(37, 31)", ["t >= s*floordiv(37, 31)"]),  # a quotient without symbols
    ],
)
def test_limits_of_minima(needs, found):
    assert list(next(limits_for(needs, {}, {}), Limit()).constraints) == found
