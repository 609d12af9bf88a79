"""That a broken program is told, and how."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import inlined

from jaxops.compiler.ir import Constant
from jaxops.compiler.verify import verify

X = np.ones((2, 3), np.float32)


@pytest.fixture
def program():
    """%1 = exp(%0), %2 = transpose(%1), %3 = add(%2, 1)."""
    return inlined(lambda x: lax.transpose(lax.exp(x), (1, 0)) + 1, X)


def test_a_right_program_passes(program):
    verify(program)
    verify(inlined(lambda x: (x, 1.0, jnp.sum(x)), X))
    assert all(isinstance(v, int | Constant) for v in program.outputs)


def test_a_value_is_read_before_it_is_computed(program):
    first, *others = program.operations
    with pytest.raises(
        AssertionError, match=r"^after 'sort': operation 0, 'transpose', reads value 1, which nothing has"
    ):
        verify(program.replace(operations=[*others, first]), "sort")


def test_a_value_is_computed_twice(program):
    with pytest.raises(AssertionError, match=r"^operation 3, 'exp', computes value 1, which was computed before"):
        verify(program.replace(operations=[*program.operations, program.operations[0]]))


def test_an_output_is_not_computed(program):
    with pytest.raises(AssertionError, match="value 3 is an output, but nothing has computed it"):
        verify(program.replace(operations=program.operations[:-1]))


@pytest.mark.parametrize("wrong", [jax.ShapeDtypeStruct((2, 3), np.float32), jax.ShapeDtypeStruct((3, 2), np.int32)])
def test_a_value_has_another_type(program, wrong):
    types = list(program.types)
    types[2] = wrong
    with pytest.raises(AssertionError, match=rf"value 2 is said to be {wrong.dtype}.* computed as float32\[3,2\]"):
        verify(program.replace(types=types))
