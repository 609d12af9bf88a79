"""The axes of a transpose."""

import itertools

import pytest

from jaxops.errors import AxisError
from jaxops.ops.tensor.reordering import permutation


def test_permutation():
    for rank in range(5):
        assert permutation(None, rank) == tuple(reversed(range(rank)))
        for perm in itertools.permutations(range(rank)):
            assert permutation(perm, rank) == perm
        for perm in itertools.product(range(-1, rank + 1), repeat=rank):
            if set(perm) != set(range(rank)):
                with pytest.raises(AxisError, match="is not a permutation"):
                    permutation(perm, rank)
