"""Sizes of a flattened array, with numbers and with symbolic dimensions."""

import itertools

import pytest
from jax.export import symbolic_shape

from jaxops.errors import shape_text
from jaxops.ops.nn.flattening import flattened_sizes

b, c, h, w = symbolic_shape("b, c, h, w")
SMALL = [s for rank in range(4) for s in itertools.product((0, 1, 2, 3), repeat=rank)]


@pytest.mark.parametrize("sizes", [*SMALL, (b, 3), (b, c, h, w), (2, 0, b)], ids=shape_text)
def test_flatten(sizes):
    for axis in range(len(sizes) + 1):
        first, last = 1, 1
        for size in sizes[:axis]:
            first = first * size
        for size in sizes[axis:]:
            last = last * size
        assert flattened_sizes(sizes, axis) == (first, last)


def test_flatten_symbolic_text():
    assert shape_text(flattened_sizes((b, c, h, w), 1)) == "(b, c*h*w)"
