"""What XLA's compiler is told."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET, inlined

import jaxops as jo
from jaxops.compiler import xla_options
from jaxops.kernels.target import Target, this_machine


@pytest.mark.parametrize(
    ("features", "width"),
    [
        ({"avx512f", "avx2", "AuthenticAMD"}, 512),
        ({"avx512f", "avx2", "GenuineIntel"}, None),
        ({"avx2", "AuthenticAMD"}, None),
        ((), None),  # the processor is not known
    ],
)
def test_loops_are_wide_where_that_was_measured(features, width):
    options = xla_options.program_options(Target("cpu", frozenset(features)))
    assert options.get("xla_cpu_prefer_vector_width") == width
    x = np.arange(5000, dtype=np.float32)
    np.testing.assert_array_equal(jax.jit(lambda x: x * x, compiler_options=options)(x), x * x)


def padded(x):
    return lax.pad(x, x.dtype.type(0), [(0, 0, 0), (0, 0, 0), (1, 1, 0), (1, 1, 0)])


def rounded(x):
    return lax.round(x * 3, lax.RoundingMethod.TO_NEAREST_EVEN).astype(jnp.int8)


@pytest.mark.parametrize(
    ("fn", "level"),
    [
        (lambda x: padded(rounded(x)), 3),
        (lambda x: padded(rounded(x).astype(jnp.float32)), 3),
        (padded, 1),
        (rounded, 1),
        (lambda x: lax.pad(rounded(x).reshape(-1), np.int8(0), [(1, 1, 0)]), 1),
    ],
)
def test_loops_that_round_and_pad_pictures_have_vectors(fn, level):
    x = np.linspace(-30, 30, 16 * 40 * 40, dtype=np.float32).reshape(1, 40, 40, 16)
    options = xla_options.program_options(TARGET, inlined(fn, x).operations)
    assert options["xla_backend_optimization_level"] == level
    np.testing.assert_array_equal(jax.jit(fn, compiler_options=options)(x), fn(x))


@pytest.mark.parametrize(
    ("target", "convolutions"),
    [(Target("gpu", frozenset({"cuda"})), True), (Target("gpu"), False), (Target("tpu"), False)],
)
def test_graphs_of_cuda_have_convolutions(target, convolutions):
    options = xla_options.program_options(target)
    assert bool(options) == convolutions
    jax.jit(jnp.sin, compiler_options=options)(1.0)  # XLA knows the names


def test_graphs_of_cuda_have_all_that_xla_puts_there(tmp_path):
    """As it says beside a program that it compiles, for whatever platform."""
    code = "import jax; jax.jit(lambda x: x + 1)(1.0)"
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    environment = os.environ | {"XLA_FLAGS": flags}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    text = "".join(path.read_text() for path in tmp_path.glob("**/*options*") if path.is_file())
    found = set(re.findall(r"xla_gpu_enable_command_buffer: (\w+)", text))
    assert {"FUSION", "CUBLAS"} <= found
    found |= {"CONVOLUTION", "CONDITIONAL"}  # jaxlib 0.10.1 knows branches, too, but leaves them out by default
    assert found == {*xla_options._IN_GRAPHS.split(","), *(x for x in found if "COLLECTIVE" in x)}


def test_those_of_a_callers_program_leave_the_level_alone():
    ours = xla_options.program_options(this_machine()) or {}
    assert jo.compiler_options() == {k: v for k, v in ours.items() if k != "xla_backend_optimization_level"}
    double = jax.jit(lambda x: x * 2, compiler_options=jo.compiler_options())
    np.testing.assert_array_equal(double(np.arange(5000.0)), 2 * np.arange(5000.0))
