"""Sizes of a concatenation, with numbers and with symbolic dimensions."""

import pytest
from jax.export import symbolic_shape

from jaxops.errors import ShapeError
from jaxops.ops.tensor.joining import concatenated_sizes

b, c = symbolic_shape("b, c")


def test_concat():
    assert concatenated_sizes([(2, 3), (2, 4)], 1) == (2, 7)
    assert concatenated_sizes([(0, 3), (0, 3)], 0) == (0, 3)
    assert concatenated_sizes([(b, 3), (c, 3)], 0) == (b + c, 3)
    assert concatenated_sizes([(b, 3), (b, 4), (b, 0)], 1) == (b, 7)
    for other in ((2,), (3, 3), (2, 3, 1), (b, 3)):
        with pytest.raises(
            ShapeError, match=r"concat: operand 1 of .* does not fit operand 0 of \(2, 3\); .* only along axis 1"
        ):
            concatenated_sizes([(2, 3), other], 1)
