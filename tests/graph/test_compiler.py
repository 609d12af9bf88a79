"""What XLA's compiler is told."""

import jax
import numpy as np
import pytest

from jaxops.graph import compiler


@pytest.mark.parametrize(
    ("features", "width"),
    [
        ({"avx512f", "avx2", "AuthenticAMD"}, 512),
        ({"avx512f", "avx2", "GenuineIntel"}, None),
        ({"avx2", "AuthenticAMD"}, None),
        ((), None),  # the processor is not known
    ],
)
def test_loops_are_wide_where_that_was_measured(monkeypatch, features, width):
    monkeypatch.setattr(compiler, "processor_features", lambda: frozenset(features))
    options = compiler.compiler_options()
    assert options.get("xla_cpu_prefer_vector_width") == width
    x = np.arange(5000, dtype=np.float32)
    np.testing.assert_array_equal(jax.jit(lambda x: x * x, compiler_options=options)(x), x * x)


def test_other_platforms_are_told_nothing(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiler.compiler_options() is None
