"""Rules, parameters read shard by shard, and whole models on 8 devices."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import onnx
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P
from onnx import TensorProto, helper, numpy_helper

import jaxops.onnx
from jaxops.errors import ArgumentError, ShapeError
from jaxops.sharding import data_parallel, tensor_parallel

CHILD = Path(__file__).with_name("sharded_models.py")
ROOT = str(CHILD.parents[3])


def test_eight_devices_agree_with_one():
    models = ["bert.script", "gpt2.dynamo", "resnet.script", "vit.dynamo"]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"  # the last one holds
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": ROOT}
    run = subprocess.run([sys.executable, CHILD, *models], env=environment, capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    equal = [line.split()[1] for line in run.stdout.splitlines() if line.startswith("equal")]
    assert equal == np.repeat(models, 2).tolist()


@pytest.fixture
def mesh():
    return jax.make_mesh((2,), ("model",))


@pytest.fixture
def path(tmp_path):
    """A model with two products, its weights in another file."""
    rng = np.random.default_rng(0)
    weights = {"up": rng.random((4, 6), np.float32), "bias": rng.random(6, np.float32), "down": np.ones((6, 4))}
    tensors = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["h"]),
        helper.make_node("Add", ["h", "bias"], ["g"]),
        helper.make_node("MatMul", ["g", "down"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 4]) for n in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "two", ends[:1], ends[1:], tensors), ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return tmp_path / "m.onnx"


def test_each_shard_is_on_its_device(path, mesh):
    alone = jaxops.onnx.load(path)
    with jax.set_mesh(mesh):
        model = jaxops.onnx.load(path, sharding=tensor_parallel("model"))
        assert {name: x.sharding.spec for name, x in model.params.items()} == {
            "up": P(None, "model"),
            "bias": P(),
            "down": P("model", None),
        }
        for name, x in model.params.items():
            for shard in x.addressable_shards:
                np.testing.assert_array_equal(shard.data, np.asarray(alone.params[name])[shard.index])
        x = np.ones((2, 4), np.float32)
        np.testing.assert_allclose(model(x), alone(x), rtol=1e-6)


def test_a_rule_may_give_named_shardings_and_needs_no_current_mesh_then(path, mesh):
    asked = []

    def rule(name, path, shape):
        asked.append((name, path, shape))
        return NamedSharding(mesh, P("model" if name == "down" else None))

    model = jaxops.onnx.load(path, sharding=rule)
    assert asked == [("up", "up", (4, 6)), ("bias", "bias", (6,)), ("down", "down", (6, 4))]
    assert [x.sharding.spec for x in model.params.values()] == [P(None), P(None), P("model")]


def test_rules_are_refused_at_load(path, mesh):
    with pytest.raises(ArgumentError, match=r"there is no mesh[\s\S]*jax.set_mesh"):
        jaxops.onnx.load(path, sharding=data_parallel)
    with jax.set_mesh(mesh):
        with pytest.raises(ArgumentError, match=r"the mesh has no axis 'tensor'; it has model"):
            jaxops.onnx.load(path, sharding=tensor_parallel("tensor"))
        with pytest.raises(ArgumentError, match="the rule gives 'model' for 'up'; it must give a PartitionSpec"):
            jaxops.onnx.load(path, sharding=lambda *_: "model")
        with pytest.raises(ShapeError, match=r"'bias' has shape \(6,\), but the rule gives .* for 2 axes"):
            jaxops.onnx.load(path, sharding=lambda *_: P(None, "model"))
    with pytest.raises(ShapeError, match=r"'w' has shape .*splits axis 0 into 2 parts, which do not divide 3"):
        jaxops.onnx.load(odd(), sharding=lambda *_: NamedSharding(mesh, P("model")))


def odd():
    """The bytes of a model with a weight of 3 rows."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 3]) for n in "xy"]
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "odd", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, ir_version=8).SerializeToString()
