"""Strings beside an array that says where they go: a concrete JAX array is read, a traced one chooses or is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node

import jaxops as jo
import jaxops.onnx
from jaxops.errors import StaticError
from jaxops.opaque import ChosenStrings

S = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
NEW = np.array([["x", "y"]], object)
CASES: dict[str, tuple[Any, Any, Any]] = {
    "gather": (lambda i: jo.gather(S, i, axis=1), [2, -1], [["c", "c"], ["f", "f"]]),
    "gather a scalar": (lambda i: jo.gather(S[0], i), 1, "b"),
    "gather_elements": (lambda i: jo.gather_elements(S, i, axis=1), [[2, 0]], [["c", "a"]]),
    "gather_nd": (lambda i: jo.gather_nd(S, i), [[0, 1], [1, 2]], ["b", "f"]),
    "gather_nd a scalar": (lambda i: jo.gather_nd(S, i), [1, 2], "f"),
    "scatter_elements": (
        lambda i: jo.scatter_elements(S, i, NEW, axis=1),
        [[0, 2]],
        [["x", "b", "y"], ["d", "e", "f"]],
    ),
    "scatter_nd": (lambda i: jo.scatter_nd(S, i, NEW[0]), [[0, 0], [1, 2]], [["x", "b", "c"], ["d", "e", "y"]]),
    "where": (lambda c: jo.where(c, S[0], S[1]), [True, False, True], ["a", "e", "c"]),
    "where a scalar": (lambda c: jo.where(c, np.array("a", object), np.array("d", object)), False, "d"),
    "one_hot": (lambda i: jo.one_hot(i, 2, S[0, :2]), [1, 0], [["a", "b"], ["b", "a"]]),
    "reverse_sequence": (lambda n: jo.reverse_sequence(S.T, n), [3, 2], [["c", "e"], ["b", "d"], ["a", "f"]]),
    "compress": (lambda c: jo.compress(S, c, axis=0), [False, True], [["d", "e", "f"]]),
}
# Under `jit`, numbers stand for the strings that these choose.
CHOSEN = CASES.keys() - {"compress"}


@pytest.mark.parametrize("name", CASES)
def test_concrete_and_traced(name):
    fn, indices, expected = CASES[name]
    for given in (np.asarray(indices), jnp.asarray(indices)):
        found = fn(given)
        assert (type(found), found.dtype, found.tolist()) == (np.ndarray, np.dtype(object), expected)
    if name in CHOSEN:
        chosen = jax.jit(fn)(jnp.asarray(indices))
        assert isinstance(chosen, ChosenStrings)
        assert np.asarray(chosen).tolist() == expected
        return
    with pytest.raises(StaticError):
        jax.jit(lambda i: jo.identity(fn(i)).shape)(jnp.asarray(indices))


def test_in_a_model():
    proto = build(
        node("Gather", ["s", "x"], ["y"]),
        inputs=[info("s", [3], 8), info("x", ["N"], 7)],
        outputs=[info("y", None, 8)],
    )
    model = jaxops.onnx.load(proto)
    assert model.apply(model.params, S[0], np.array([2, 0])).tolist() == ["c", "a"]


def test_unique_slices():
    x = np.array([["b", "a"], ["a", "c"], ["b", "a"], ["a", "b"]], object)
    for axis, ordered in ((0, 1), (0, 0), (1, 1), (-1, 0), (None, 1)):
        codes = np.vectorize(ord)(x)
        y, *places = jo.unique(x, axis=axis, sorted=ordered)
        theirs, *others = jo.unique(codes, axis=axis, sorted=ordered)
        assert y.dtype == object
        assert np.vectorize(ord)(y).tolist() == theirs.tolist()
        assert [p.tolist() for p in places] == [o.tolist() for o in others]
