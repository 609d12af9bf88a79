"""Values have the same text only where they are equal."""

import itertools

import numpy as np
import pytest

from jaxops.compiler.fingerprint import fingerprint

ONES = np.ones((2, 3), np.float32)
VALUES = {
    "zeros by sign": (0.0, -0.0),
    "numbers by type": (1, 1.0, True, 1 + 0j, np.float32(1), np.int8(1)),
    "texts": ("1", b"1", "1,1"),
    "types": (float, np.dtype("float32"), np.dtype("int32"), None),
    "rows": ((1, 1), [1, 1], (1, (1,)), ((1,), 1), ("1,1",), ()),
    "mappings": ({"a": 1}, {"a": 2}, {"b": 1}, {}),
    "arrays": (ONES, ONES.T, ONES.astype(np.float64), 2 * ONES, ONES.tolist()),
    "arrays of texts": (np.array(["a", "b"], object), np.array(["a", "c"], object), np.array(["a,b"], object)),
}


def unknown(x):
    raise AssertionError(f"asked for {x!r}")


def test_what_differs_has_another_text():
    values = list(itertools.chain(*VALUES.values()))
    assert len({fingerprint(x, unknown) for x in values}) == len(values)


@pytest.mark.parametrize("make", [lambda: (1, [ONES.copy()], {"a": -0.0}), lambda: np.array(["a", "b"], object)])
def test_what_is_equal_has_the_same_text(make):
    assert fingerprint(make(), unknown) == fingerprint(make(), unknown)


def test_what_has_no_text_is_asked_for_wherever_it_stands():
    asked = object()
    assert fingerprint([asked, {"a": (asked,)}], lambda x: f"<{x is asked}>") == "list[<True>,{'a':tuple[<True>]}]"
