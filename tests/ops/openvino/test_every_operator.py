"""Properties of all operators that only OpenVINO has, on one call of each."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import openvino_cases
import pytest

from jaxops.openvino import ops

TEXT = {"string_tensor_pack", "string_tensor_unpack"}
NO_OPERAND = {"prior_box", "prior_box_clustered"}
# One image in place of a batch, so a new axis in front is what vmap makes.
NUMERIC = sorted(set(ops.__all__) - TEXT - NO_OPERAND)
# The derivative of a choice, a count or a type is none.
SINGLE = {"convert_promote_types", "fake_convert", "look_up", "random_uniform"}


def split(name):
    """(the operands that are traced, a call of them)."""
    arguments = openvino_cases.CASES[name]
    traced = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
    if "pyramid" in arguments:
        traced["pyramid"] = arguments["pyramid"][0]
    still = {k: v for k, v in arguments.items() if k not in traced}
    fn = getattr(ops, name)

    def call(operands):
        if "pyramid" in operands:
            operands = {**operands, "pyramid": [operands["pyramid"]]}
        return fn(**operands, **still)

    return traced, call


def leaves(values):
    return [np.asarray(v).astype(float) for v in jax.tree.leaves(values)]


def test_every_operator_has_a_case():
    assert set(openvino_cases.CASES) == set(ops.__all__)


@pytest.mark.parametrize("name", NUMERIC)
def test_compiled_as_called(name):
    operands, call = split(name)
    expected, found = leaves(call(operands)), leaves(jax.jit(call)(operands))
    assert len(expected) == len(found) > 0
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NUMERIC)
def test_batched_as_called_one_by_one(name):
    operands, call = split(name)
    batched = {
        k: jnp.stack([jnp.asarray(v), jnp.asarray(v)[..., ::-1] if v.ndim > 3 else jnp.asarray(v)])
        for k, v in operands.items()
    }
    found = leaves(jax.jit(jax.vmap(call))(batched))
    for i in range(2):
        expected = leaves(call({k: v[i] for k, v in batched.items()}))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NUMERIC)
def test_half_precision(name):
    """The type of the operands comes out, and numbers that float16 knows as well as float32 knows them."""
    operands, call = split(name)
    floats = [k for k, v in operands.items() if v.dtype == np.float32]
    if not floats or name in SINGLE:
        return
    half = {k: v.astype(np.float16) if k in floats else v for k, v in operands.items()}
    wide = {k: v.astype(np.float32) if k in floats else v for k, v in half.items()}
    results = zip(jax.tree.leaves(call(half)), jax.tree.leaves(call(wide)), strict=True)
    assert any(a.dtype == np.float16 or jnp.issubdtype(b.dtype, jnp.integer) for a, b in results)
    for a, b in zip(jax.tree.leaves(call(half)), jax.tree.leaves(call(wide)), strict=True):
        assert a.shape == b.shape
        if jnp.issubdtype(b.dtype, jnp.floating):
            scale = float(jnp.abs(jnp.where(jnp.isfinite(b), b, 0)).max()) if b.size else 1
            np.testing.assert_allclose(a.astype(np.float32), b, atol=max(scale, 1) * 2e-3)


@pytest.mark.parametrize("name", sorted(ops.__all__))
def test_no_operand_is_changed(name):
    arguments = openvino_cases.CASES[name]
    before = {k: v.copy() for k, v in arguments.items() if isinstance(v, np.ndarray)}
    operands, call = split(name)
    call(operands)
    for key, value in before.items():
        np.testing.assert_array_equal(arguments[key], value)


def test_documentation_names_source_and_types():
    for name in ops.__all__:
        text = inspect.getdoc(getattr(ops, name)) or ""
        assert "Source: OpenVINO" in text, name
        assert "Raises" in text, name
        assert ">>>" in text, name


@pytest.mark.parametrize("name", NUMERIC)
def test_with_x64(name):
    operands, call = split(name)
    with jax.enable_x64(True):
        wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in operands.items()}
        found = leaves(call(wide if name not in SINGLE else operands))
    for a, b in zip(found, leaves(call(operands)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
