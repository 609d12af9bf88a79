"""A model as a part of a flax module: its parameters learn with the module's own, and only those that should."""

import copy
import pickle
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

from jaxops.errors import ArgumentError, ShapeError
from jaxops.onnx import load

nnx = pytest.importorskip("flax.nnx", reason="flax is in the extra `test`")
optax = pytest.importorskip("optax", reason="optax is in the extra `test`")
import jaxops.flax  # noqa: E402

RNG = np.random.default_rng(0)
W, B = (RNG.normal(size=s).astype(np.float32) for s in ((4, 5), (5,)))
TEXT = "main (float[N,4] x) => (float[N,5] y) { a = MatMul(x, w) y = Add(a, b) }"
NET = model(TEXT, initializers={"w": W, "b": B})
X = RNG.normal(size=(3, 4)).astype(np.float32)


class Classifier(nnx.Module):
    def __init__(self, backbone, rngs):
        self.backbone = jaxops.flax.Module(backbone)
        self.head = nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(self.backbone(x))


@nnx.jit
def step(network, optimizer):
    loss, grads = nnx.value_and_grad(lambda network: (network(X) ** 2).mean())(network)
    optimizer.update(network, grads)
    return loss


def trained(network):
    """The losses of some steps, and the shapes of what the optimizer changes."""
    optimizer = nnx.Optimizer(network, optax.adam(0.01), wrt=nnx.Param)
    with jax.numpy_dtype_promotion("standard"):  # Adam of optax promotes types
        losses = [step(network, optimizer) for _ in range(4)]
    return losses, sorted(map(jnp.shape, jax.tree.leaves(nnx.state(network, nnx.Param))))


def test_it_learns_with_the_head():
    network = Classifier(load(NET), nnx.Rngs(0))
    losses, shapes = trained(network)
    assert losses[-1] < losses[0]
    assert shapes == sorted([(4, 5), (5,), (5, 2), (2,)])
    tuned = network.backbone.model
    assert not np.allclose(tuned.params["w"], W)
    assert not np.allclose(tuned.params["b"], B)
    np.testing.assert_allclose(network.backbone(X), tuned.apply(tuned.params, X), rtol=1e-5)


def test_its_gradients_are_those_of_apply():
    net = load(NET)
    grads = nnx.grad(lambda module: (module(X) ** 2).sum())(jaxops.flax.Module(net))
    wanted = jax.grad(lambda params: (net.apply(params, X) ** 2).sum())(net.params)
    for name, value in wanted.items():
        np.testing.assert_allclose(grads["params"][name][...], value, rtol=1e-5)


@pytest.mark.parametrize(("trainable", "frozen"), [({"w": False}, ["w"]), (lambda name: False, ["b", "w"])])
def test_what_is_not_trainable_stays(trainable, frozen):
    net = load(NET, trainable=trainable)
    network = Classifier(net, nnx.Rngs(0))
    trained(network)
    tuned = network.backbone.model.params
    assert [name for name in ("b", "w") if np.array_equal(tuned[name], net.params[name])] == frozen


def test_the_trained_model_is_saved(tmp_path):
    network = Classifier(load(NET), nnx.Rngs(0))
    trained(network)
    tuned = network.backbone.model
    tuned.save(tmp_path / "tuned.onnx", tuned.params)
    np.testing.assert_allclose(load(tmp_path / "tuned.onnx")(X), network.backbone(X), rtol=1e-5)


def test_states_can_be_split_and_merged():
    network = Classifier(load(NET), nnx.Rngs(0))
    definition, state = nnx.split(network)
    halved = nnx.merge(definition, jax.tree.map(lambda x: x / 2, state))
    np.testing.assert_allclose(halved.backbone(X), (X @ W + B) / 2, rtol=1e-5)


def test_equal_modules_are_compiled_once():
    traces = []

    @nnx.jit
    def call(module):
        traces.append(1)
        return module(X)

    for _ in range(2):
        call(jaxops.flax.Module(load(NET)))
    assert len(traces) == 1


def test_a_wrong_input_is_named():
    with pytest.raises(ShapeError, match="x"):
        jaxops.flax.Module(load(NET))(X[0])


def test_what_is_not_a_model_is_refused():
    path: Any = "m.onnx"
    with pytest.raises(ArgumentError, match=r"Module: `model` is 'm.onnx'; give a model, such as jaxops.onnx.load"):
        jaxops.flax.Module(path)


def test_streams_of_keys_are_no_key():
    net = load(NET)
    with pytest.raises(ArgumentError, match=r"`rng` is nnx.Rngs; give a key that it makes: rng=rngs.dropout()"):
        jaxops.flax.Module(net)(X, rng=nnx.Rngs(0))
    with pytest.raises(ArgumentError, match=r"`rng` is Rngs.*…; it must be one random key"):
        net(X, rng=nnx.Rngs(0))


@pytest.mark.parametrize(
    "copied", [nnx.clone, copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]
)
def test_copies(copied):
    module = jaxops.flax.Module(load(NET))
    other = copied(module)
    np.testing.assert_array_equal(other(X), module(X))
    other.params = nnx.data({name: nnx.Param(2 * value[...]) for name, value in other.params.items()})
    np.testing.assert_allclose(other(X), 2 * (X @ W + B), rtol=1e-5)
    np.testing.assert_allclose(module(X), X @ W + B, rtol=1e-5)


def test_without_flax():
    code = "import sys; sys.modules['flax'] = None; import jaxops; jaxops.flax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "jaxops.flax needs the flax package: pip install flax" in done.stderr
