"""That numbers in which equal layers differ become arguments, and others stay constants."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import TARGET, inlined

from jaxops.compiler import numpy_interpreter
from jaxops.compiler.ir import run
from jaxops.compiler.partition.weight_only import split_weight_only
from jaxops.compiler.passes.lift_scalars import lift_scalar_constants
from jaxops.compiler.run.prepare_weights import WeightProgram
from jaxops.ops import quantize_linear

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 40), np.float32)
W = RNG.standard_normal((6, 40, 40), np.float32) / 8
SCALES = (0.25, 0.37, 1.25, -0.5, 3.0, 0.125)


def kernels(fn, *numbers):
    """How many numbers are prepared for a function, and its loops, those that differ and all; the results stay as they
    were. numbers: none of them is a constant of the program any more."""
    program = lift_scalar_constants(inlined(fn, jnp.asarray(W), jnp.asarray(X)), TARGET)
    split = split_weight_only(program, 1, TARGET)
    values = WeightProgram.of(split.prepare).cached({}, [jnp.asarray(W)])

    def call(values, w, x):
        return run(split.run, [*values, *[w] * len(split.read), x])

    compiled = jax.jit(call).lower(values, W, X).compile()
    wanted = jax.jit(fn)(W, X)
    np.testing.assert_allclose(compiled(values, W, X)[0], wanted, rtol=1e-5, atol=1e-5)
    text = compiled.as_text()
    for number in numbers:
        assert f"constant({number:g})" not in text
    bodies = re.findall(r"^%\S*fused_computation\S* (.*?)^}", text, re.MULTILINE | re.DOTALL)
    plain = [re.sub(r"metadata=\{.*?\}|[%\w]+\.\d+|%\w+", "", body) for body in bodies if " dot(" not in body]
    return sum(value.ndim == 0 for value in values), len(set(plain)), len(plain)


def layers(each):
    """Products, and behind each what `each` makes of its result and the layer's scale."""

    def fn(w, x):
        for k, scale in enumerate(SCALES):
            x = each(lax.dot(x, w[k]), scale)
        return x

    return fn


@pytest.mark.optimized
def test_scales_of_equal_layers():
    """One loop serves them all."""
    values, different, loops = kernels(layers(lambda x, scale: lax.max(x * np.float32(scale), 0.0)), *SCALES)
    assert loops >= len(SCALES)
    assert different < loops / 2
    assert values == len(SCALES)


@pytest.mark.optimized
def test_what_all_layers_share_stays_a_constant():
    def gelu(x, _):
        return x * np.float32(0.5) * (1 + lax.tanh(np.float32(0.7978) * (x + np.float32(0.0447) * x * x * x)))

    values, *_ = kernels(layers(gelu))
    assert values == 0


@pytest.mark.parametrize(
    "each",
    [
        lambda x, scale: lax.select(x != x, x, jnp.full_like(x, scale)) * 2,
        lambda x, scale: x / jnp.broadcast_to(jnp.asarray(scale).reshape(1, 1), x.shape),
        lambda x, scale: x - lax.convert_element_type(np.int8(40 * scale), jnp.float32) / 100,
    ],
    ids=["select", "reshaped", "converted"],
)
@pytest.mark.optimized
def test_numbers_are_found_behind_what_hands_them_on(each):
    values, *_ = kernels(layers(each))
    assert values == len(SCALES)


@pytest.mark.optimized
def test_what_is_made_of_numbers_is_prepared():
    """So that no kernel computes one element at each call."""
    factor = jax.jit(lambda scale, divisor: scale * np.float32(2) / divisor)

    def fn(w, x):
        for k, scale in enumerate(SCALES):
            x = lax.dot(x, w[k]) * factor(np.float32(scale), np.float32(1 + k))
        return x

    program = lift_scalar_constants(inlined(fn, jnp.asarray(W), jnp.asarray(X)), TARGET)
    split = split_weight_only(program, 1, TARGET)
    assert sum(operation.name == numpy_interpreter.CONSTANT for operation in program.operations) > len(SCALES)
    assert sum(program.types[v].shape == () for v in split.prepare.outputs) == len(SCALES)
    assert not any(program.types[v].shape == () for operation in split.run.operations for v in operation.results)
    values, *_ = kernels(fn)
    assert values == len(SCALES)


@pytest.mark.optimized
def test_one_layer_has_constants():
    values, *_ = kernels(lambda w, x: lax.max(lax.dot(x, w[0]) * np.float32(0.3), 0.0))
    assert values == 0


@pytest.mark.optimized
def test_what_nan_becomes_is_no_scale():
    """A loop that pads and reads an argument has no vector instructions: 1.3 ms, not 0.2, for 800,000 numbers."""
    values, *_ = kernels(lambda w, x: quantize_linear(lax.dot(x, w[0]), np.float32(0.3)).astype(jnp.float32))
    assert values == 0


@pytest.mark.optimized
def test_weights_that_xla_prepares_of_numbers():
    def fn(w, x):
        for k, scale in enumerate(SCALES):
            x = lax.dot(x, lax.tanh(w[k] * np.float32(scale)))
        return x

    kernels(fn, *SCALES)


@pytest.mark.optimized
def test_a_formula_of_many_numbers_keeps_them():
    """XLA makes one loop of it, and each argument would take its time at each call."""

    def fn(w, x):
        x = lax.dot(x, w[0])
        for k in range(40):
            x = x * np.float32(1 + k / 100) + np.float32(k / 7)
        return x

    values, *_ = kernels(fn)
    assert values == 0
