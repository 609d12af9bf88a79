"""Adapters on several devices: they are split as their weights, and train as on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoders import MODELS
from jax.sharding import AxisType, PartitionSpec as P
from language_models import GROUPS, HEAD, language_model

import jaxops.onnx
from jaxops.sharding import explain, tensor_parallel

DEVICES = jax.device_count()


def of_module(found, module):
    """The specs of the base weight, of A and of B."""
    table = explain(found)
    (adapter,) = [a for a in found.graph.adapters if a.module.endswith(module)]
    specs = {row.name: row.spec for row in table.rows}
    roles = {row.name: row.role for row in table.rows}
    assert roles[adapter.a] == roles[adapter.b] == "adapter"
    return specs[adapter.base], specs[adapter.a], specs[adapter.b]


COLUMNS, ROWS = P(None, "model"), P("model", None)


@pytest.mark.parametrize("names", ["file", "module"])
def test_placement_follows_the_weight(names):
    """Split by what it makes: B is split. Split by what it contracts: A is. Whole: none is."""
    rule = tensor_parallel("model", jax.make_mesh((DEVICES,), ("model",)))
    for file in (language_model((0,)), MODELS / "llama.dynamo.onnx"):
        found = jaxops.onnx.load(file, adapters={"*": 4}, sharding=rule, names=names)
        plain = jaxops.onnx.load(file, sharding=rule, names=names)
        assert {k: x.sharding for k, x in plain.params.items()}.items() <= {
            k: x.sharding for k, x in found.params.items()
        }.items()
        assert of_module(found, "layers.0.mlp.gate_proj") == (COLUMNS, P(), ROWS)
        assert of_module(found, "layers.0.mlp.down_proj") == (ROWS, COLUMNS, P())
        assert of_module(found, "layers.0.mlp.up_proj") == (COLUMNS, P(), ROWS)
    assert of_module(jaxops.onnx.load(language_model((0,)), adapters={"*.qkv_proj": 4}, sharding=rule), "qkv_proj") == (
        P(),
        P(),
        P(),
    )


def test_packed_weights():
    rule = tensor_parallel("model", jax.make_mesh((DEVICES,), ("model",)))
    found = jaxops.onnx.load(language_model((0,), four_bits=True), adapters={"*.mlp.*": 4}, sharding=rule)
    by_output = P("model", None, None)
    assert of_module(found, "gate_proj") == (by_output, P(), ROWS)
    expected = (P(None, "model", None), COLUMNS, P()) if DEVICES == 2 else (by_output, P(), ROWS)
    assert of_module(found, "down_proj") == expected  # two blocks


TOKENS = np.int64([[1, 2, 3, 4], [5, 6, 7, 8]])


def trained(file, mesh=None):
    """A step of training: (the loss, the gradients, the tokens that the new parameters write)."""
    rule = None if mesh is None else tensor_parallel("model", mesh)
    found = jaxops.onnx.load(file, adapters={"*": 4}, sharding=rule)
    rng, placed = np.random.default_rng(1), {}
    for name in (name for name, is_trained in found.trainable.items() if is_trained):
        values = jnp.asarray(rng.normal(size=found.params[name].shape) * 0.2, np.float32)
        placed[name] = jax.device_put(values, found.params[name].sharding)
    inputs = {v.name: np.zeros((2, GROUPS, 0, HEAD), v.dtype) for v in found.inputs if len(v.shape) == 4}
    inputs |= {"input_ids": TOKENS, "attention_mask": np.ones_like(TOKENS)}

    @jax.jit
    def step(new):
        def loss(new):
            return (found.apply({**found.params, **new}, inputs)[0] ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(new)
        return value, gradients, jax.tree.map(lambda x, slope: x - 0.1 * slope, new, gradients)

    value, gradients, after = step(placed)
    if mesh is not None and mesh.axis_types == (AxisType.Explicit,):  # otherwise the compiler chooses
        assert all(x.sharding.is_equivalent_to(placed[name].sharding, 2) for name, x in after.items())
    tokens = jaxops.onnx.generate(found, [[7], [1, 2, 3, 9]], max_tokens=6, params={**found.params, **after}).tokens
    return value, gradients, tokens


@pytest.mark.parametrize(("four_bits", "kind"), [(False, AxisType.Auto), (True, AxisType.Explicit)])
def test_a_step_of_training(four_bits, kind):
    file = language_model((0,), four_bits=four_bits)
    value, gradients, tokens = trained(file)
    mesh = jax.make_mesh((DEVICES,), ("model",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        found_value, found_gradients, found_tokens = trained(file, mesh)
    np.testing.assert_allclose(found_value, value, rtol=1e-5)
    for name, slope in gradients.items():
        np.testing.assert_allclose(found_gradients[name], slope, rtol=0, atol=1e-5 * abs(slope).max())
    np.testing.assert_array_equal(found_tokens, tokens)
