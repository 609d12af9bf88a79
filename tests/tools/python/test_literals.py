"""Static values as Python literals."""

import numpy as np
import pytest
from jax.export import symbolic_shape

from jaxops.jax_internals import evaluated
from jaxops.tools.python.literals import written_sizes

S, T = symbolic_shape("s, t")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (S, "s"),
        (-2 * S + 3, "-2 * s + 3"),
        (-S * T - 1, "-s * t - 1"),
        (3 * T * (S // 4), "3 * t * (s // 4)"),
        ((S - T) // 4 * 2 - S % 3, "2 * ((-t + s) // 4) - s % 3"),
        (S * S * T, "s**2 * t"),
        ((S // 2) % (T + 1) + S.max(5), "s // 2 % (t + 1) + max(s, 5)"),
        ((S * T - 1).min(T) ** 2, "min(s * t - 1, t)**2"),
    ],
    ids=str,
)
def test_a_size_is_arithmetic_on_its_symbols(size, text):
    written = written_sizes(size)
    assert written.text == text
    assert set(written.symbols) <= {"s", "t"}
    for s, t in ((1, 1), (7, 3), (12, 5)):
        assert eval(written.text, {"s": s, "t": t}) == evaluated(size, {"s": s, "t": t})


def test_a_number_is_no_size():
    assert written_sizes(7) == "7"
    assert written_sizes(np.array(-7, object)) == "-7"
