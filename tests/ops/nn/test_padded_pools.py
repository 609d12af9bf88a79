"""Pools in programs whose weights are prepared."""

import re

import jax
import numpy as np
import pytest
from programs import specialized

from jaxops.compiler.xla_options import program_options
from jaxops.kernels.target import this_machine
from jaxops.ops import average_pool, lp_pool, max_pool

FUNCTIONS = {"MaxPool": max_pool, "AveragePool": average_pool, "LpPool": lp_pool}


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
        {"kernel_shape": (3, 3), "pads": (1, 0, 0, 2), "strides": (2, 2), "ceil_mode": 1},
        {"kernel_shape": (2, 3), "strides": (2, 1), "auto_pad": "SAME_LOWER", "dilations": (1, 2)},
        {"kernel_shape": (5, 2), "pads": (4, 1, 2, 0)},
    ],
    ids=["3×3", "strides", "dilations", "5×2"],
)
@pytest.mark.optimized
def test_specialized_programs_pad_once(op, attributes):
    """One padded copy, and one loop over it; numbers that are not finite reach the windows that hold them."""
    x = np.random.default_rng(0).standard_normal((2, 40, 21, 18), np.float32)
    x[0, 3, 4, 5], x[1, 7, 0, 17], x[1, 8, 20, 3] = np.nan, np.inf, -np.inf

    def run(x):
        return FUNCTIONS[op](x, **attributes)

    compiled = jax.jit(specialized(run), compiler_options=program_options(this_machine())).lower(x).compile()
    np.testing.assert_allclose(compiled(x), jax.jit(run)(x), rtol=1e-5, atol=1e-6)
    if attributes["kernel_shape"] == (3, 3):
        assert len(re.findall(r" pad\(", compiled.as_text())) == 1
