"""A model as a pytree: its leaves are the parameters, and JAX's libraries take it for what it is."""

import copy
import pickle
import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from graphs import build, info, model, node, tensor
from jax.sharding import NamedSharding, PartitionSpec as P

from jaxops.errors import DTypeError, ShapeError, SignatureError
from jaxops.onnx import load

RNG = np.random.default_rng(0)
W, B = (RNG.normal(size=s).astype(np.float32) for s in ((4, 5), (5,)))
TEXT = "main (float[N,4] x) => (float[N,5] y) { a = MatMul(x, w) b = Add(a, b1) c = Relu(b) y = Mul(c, s) }"
WEIGHTS = {"w": W, "b1": B, "s": np.float32(2)}
NET = model(TEXT, initializers=WEIGHTS)
X = RNG.normal(size=(3, 4)).astype(np.float32)


def wanted(w=W, b=B):
    return 2 * np.maximum(X @ np.asarray(w) + np.asarray(b), 0)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture
def net():
    return load(NET)


def structure(*args, **options):
    return jax.tree.structure(load(*args, **options))


def doubled(net):
    return jax.tree.map(lambda v: 2 * v, net)


def squared(net, x):
    return jnp.mean(net(x) ** 2)


def test_leaves_are_the_parameters(net):
    leaves = jax.tree_util.tree_flatten_with_path(net)[0]
    assert {jax.tree_util.keystr(path): v for path, v in leaves} == {
        ".params['b1']": net.params["b1"],
        ".params['w']": net.params["w"],
    }
    again = jax.tree.unflatten(jax.tree.structure(net), jax.tree.leaves(net))
    assert list(again.params) == sorted(net.params)
    close(again(X), wanted())
    close(doubled(net)(X), wanted(2 * W, 2 * B))
    close(net(X), wanted())


def test_two_loads_have_one_structure_and_one_program(net):
    traces = []

    @jax.jit
    def run(net, x):
        traces.append(net)
        return net(x)

    for other in (net, load(NET), copy.copy(net), pickle.loads(pickle.dumps(net)), doubled(net)):
        close(run(other, X), wanted(other.params["w"], other.params["b1"]))
        assert jax.tree.structure(other) == jax.tree.structure(net)
    assert len(traces) == 1


def test_other_weights_are_the_same_structure():
    assert structure(NET) == structure(model(TEXT, initializers={**WEIGHTS, "w": W + 1}))


@pytest.mark.parametrize(
    "other",
    [
        lambda: structure(model(TEXT, initializers={**WEIGHTS, "s": np.float32(3)})),  # a number of the program
        lambda: structure(model(TEXT.replace("Relu", "Abs"), initializers=WEIGHTS)),
        lambda: structure(model(TEXT, initializers=WEIGHTS, opset=13)),
        lambda: structure(NET, static={"w"}),
        lambda: structure(NET, trainable={"b1": False}),
        lambda: structure(NET, sizes={"N": 3}),
        lambda: structure(NET, precision="bfloat16"),
        lambda: structure(NET, x64=True),
        lambda: structure(NET, operators={("", "Relu"): lambda x: x}),
        lambda: jax.tree.structure(load(NET).astype(jnp.bfloat16)),
    ],
)
def test_what_makes_another_program_makes_another_structure(other):
    assert other() != structure(NET)


@pytest.mark.parametrize(
    "options",
    [
        {"max_bytes": 1 << 20},
        {"sharding": lambda name, path, shape: NamedSharding(two_devices(), P("i" if shape[0] == 4 else None))},
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_where_weights_are_does_not_count(net, options):
    other = load(NET, **options)
    assert jax.tree.structure(other) == jax.tree.structure(net)
    moved = jax.tree.map(lambda here, there: jax.device_put(here, there.sharding), doubled(net), other)
    assert moved.params["w"].sharding == other.params["w"].sharding
    close(moved(X), wanted(2 * W, 2 * B))


def two_devices():
    return jax.make_mesh((2,), ("i",))


def test_a_checkpoint_goes_into_a_model_placed_elsewhere(net, tmp_path):
    with jax.set_mesh(two_devices()), ocp.StandardCheckpointer() as checkpointer:
        placed = load(NET, sharding=lambda name, path, shape: P("i") if shape[0] == 4 else P())
        checkpointer.save(tmp_path / "step", doubled(net))
        checkpointer.wait_until_finished()
        resumed = checkpointer.restore(tmp_path / "step", placed)
        assert resumed.params["w"].sharding.spec == P("i")
        assert jax.tree.structure(resumed) == jax.tree.structure(net)
        close(resumed(X), wanted(2 * W, 2 * B))


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"precision": "bfloat16"}, "precision"),
        ({"x64": True}, "x64"),
        ({"names": "module"}, "names"),
        ({"trainable": {"b1": False}}, "trainable"),
        ({"static": {"w"}}, "parameters"),
        ({"sizes": {"N": 3}}, "inputs"),
        ({"operators": {("", "Relu"): lambda x: x}}, "operators"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_the_error_names_the_fact_that_differs(net, options, fact):
    assert fact in differing(net, load(NET, **options)) <= {fact, "nodes", "parameters"}


def differing(net, other):
    """The facts that differ by the text of JAX's error, which has other words since JAX 0.12."""
    with pytest.raises(ValueError, match=r"Mismatch custom node data|different pytree metadata") as raised:
        jax.tree.map(lambda a, b: a, net, other)
    pair = re.findall(r" with (precision .*?)(?= != |; value|\n|$)", str(raised.value))[:2]
    here, there = (dict(fact.rsplit(" ", 1) for fact in text.split(", ")) for text in pair)
    assert list(here) == list(there)
    return {name for name in here if here[name] != there[name]}


def test_the_error_names_bounds():
    text = "main (int64[1] n, float[1,4] x) => (float[M,4] y) { size = Concat<axis=0>(n, f) y = Expand(x, size) }"
    expand = model(text, initializers={"f": np.array([4])})
    three, five = (load(expand, bounds={"n": most}) for most in (3, 5))
    assert "bounds" in differing(three, five)


def test_an_operator_of_a_caller_is_equal_to_itself_alone():
    def relu(x):
        return jnp.maximum(x, 0)

    def absolute(x):
        return jnp.abs(x)

    absolute.__name__ = absolute.__qualname__ = "relu"
    own, again, other = (load(NET, operators={("", "Relu"): fn}) for fn in (relu, relu, absolute))
    assert jax.tree.structure(own) == jax.tree.structure(again) != jax.tree.structure(other)
    run = jax.jit(lambda net, x: net(x))
    close(run(own, X), wanted())
    close(run(other, X), 2 * np.abs(X @ W + B))


def test_nothing_prepared_is_a_leaf_or_goes_to_another_model():
    filters = RNG.normal(size=(32, 32, 3, 3)).astype(np.float32)
    conv = build(
        node("Conv", ["x", "w"], ["y"]), inputs=[info("x", [1, 32, 9, 9])], initializers=[tensor(filters, "w")]
    )
    net, x = load(conv), RNG.normal(size=(1, 32, 9, 9)).astype(np.float32)
    y = net(x)
    assert net._weights.cache.prepared
    assert len(jax.tree.leaves(net)) == 1
    other = doubled(net)
    assert not other._weights.cache.prepared
    np.testing.assert_allclose(other(x), 2 * y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(net(x), y)


def test_models_of_one_structure_share_programs(net, monkeypatch):
    net(X)
    monkeypatch.setattr("jaxops.runtime.specialized_calls.pipeline.specialize", None)  # to specialize is an error
    close(doubled(net)(X), wanted(2 * W, 2 * B))
    close(net.with_params(net.params)(X), wanted())


def test_gradients(net):
    expected = jax.grad(lambda p: jnp.mean(net.apply(p, X) ** 2))(net.params)
    for found in (
        jax.grad(squared)(net, X),
        jax.jit(jax.grad(squared))(net, X),
        eqx.filter_grad(squared)(net, X),
        eqx.filter_jit(eqx.filter_grad(squared))(net, X),
    ):
        assert type(found) is type(net)
        for name, value in expected.items():
            close(found.params[name], value)


def test_a_stack_of_models_under_vmap(net):
    stack = jax.tree.map(lambda *v: jnp.stack(v), net, doubled(net))
    found = jax.jit(jax.vmap(lambda net, x: net(x), (0, None)))(stack, X)
    close(found, [wanted(), wanted(2 * W, 2 * B)])
    with pytest.raises(ShapeError, match=r"'w' has shape \(2, 4, 5\), but the model has \(4, 5\)"):
        stack(X)


def test_types_of_leaves_are_checked(net):
    with pytest.raises(DTypeError, match="'w' is bfloat16, but the model has float32"):
        jax.tree.map(lambda v: v.astype(jnp.bfloat16), net)(X)
    with pytest.raises(SignatureError, match="'b1' is missing"):
        net.with_params({"w": W})(X)
    shapes = jax.eval_shape(lambda net: net, net)
    assert shapes.params["w"].shape == (4, 5)


def test_equinox_trains_what_the_model_says():
    net = load(NET, trainable={"b1": False})
    train, kept = eqx.partition(net, net.with_params(net.trainable))
    assert [v is None for v in (train.params["w"], train.params["b1"], kept.params["w"])] == [False, True, True]
    grads = jax.grad(lambda train: squared(eqx.combine(train, kept), X))(train)
    assert len(jax.tree.leaves(grads)) == 1
    assert copy.copy(train).params["b1"] is pickle.loads(pickle.dumps(train)).params["b1"] is None
    stepped = eqx.combine(eqx.apply_updates(train, jax.tree.map(lambda g: -g, grads)), kept)
    assert squared(stepped, X) < squared(net, X)


def test_a_module_of_equinox_trains_its_backbone(net):
    class Classifier(eqx.Module):
        backbone: object
        head: eqx.nn.Linear

        def __call__(self, x):
            return jax.vmap(self.head)(self.backbone(x))

    whole = Classifier(net, eqx.nn.Linear(5, 2, key=jax.random.key(0)))
    optimizer = optax.sgd(0.01)
    state = optimizer.init(eqx.filter(whole, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(whole, state):
        loss, grads = eqx.filter_value_and_grad(squared)(whole, X)
        updates, state = optimizer.update(grads, state, whole)
        return eqx.apply_updates(whole, updates), state, loss

    losses = []
    for _ in range(5):
        whole, state, loss = step(whole, state)
        losses.append(loss)
    assert losses[-1] < losses[0]
    assert not np.allclose(whole.backbone.params["w"], W)


def test_serialization_of_equinox(net, tmp_path):
    eqx.tree_serialise_leaves(tmp_path / "net.eqx", doubled(net))
    close(eqx.tree_deserialise_leaves(tmp_path / "net.eqx", net)(X), wanted(2 * W, 2 * B))


@pytest.mark.parametrize("kept_as", [nnx.Param, nnx.data])
def test_a_module_of_nnx(net, kept_as):
    class Classifier(nnx.Module):
        def __init__(self, backbone, rngs):
            self.backbone = kept_as(backbone)
            self.head = nnx.Linear(5, 2, rngs=rngs)

        def __call__(self, x):
            backbone = self.backbone.get_value() if isinstance(self.backbone, nnx.Param) else self.backbone
            return self.head(backbone(x))

    whole = Classifier(net, nnx.Rngs(0))
    optimizer = nnx.Optimizer(whole, optax.sgd(0.005), wrt=nnx.Param)

    @nnx.jit
    def step(whole, optimizer):
        loss, grads = nnx.value_and_grad(squared)(whole, X)
        optimizer.update(whole, grads)
        return loss

    losses = [step(whole, optimizer) for _ in range(5)]
    assert losses[-1] < losses[0]
    trained = kept_as is nnx.Param
    backbone = whole.backbone.get_value() if trained else whole.backbone
    assert np.allclose(backbone.params["w"], W) != trained


def test_checkpoints_of_orbax(net, tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step", doubled(net))
        checkpointer.wait_until_finished()
        close(checkpointer.restore(tmp_path / "step", net)(X), wanted(2 * W, 2 * B))


def test_optax_and_scan(net):
    optimizer = optax.sgd(0.1)

    def step(carry, _):
        net, state = carry
        loss, grads = jax.value_and_grad(squared)(net, X)
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(net, updates), state), loss

    (trained, _), losses = jax.lax.scan(step, (net, optimizer.init(net)), None, length=6)
    assert losses[-1] < losses[0]
    close(squared(trained, X), jnp.mean(trained.apply(trained.params, X) ** 2))


def test_a_model_of_64_bits_whatever_holds_around_it():
    net = load(model("main (double[N] x) => (double[N] y) { y = Mul(x, w) }", initializers={"w": np.ones(3)}), x64=True)
    with jax.enable_x64(True):
        twice, x = doubled(net), jnp.asarray([1e-20, 1, 1e300])
        np.testing.assert_array_equal(jax.jit(lambda net, x: net(x))(twice, x), [2e-20, 2, 2e300])
    np.testing.assert_array_equal(twice(np.float64([1, 2, 1e300])), [2, 4, 2e300])


def test_weights_that_become_constants_are_told_once():
    large = np.zeros((4, (9 << 20) // 16), np.float32)
    net = load(model("main (float[N,4] x) => (float[N,M] y) { y = MatMul(x, w) }", initializers={"w": large}))
    with pytest.warns(
        UserWarning, match=r"makes 9 MiB of weights constants.*jit\(lambda model, x: model\(x\)\)"
    ) as told:
        jax.jit(lambda x: net(x)).trace(X)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda x: net(x)).trace(X)  # told once
        other = load(model("main (float[N,4] x) => (float[N,M] y) { y = MatMul(x, w) }", initializers={"w": large}))
        jax.jit(lambda net, x: net(x)).trace(other, X)
        jax.jit(lambda x: other.apply(other.params, x)).trace(X)  # the caller's own choice
        jax.grad(lambda x: other(x).sum())(X)  # no constants without jit
