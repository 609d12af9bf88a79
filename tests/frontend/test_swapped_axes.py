"""Swaps of the last two axes that are written as Reshape, Transpose and Reshape."""

import numpy as np
import pytest
from graphs import model

from jaxops.onnx import load

X = np.arange(48, dtype=np.float32).reshape(2, 2, 3, 4)
SIZES = {"left": [-1], "minus_2": [-2], "minus_1": [-1], "far": [2**63 - 1], "start": [-(2**63)]}
INITIALIZERS = {name: np.array(value) for name, value in SIZES.items()}
BODY = """
    shape = Shape(x) columns = Slice(shape, minus_1, far) rows = Slice(shape, minus_2, minus_1)
    leading = Slice(shape, start, minus_2)
    joined = Concat<axis = 0>(left, rows, columns) a = Reshape(x, joined) b = Transpose<perm = [0, 2, 1]>(a)
    parted = Concat<axis = 0>(leading, columns, rows) y = Reshape(b, parted)
"""


def loaded(body, inputs="float[A,B,C,D] x", **options):
    return load(model(f"main ({inputs}) => (float[E,F,G,H] y) {{ {body} }}", initializers=INITIALIZERS), **options)


def is_swap(net):
    return net.graph.nodes[-1].operator.name == "Einsum"


def test_one_einsum_swaps_and_other_tensors_stay():
    net = loaded(BODY)
    assert is_swap(net)
    np.testing.assert_array_equal(net(X), X.swapaxes(2, 3))
    np.testing.assert_array_equal(net(X, outputs=["b"]), X.reshape(4, 3, 4).swapaxes(1, 2))
    with_nan = np.where(X > 5, np.nan, X)
    np.testing.assert_array_equal(net.apply({}, with_nan), with_nan.swapaxes(2, 3))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("perm = [0, 2, 1]", "perm = [0, 1, 2]"),
        ("(leading, columns, rows)", "(leading, rows, columns)"),  # another order of the elements
        ("(left, rows, columns)", "(left, columns, rows)"),
        ("shape = Shape(x)", "z = Transpose<perm = [0, 1, 3, 2]>(x) shape = Shape(z)"),
        ("Slice(shape, start, minus_2)", "Slice(shape, start, minus_2, left)"),  # an axis that is not known to be 0
        ("Shape(x)", "Shape<start = 0, end = 4>(x)"),  # not all of the sizes, as far as is looked at
    ],
)
def test_anything_else_stays_as_it_is(before, after):
    assert before in BODY
    assert not is_swap(loaded(BODY.replace(before, after, 1)))


def test_a_size_that_a_call_may_replace_is_not_known():
    assert not is_swap(loaded(BODY, "float[A,B,C,D] x, int64[1] left"))
