"""The machine that a program is compiled for."""

import types

import jax
import jaxlib
import pytest

from jaxops import memory
from jaxops.host import cores, processor_features
from jaxops.kernels.target import Target, this_machine


def test_this_machine_is_the_default_backend():
    target = this_machine()
    divides = tuple(map(int, jaxlib.__version__.split(".")[:2])) >= (0, 11)
    facts = {"divides_batches": divides, "packs_whole": not divides, "max_bytes": memory.LIMIT.get()}
    assert target == Target(jax.default_backend(), processor_features(), cores(), **facts)
    assert hash(target) == hash(this_machine())


def test_a_target_cannot_be_changed():
    with pytest.raises(AttributeError):
        Target("cpu").platform = "gpu"


@pytest.mark.parametrize(("version", "is_cuda"), [("cuda 13000", True), ("rocm 60400", False)])
def test_a_gpu_of_cuda(monkeypatch, version, is_cuda):
    device = types.SimpleNamespace(client=types.SimpleNamespace(platform_version=version))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert ("cuda" in this_machine().features) == is_cuda
