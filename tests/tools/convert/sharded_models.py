"""Models on several devices against one: `python sharded_models.py MODEL…`, run by `test_sharding_rules.py`.

Prints a line for each comparison.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import jaxops.onnx
from jaxops.sharding import data_parallel, tensor_parallel

MODELS = Path(__file__).parents[2] / "models"
WAYS = [
    (AxisType.Explicit, tensor_parallel("model")),
    (AxisType.Auto, data_parallel),
]


def close(got, expected, what):
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5, err_msg=what)


def spread(mesh, value):
    """An input over the mesh: split along the batch."""
    return jax.device_put(value, NamedSharding(mesh, P("data", *[None] * (value.ndim - 1))))


def slopes(model):
    def loss(params, inputs):
        found = model.apply(params, inputs)
        return (jax.tree.leaves(found)[0] ** 2).mean(), found

    return jax.jit(jax.grad(loss, has_aux=True))


def compare(name):
    data = np.load(MODELS / f"{name.split('.')[0]}.npz")
    inputs = {key[3:]: data[key] for key in data if key.startswith("in:")}
    inputs = {key: x.astype(np.int32) if x.dtype == np.int64 else x for key, x in inputs.items()}
    alone = jaxops.onnx.load(MODELS / f"{name}.onnx")
    gradients, outputs = slopes(alone)(alone.params, {key: jnp.asarray(x) for key, x in inputs.items()})
    devices = len(jax.devices())
    for kind, by in WAYS:
        mesh = jax.make_mesh((2, devices // 2), ("data", "model"), axis_types=(kind, kind))
        with jax.set_mesh(mesh):
            model = jaxops.onnx.load(MODELS / f"{name}.onnx", sharding=by)
            params = model.params
            split = sum(not x.is_fully_replicated for x in params.values())
            assert (split > 3) == (by is not data_parallel), f"{split} of {len(params)} parameters are split"
            found, got = slopes(model)(params, {key: spread(mesh, x) for key, x in inputs.items()})
        for y, e in zip(jax.tree.leaves(got), jax.tree.leaves(outputs), strict=True):
            close(y, e, "output")
        for key, gradient in found.items():
            same = gradient.sharding.is_equivalent_to(params[key].sharding, gradient.ndim)
            assert same, f"{key}: {gradient.sharding.spec}, parameter {params[key].sharding.spec}"
            close(gradient, gradients[key], key)
        print(f"equal {name} {kind.name}: {split} of {len(params)} split", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        compare(name)
