"""What becomes of a model on a mesh: steps of training, specialized pairs, exported programs and copies."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model
from jax.sharding import AxisType, PartitionSpec as P

from jaxops.onnx import load
from jaxops.sharding import explain, fsdp, tensor_parallel

RNG = np.random.default_rng(0)


def drawn(**shapes):
    return {name: (RNG.normal(size=shape) / 4).astype(np.float32) for name, shape in shapes.items()}


# Queries, keys and values of one product, which is whole on each device; the compiler would split its gradient.
FUSED = model(
    """main (float[B,S,32] x) => (float[B,S,32] y) {
        o = com.microsoft.Attention<num_heads = 8, unidirectional = 1>(x, wqkv, bias) y = MatMul(o, wo) }""",
    initializers=drawn(wqkv=(32, 96), wo=(32, 32), bias=(96,)),
    imports=', "com.microsoft" : 1',
)
# Filters by output channel, whose biases are whole.
FILTERS = model(
    """main (float[B,8,T] x) => (float[B,8,T] y) {
        h = Conv<pads = [1, 1]>(x, w, b) r = Relu(h)
        d = Conv<group = 32, pads = [1, 1]>(r, each) y = Conv(d, v, c) }""",
    initializers=drawn(w=(32, 8, 3), b=(32,), each=(32, 1, 3), v=(8, 32, 1), c=(8,)),
)
CASES = {"fused": (FUSED, (4, 3, 32)), "filters": (FILTERS, (4, 8, 10))}
RULES = {
    "tensor_parallel": lambda: tensor_parallel("model"),
    "fsdp": lambda: fsdp("model"),
    "own": lambda: lambda name, path, shape: P("model") if name in ("wo", "w") else P(),
}


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES)
def test_a_step_leaves_parameters_in_place(case, rule, kind):
    proto, sizes = CASES[case]
    x = np.random.default_rng(1).normal(size=sizes).astype(np.float32)
    alone = load(proto)

    def step(model, params, x):
        grads = jax.grad(lambda p: (model.apply(p, x) ** 2).mean())(params)
        return grads, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    with jax.set_mesh(jax.make_mesh((2,), ("model",), axis_types=(kind,))):
        placed = load(proto, sharding=RULES[rule]())
        results = jax.jit(step, static_argnums=0)(placed, placed.params, jnp.asarray(x))
    for found, expected in zip(results, step(alone, alone.params, x), strict=True):
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
            kept = placed.params[name].sharding
            assert value.sharding.is_equivalent_to(kept, value.ndim), (name, value.sharding, kept)


def test_gradients_without_a_mesh_that_is_set():
    """`jax.grad` of JAX makes the 1 that it starts from on one device, whoever computed the loss; under `jit` not."""
    mesh = jax.make_mesh((2,), ("model",), axis_types=(AxisType.Explicit,))
    placed = load(FILTERS, sharding=tensor_parallel("model", mesh))
    x = np.random.default_rng(1).normal(size=(4, 8, 10)).astype(np.float32)

    def loss(params):
        return (placed.apply(params, x) ** 2).mean()

    for wrong in (loss, lambda params: params["w"].sum()):
        with pytest.raises(ValueError, match=r"enter your `jit` into a mesh context via `jax.set_mesh`"):
            jax.grad(wrong)(placed.params)
    expected = jax.jit(jax.grad(loss))(placed.params)
    with jax.set_mesh(mesh):
        found = jax.grad(loss)(placed.params)
    y, back = jax.vjp(lambda params: placed.apply(params, x), placed.params)
    for got in (found, back(2 * y / y.size)[0]):
        for name, value in got.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("rule", ["tensor_parallel", "fsdp"])
def test_a_specialized_pair(rule, kind):
    proto, sizes = CASES["filters"]
    x = np.random.default_rng(1).normal(size=sizes).astype(np.float32)
    expected = load(proto)(x)
    with jax.set_mesh(jax.make_mesh((2,), ("model",), axis_types=(kind,))):
        placed = load(proto, sharding=RULES[rule]())
        prepare, run = placed.specialize(x, transformable=True)
        np.testing.assert_allclose(run(prepare(placed.params), x), expected, rtol=1e-4, atol=1e-5)
        together = jax.jit(lambda params, x: run(prepare(params), x))
        np.testing.assert_allclose(together(placed.params, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("rule", ["tensor_parallel"])
def test_a_program_for_all_sizes(rule, kind):
    proto, sizes = CASES["filters"]
    x = np.random.default_rng(1).normal(size=sizes).astype(np.float32)
    alone = load(proto)
    with jax.set_mesh(jax.make_mesh((2,), ("model",), axis_types=(kind,))):
        placed = load(proto, sharding=RULES[rule]())
        program = placed.export()
        assert program.nr_devices == 2
        for params in (placed.params, alone.params):
            np.testing.assert_allclose(program.call(params, x), alone(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_running_statistics_stay_in_place(kind):
    weights = drawn(w=(8, 16), s=(16,), t=(16,), m=(16,)) | {"v": np.full(16, 2, np.float32)}
    proto = model(
        "main (float[B,8] x) => (float[B,16] y) { h = MatMul(x, w) y = BatchNormalization(h, s, t, m, v) }",
        initializers=weights,
    )
    x = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
    alone = load(proto, training=True)
    expected = alone(x)[1]
    with jax.set_mesh(jax.make_mesh((2,), ("model",), axis_types=(kind,))):
        placed = load(proto, training=True, sharding=fsdp("model"))
        for call in (placed.apply, jax.jit(placed.apply), lambda params, x: placed(x)):
            found = call(placed.params, x)[1]
            assert set(found) == {"m", "v"}
            for name, value in found.items():
                assert value.sharding.is_equivalent_to(placed.params[name].sharding, 1), value.sharding
                np.testing.assert_allclose(value, expected[name], rtol=1e-4)
        assert {row.reason for row in explain(placed.with_params(placed.params | found)).rows} == {
            row.reason for row in explain(placed).rows
        }


def test_axes_of_two_kinds():
    """The axis that splits a parameter counts."""
    x = np.random.default_rng(1).normal(size=(4, 8, 10)).astype(np.float32)
    kinds = AxisType.Auto, AxisType.Explicit
    with jax.set_mesh(jax.make_mesh((2, 1), ("model", "other"), axis_types=kinds)):
        placed = load(FILTERS, sharding=fsdp("model"))
        program = jax.jit(placed.apply).lower(placed.params, x).compile()
        np.testing.assert_allclose(program(placed.params, x), load(FILTERS)(x), rtol=1e-4, atol=1e-5)
    assert "all-gather" in str(program.as_text())


def test_copies():
    """A copy in this process has its parameters in the same places, and one by `pickle` has them on one device."""
    x = np.ones((4, 8, 10), np.float32)
    with jax.set_mesh(jax.make_mesh((2,), ("model",))):
        placed = load(FILTERS, sharding=fsdp("model"))
        expected, places = placed(x), {name: value.sharding for name, value in placed.params.items()}
        for same in (copy.copy(placed), copy.deepcopy(placed), placed.with_params(placed.params)):
            assert str(explain(same)) == str(explain(placed))
            assert {name: value.sharding for name, value in same.params.items()} == places
            np.testing.assert_allclose(same(x), expected, rtol=1e-5)
    other = pickle.loads(pickle.dumps(placed))
    assert jax.tree.structure(other) == jax.tree.structure(placed)
    assert {row.reason for row in explain(other).rows} == {"loaded without a rule"}
    assert {len(value.devices()) for value in other.params.values()} == {1}
    np.testing.assert_allclose(other(x), expected, rtol=1e-5, atol=1e-6)
    assert (
        type(jax.grad(lambda p: other.apply(p, x).sum())(other.params)["w"].sharding).__name__ == "SingleDeviceSharding"
    )
