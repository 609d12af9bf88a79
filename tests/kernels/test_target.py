"""The machine that a program is compiled for."""

import jax
import pytest

from jaxops.host import cores, processor_features
from jaxops.kernels.target import Target, this_machine


def test_this_machine_is_the_default_backend():
    target = this_machine()
    assert target == Target(jax.default_backend(), processor_features(), cores())
    assert hash(target) == hash(this_machine())


def test_a_target_cannot_be_changed():
    with pytest.raises(AttributeError):
        Target("cpu").platform = "gpu"
