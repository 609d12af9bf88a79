"""Blocks: the repeated modules of a model, which a derivative computes once more."""

import copy
import itertools
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.helper import make_node

from jaxops.errors import ArgumentError
from jaxops.onnx import load

MODELS = Path(__file__).parents[1] / "models"
RNG = np.random.default_rng(3)
FLOAT = 1


def numbers(*sizes):
    return (RNG.standard_normal(sizes) / np.sqrt(sizes[0])).astype(np.float32)


def proto(nodes, weights, sizes):
    inputs, outputs = (
        [helper.make_tensor_value_info(name, FLOAT, sizes)] for name in (nodes[0].input[0], nodes[-1].output[0])
    )
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, initializers), ir_version=10)


def layers(count, width=32, inner=128, batch=16):
    """Layers of a residual perceptron, between two nodes without one."""
    nodes, weights = [make_node("Tanh", ["x"], ["x0"], "/start/Tanh")], {}
    for k in range(count):
        weights |= {f"up{k}": numbers(width, inner), f"down{k}": numbers(inner, width)}
        nodes += [
            make_node("MatMul", [f"x{k}", f"up{k}"], [f"a{k}"], f"/encoder/layer.{k}/up/MatMul"),
            make_node("Sigmoid", [f"a{k}"], [f"b{k}"], f"/encoder/layer.{k}/act/Sigmoid"),
            make_node("Shape", [f"b{k}"], [f"sizes{k}"]),  # of no module
            make_node("Reshape", [f"b{k}", f"sizes{k}"], [f"c{k}"], f"/encoder/layer.{k}/Reshape"),
            make_node("MatMul", [f"c{k}", f"down{k}"], [f"d{k}"], f"/encoder/layer.{k}/down/MatMul"),
            make_node("Add", [f"d{k}", f"x{k}"], [f"x{k + 1}"], f"/encoder/layer.{k}/Add"),
        ]
    return proto([*nodes, make_node("Tanh", [f"x{count}"], ["y"], "/end/Tanh")], weights, [batch, width])


def functions(model, x):
    """The model as a function of its parameters and an input: as it is, and as a pair."""
    prepare, run = model.specialize(x, transformable=True)
    return [model.apply, lambda params, x: run(prepare(params), x)]


def loss(apply):
    return lambda params, x: jnp.square(apply(params, x)).mean()


def blocks(nodes):
    return [name for name, _ in itertools.groupby(node.block for node in nodes)]


def named(*names):
    """Nodes in a row, of these names."""
    nodes = [make_node("Tanh", [f"v{k}"], [f"v{k + 1}"], name) for k, name in enumerate(names)]
    return load(proto(nodes, {}, [2]), remat="block").graph.nodes


@pytest.mark.parametrize("jitted", [True, False])
def test_values_and_gradients_are_the_same(jitted):
    file, x = layers(3), numbers(16, 32)
    plain, model = load(file), load(file, remat="block")
    np.testing.assert_array_equal(model(x), plain(x))
    expected = jax.value_and_grad(loss(plain.apply), (0, 1))(plain.params, x)
    for apply in functions(model, x):
        gradient = jax.value_and_grad(loss(apply), (0, 1))
        gradient = jax.jit(gradient) if jitted else gradient
        chex.assert_trees_all_close(gradient(model.params, x), expected, rtol=1e-5, atol=1e-6)


def test_other_transformations_go_through_blocks():
    file, x = layers(2), numbers(16, 32)
    plain, model = load(file), load(file, remat="block")

    def of(model, apply):
        along = lambda x: jax.jvp(lambda x: apply(model.params, x), (x,), (jnp.ones_like(x),))[1]  # noqa: E731
        return jax.vmap(along)(jnp.stack([x, 2 * x])), jax.grad(lambda x: jnp.sin(along(x)).sum())(x)

    expected = of(plain, plain.apply)
    for apply in functions(model, x):
        chex.assert_trees_all_close(of(model, apply), expected, rtol=1e-4, atol=1e-5)
    exported = model.export()
    chex.assert_trees_all_close(exported.call(model.params, x), plain(x), rtol=1e-5, atol=1e-6)


def test_residuals_are_those_between_blocks():
    """Of each layer the sums that enter it are left, and not what the layers make of them."""
    file, x = layers(4), numbers(16, 32)

    def residuals(model, apply):
        _, pull = jax.vjp(lambda params: apply(params, x), model.params)
        return sum(leaf.shape == (16, 128) for leaf in jax.tree.leaves(pull))

    plain, model = load(file), load(file, remat="block")
    assert all(residuals(plain, apply) >= 4 for apply in functions(plain, x))
    assert [residuals(model, apply) for apply in functions(model, x)] == [0, 0]


def test_a_block_may_be_cut_where_a_size_depends_on_data():
    nodes = [
        make_node("Relu", ["x"], ["a"], "/layer.0/Relu"),
        make_node("NonZero", ["a"], ["b"], "/layer.0/NonZero"),
        make_node("Relu", ["a"], ["c"], "/layer.1/Relu"),
        make_node("NonZero", ["c"], ["d"], "/layer.1/NonZero"),
        make_node("Cast", ["d"], ["e"], "/end/Cast", to=FLOAT),
        make_node("Concat", ["e", "e"], ["y"], "/end/Concat", axis=1),
    ]
    model = load(proto(nodes, {}, [5]), remat="block")
    assert model(np.array([1, -1, 2, 0, 3], np.float32)).tolist() == [[0, 2, 4, 0, 2, 4]]


@pytest.mark.optimized
def test_a_step_needs_less_memory():
    """At most three of eight layers' values are left, as XLA too would otherwise keep them all."""
    file, x = layers(8, width=64, inner=1024, batch=256), numbers(256, 64)

    def memory(model, apply):
        step = jax.jit(jax.grad(loss(apply))).lower(model.params, x).compile()
        return step.memory_analysis().temp_size_in_bytes

    plain, model = load(file), load(file, remat="block")
    for before, after in zip(functions(plain, x), functions(model, x), strict=True):
        assert memory(model, after) < 0.4 * memory(plain, before)


@pytest.mark.parametrize(("group", "apart"), [(1, False), (4, True)])
def test_dense_convolutions_stay_in_the_main_function(group, apart):
    """XLA:CPU has no fast layout for them in another one."""
    weights = {f"w{k}": numbers(4, 4 // group, 3, 3) for k in range(2)}
    nodes = [make_node("Conv", [f"x{k}", f"w{k}"], [f"x{k + 1}"], f"/layer.{k}/Conv", group=group) for k in range(2)]
    model = load(proto(nodes, weights, [1, 4, 8, 8]), remat="block")
    text = jax.jit(jax.grad(loss(model.apply))).lower(model.params, numbers(1, 4, 8, 8)).as_text()
    calls = [line for line in text.splitlines() if "call @section" in line]
    assert calls
    assert all(("inlineable" in line) == apart for line in calls)


def test_outermost_modules_that_repeat_are_blocks():
    nodes = named("/head/Tanh", *(f"/h.{k}/mlp.{j}/Tanh" for k in range(2) for j in range(3)), "/tail/Tanh")
    assert blocks(nodes) == ["", "h.0", "h.1", ""]


def test_stages_that_differ_are_none():
    """As in a ResNet: layers of different lengths, of equal blocks."""
    names = [f"/layer{k}/layer{k}.{j}/conv/Tanh" for k, length in ((1, 2), (2, 3)) for j in range(length)]
    assert blocks(named(*names)) == ["layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer2.2"]


def test_the_first_of_two_layers_may_do_more():
    """As in a transformer, whose first layer makes the mask for all: the weights tell that the two are equal."""
    weights = {f"{name}{k}": numbers(4, 4) for k in range(2) for name in ("query", "out")}
    nodes = [make_node("Sign", ["x"], ["mask"], "/layer.0/attention/Sign")]
    for k, x, y in ((0, "x", "h"), (1, "h", "y")):
        nodes += [
            make_node("MatMul", [x, f"query{k}"], [f"a{k}"], f"/layer.{k}/attention/query/MatMul"),
            make_node("Mul", [f"a{k}", "mask"], [f"b{k}"], f"/layer.{k}/attention/Mul"),
            make_node("MatMul", [f"b{k}", f"out{k}"], [y], f"/layer.{k}/out/MatMul"),
        ]
    file, x = proto(nodes, weights, [2, 4]), numbers(2, 4)
    plain, model = load(file), load(file, remat="block")
    assert blocks(model.graph.nodes) == ["layer.0", "layer.1"]
    expected = jax.grad(loss(plain.apply))(plain.params, x)
    chex.assert_trees_all_close(jax.grad(loss(model.apply))(model.params, x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "stacks"),
    [
        ("bert.script", 1),
        ("bert.dynamo", 1),
        ("gpt2.dynamo", 1),
        ("llama.script", 1),
        ("vit.dynamo", 1),
        ("t5.script", 2),
        ("t5.dynamo", 2),
        ("t5_decoder.script", 1),
    ],
)
def test_layers_of_exported_transformers_are_blocks(name, stacks):
    """Each stack has two, of which the first has more operators, and in T5 one more weight."""
    found = {block for block in blocks(load(MODELS / f"{name}.onnx", remat="block").graph.nodes) if block}
    assert sorted(block.rpartition(".")[2] for block in found) == ["0"] * stacks + ["1"] * stacks
    assert len({block.rpartition(".")[0] for block in found}) == stacks


def test_different_modules_of_a_sequence_are_no_blocks():
    """Half of the weights are not enough."""
    weights = {"w0": numbers(4, 4), "b0": numbers(4), "scale": numbers(4), "w2": numbers(4, 4), "b2": numbers(4)}
    nodes = [
        make_node("Gemm", ["x", "w0", "b0"], ["a"], "/layers.0/Gemm"),
        make_node("Mul", ["a", "scale"], ["b"], "/layers.1/Mul"),
        make_node("Gemm", ["b", "w2", "b2"], ["y"], "/layers.2/Gemm"),
    ]
    with pytest.raises(ArgumentError, match="no module of the model repeats"):
        load(proto(nodes, weights, [2, 4]), remat="block")


def test_a_number_may_end_a_name():
    assert blocks(named("/encoder/layer_0/fc/Tanh", "/encoder/layer_1/fc/Tanh")) == [
        "encoder.layer_0",
        "encoder.layer_1",
    ]


def test_nodes_of_no_module_belong_to_the_block_around_them():
    graph = load(layers(2), remat="block").graph
    assert [(stop - start, graph.nodes[start].block) for start, stop in graph.block_runs(0, len(graph.nodes))] == [
        (1, ""),
        (6, "encoder.layer.0"),
        (6, "encoder.layer.1"),
        (1, ""),
    ]
    assert graph.block_runs(2, 9) == [(2, 7), (7, 9)]


def test_it_belongs_to_the_structure():
    file = layers(2)
    plain, model, again = load(file), load(file, remat="block"), load(file, remat="block")
    assert jax.tree.structure(model) == jax.tree.structure(again) == jax.tree.structure(copy.copy(model))
    assert jax.tree.structure(model) != jax.tree.structure(plain)
    assert blocks(model.astype(jnp.bfloat16).graph.nodes) == blocks(model.graph.nodes)


def test_what_is_wrong_is_said():
    with pytest.raises(ArgumentError, match="`remat` is 'layer'; it must be 'block' or None"):
        load(layers(2), remat="layer")
    with pytest.raises(ArgumentError, match="remat='block': no module of the model repeats"):
        load(layers(1), remat="block")
