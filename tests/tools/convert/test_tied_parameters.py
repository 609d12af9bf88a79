"""Each module that reads a shared initializer trains a parameter of its own, as the model that was exported did."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import build, info, node, tensor

from jaxops.errors import ArgumentError
from jaxops.onnx import load

RNG = np.random.default_rng(0)
SQUARE, ZEROS = RNG.normal(size=(4, 4)).astype(np.float32), np.zeros(4, np.float32)
X = RNG.normal(size=(3, 4)).astype(np.float32)


def net(*nodes, weights, outputs=("y",)):
    initializers, outputs = [tensor(v, k) for k, v in weights.items()], [info(name, None) for name in outputs]
    return build(*nodes, inputs=[info("x", [3, 4])], initializers=initializers, outputs=outputs)


SHARED = net(
    node("Identity", ["a.weight"], ["b.weight"]),
    node("MatMul", ["x", "a.weight"], ["h"], node_name="/a/MatMul"),
    node("Add", ["h", "zeros"], ["ha"], node_name="/a/Add"),
    node("MatMul", ["ha", "b.weight"], ["i"], node_name="/b/MatMul"),
    node("Add", ["i", "zeros"], ["ib"], node_name="/b/Add"),
    node("MatMul", ["ib", "a.weight"], ["j"], node_name="/c/MatMul"),
    node("Add", ["j", "zeros"], ["jc"], node_name="/c/Add"),
    node("Relu", ["jc"], ["y"]),
    weights={"a.weight": SQUARE, "zeros": ZEROS},
)
NAMES = {"a.weight", "b.weight", "c.weight", "zeros", "b.bias", "c.bias"}


def test_each_module_has_its_own():
    model = load(SHARED)
    assert set(model.params) == NAMES
    assert model.tied == {}
    assert set(load(SHARED, tied=True).params) == {"a.weight", "zeros"}
    assert load(SHARED, tied=True).tied["c.weight"] == "a.weight"
    np.testing.assert_array_equal(model(X), load(SHARED, tied=True)(X))
    assert set(load(SHARED, names="module").params) == {f"{m}.{leaf}" for m in "abc" for leaf in ("weight", "bias")}


def test_gradient_descent_goes_its_own_way_for_each():
    model, names = load(SHARED), ("a.weight", "zeros", "b.weight", "b.bias", "c.weight", "c.bias")

    def plain(params, x):
        for weight, bias in zip(params[::2], params[1::2], strict=True):
            x = x @ weight + jnp.broadcast_to(bias, x.shape)
        return jnp.mean(jnp.maximum(x, 0) ** 2)

    params, expected = model.params, [jnp.asarray(v) for v in (SQUARE, ZEROS) * 3]
    for _ in range(20):
        grads = jax.grad(lambda p: jnp.mean(model.apply(p, X) ** 2))(params)
        params = jax.tree.map(lambda p, g: p - 0.001 * g, params, grads)
        expected = jax.tree.map(lambda p, g: p - 0.001 * g, expected, jax.grad(plain)(expected, X))
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(params[name], value, rtol=1e-4, atol=1e-5)
    assert not np.allclose(params["zeros"], params["b.bias"])


def test_biases_of_layers_with_one_output_are_apart_too():
    """And so is what a formula reads, which is no parameter."""
    heads = net(
        node("Gemm", ["x", "a.weight", "zero"], ["a"], node_name="/a/Gemm"),
        node("Gemm", ["x", "b.weight", "zero"], ["b"], node_name="/b/Gemm"),
        node("Mul", ["a", "b"], ["m"], node_name="/Mul"),
        node("Max", ["m", "zero"], ["y"], node_name="/c/Max"),
        weights={"a.weight": SQUARE[:, :1], "b.weight": SQUARE[:, 1:2], "zero": np.float32([0])},
    )
    model = load(heads)
    assert set(model.params) == {"a.weight", "zero", "b.weight", "b.bias"}
    grads = jax.grad(lambda params: jnp.sum(model.apply(params, X + 3)))(model.params)
    assert not np.allclose(grads["zero"], grads["b.bias"])


def lookup(*, head="head"):
    return build(
        node("Gather", ["embed.weight", "ids"], ["e"], node_name="/embed/Gather"),
        node("Transpose", ["embed.weight"], ["t"], node_name=f"/{head}/Transpose", perm=[1, 0]),
        node("MatMul", ["e", "t"], ["y"], node_name=f"/{head}/MatMul"),
        inputs=[info("ids", [3], onnx.TensorProto.INT64)],
        initializers=[tensor(RNG.normal(size=(9, 4)).astype(np.float32), "embed.weight")],
    )


def test_a_table_that_a_product_reads_too_stays_one():
    assert list(load(lookup()).params) == ["embed.weight"]
    assert set(load(lookup(), tied=False).params) == {"embed.weight", "head.weight"}


def test_one_module_has_one():
    model = net(
        node("MatMul", ["x", "w"], ["h"], node_name="/a/MatMul"),
        node("MatMul", ["h", "w"], ["y"], node_name="/a/MatMul_1"),
        weights={"w": SQUARE},
    )
    assert list(load(model).params) == ["w"]


def test_one_module_has_one_for_each_role():
    model = net(
        node("LayerNormalization", ["x", "ones", "ones"], ["y"], node_name="/norm/LayerNormalization"),
        weights={"ones": ZEROS + 1},
    )
    assert set(load(model, names="module").params) == {"norm.weight", "norm.bias"}


def test_nodes_without_a_module_share_one():
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "w"], ["y"])]
    assert list(load(net(*nodes, weights={"w": SQUARE[:, :1] * np.ones((4, 4), np.float32)})).params) == ["w"]


def test_the_module_in_its_name_keeps_it():
    """PyTorch's attention reads the parameters of its `out_proj` itself."""
    model = net(
        node("Identity", ["attention.out_proj.bias"], ["norm.bias"]),
        node("LayerNormalization", ["x", "s", "norm.bias"], ["h"], node_name="/norm/LayerNormalization"),
        node("MatMul", ["h", "w"], ["p"], node_name="/attention/MatMul"),
        node("Add", ["attention.out_proj.bias", "p"], ["y"], node_name="/attention/Add"),
        weights={"attention.out_proj.bias": ZEROS, "s": ZEROS + 1, "w": SQUARE},
    )
    model = load(model)
    assert set(model.params) == {"attention.out_proj.bias", "norm.bias", "s", "w"}
    grads = jax.grad(lambda p: model.apply(p, X).sum())(model.params)
    np.testing.assert_allclose(grads["attention.out_proj.bias"], [3] * 4)


@pytest.mark.parametrize("where", ["no module", "an output", "a subgraph"])
def test_what_stays_as_it_is(where):
    nodes = [
        node("MatMul", ["x", "w"], ["h"], node_name="/a/MatMul"),
        node("MatMul", ["h", "w"], ["y"], node_name="" if where == "no module" else "/b/MatMul"),
    ]
    outputs = ["y"]
    if where == "an output":
        nodes.append(node("Identity", ["w"], ["z"]))
        outputs = ["y", "z", "w"]
    if where == "a subgraph":
        product = node("MatMul", ["y", "w"], ["o"], node_name="/c/MatMul")
        branch = onnx.helper.make_graph([product], "branch", [], [info("o", [3, 4])])
        nodes += [node("ReduceSum", ["y"], ["s"], keepdims=0), node("Cast", ["s"], ["q"], to=9)]
        nodes.append(node("If", ["q"], ["z"], then_branch=branch, else_branch=branch))
        outputs = ["z"]
    params = load(net(*nodes, weights={"w": SQUARE}, outputs=outputs)).params
    assert set(params) == ({"w", "a.weight"} if where == "no module" else {"w"})


def test_a_caller_decides_by_the_paths_of_the_modules():
    asked = []

    def tied(modules):
        asked.append(modules)
        return modules == ("a", "b", "c")

    assert set(load(SHARED, tied=tied).params) == {"a.weight", "zeros"}
    assert asked == [("a", "b", "c")] * 2
    with pytest.raises(ArgumentError, match="`tied` is 'yes'; it must be True, False or a function of module paths"):
        load(SHARED, tied="yes")


def saved(model, params, path):
    model.save(path, params)
    proto = onnx.load(path)
    found = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
    np.testing.assert_allclose(found, model.apply(params, X), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(load(path)(X), found, rtol=1e-5, atol=1e-5)
    return proto


def test_a_file_has_one_tensor_while_all_are_equal(tmp_path):
    model = load(SHARED)
    doubled = {name: 2 * value for name, value in model.params.items()}
    for params in (model.params, doubled):
        proto = saved(model, params, tmp_path / "saved.onnx")
        assert {t.name for t in proto.graph.initializer} == {"a.weight", "zeros"}
        assert [n.op_type for n in proto.graph.node] == [n.op_type for n in SHARED.graph.node]


def test_a_file_has_several_tensors_where_they_differ(tmp_path):
    model = load(SHARED)
    params = {name: value + k for k, (name, value) in enumerate(model.params.items())}
    proto = saved(model, params, tmp_path / "saved.onnx")
    assert {t.name for t in proto.graph.initializer} == NAMES - {"b.weight"}  # a Constant in the place of the Identity
    again = load(tmp_path / "saved.onnx")
    assert {name: np.asarray(v).tobytes() for name, v in again.params.items()} == {
        name: np.asarray(v).tobytes() for name, v in params.items()
    }
