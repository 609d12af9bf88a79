"""A loaded model as a JAX function: calls, parameters, transformations, static inputs and outputs, listing."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import build, model, node, tensor
from jax import export
from onnx import parser

from jaxops.errors import OutOfRangeError
from jaxops.onnx import load
from jaxops.runtime import compiled_pieces as calls

RNG = np.random.default_rng(0)
W1, B1 = RNG.normal(size=(4, 5)).astype(np.float32), RNG.normal(size=5).astype(np.float32)
W2 = RNG.normal(size=(5, 2)).astype(np.float32)
MLP = model(
    """main (float[N,4] x) => (float[N,2] y) {
        a = MatMul(x, w1) b = Add(a, b1) c = Relu(b) s = Shape(c) d = Reshape(c, s) y = MatMul(d, w2)
    }""",
    initializers={"w1": W1, "b1": B1, "w2": W2},
)
X = RNG.normal(size=(3, 4)).astype(np.float32)


def expected(x):
    return np.maximum(x @ W1 + B1, 0) @ W2


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.fixture
def mlp():
    return load(MLP)


def count_traces(monkeypatch):
    """The list that gains an entry each time a piece of a model is traced; most models are one piece."""
    traces = []
    piece = calls._piece

    def counted(*args):
        traces.append(args)
        return piece(*args)

    monkeypatch.setattr(calls, "_piece", counted)
    return traces


def test_a_call_and_its_description(mlp):
    close(mlp(X), expected(X))
    assert [str(v) for v in mlp.inputs] == ["x: float32[N, 4]"]
    assert [str(v) for v in mlp.outputs] == ["y: float32[N, 2]"]
    assert (mlp.inputs[0].name, mlp.inputs[0].shape, mlp.inputs[0].dtype) == ("x", ("N", 4), np.float32)
    assert mlp.opsets == {"": 18}
    assert list(mlp.params) == ["w1", "b1", "w2"]
    assert all(isinstance(p, jax.Array) for p in mlp.params.values())
    assert mlp.params is mlp.params


def test_onnxruntime_agrees_at_two_batch_sizes(mlp):
    session = onnxruntime.InferenceSession(MLP.SerializeToString(), providers=["CPUExecutionProvider"])
    for n in (1, 7):
        x = RNG.normal(size=(n, 4)).astype(np.float32)
        close(mlp(x), session.run(None, {"x": x})[0])


def test_one_model_serves_every_batch_size_and_compiles_once_for_each(mlp, monkeypatch):
    traces = count_traces(monkeypatch)
    for n in (1, 3, 1, 3, 0):
        x = np.ones((n, 4), np.float32)
        close(mlp(x), expected(x))
    assert len(traces) == 3


def test_inputs_by_name_and_of_several_kinds(mlp):
    for given in (mlp(x=X), mlp(X), mlp(jnp.array(X)), mlp(X.tolist()), mlp.apply(mlp.params, x=X)):
        close(given, expected(X))


def test_the_pure_function_under_every_transformation(mlp):
    params = mlp.params
    close(mlp.apply(params, X), expected(X))
    close(jax.jit(mlp.apply)(params, X), expected(X))
    close(
        jax.vmap(mlp.apply, in_axes=(None, 0))(params, np.stack([X, 2 * X])), np.stack([expected(X), expected(2 * X)])
    )
    many = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), params)
    assert jax.vmap(mlp.apply, in_axes=(0, None))(many, X).shape == (2, 3, 2)
    _, tangent = jax.jvp(lambda x: mlp.apply(params, x), (jnp.array(X),), (jnp.ones_like(X),))
    assert tangent.shape == (3, 2)


def test_gradients_by_the_parameters_and_by_the_input(mlp):
    def loss(p, x):
        return mlp.apply(p, x).sum()

    def reference(p, x):
        return (jnp.maximum(x @ p["w1"] + p["b1"][None], 0) @ p["w2"]).sum()

    for f in (jax.grad(loss), jax.jit(jax.grad(loss)), jax.grad(lambda p, x: mlp(x).sum() * 0 + loss(p, x))):
        grads = f(mlp.params, jnp.array(X))
        for name, wanted in jax.grad(reference)(mlp.params, jnp.array(X)).items():
            close(grads[name], wanted)
    close(jax.grad(lambda x: mlp(x).sum())(jnp.array(X)), jax.grad(reference, 1)(mlp.params, jnp.array(X)))


def test_a_step_downhill_changes_the_result(mlp):
    params = {name: p - 0.1 for name, p in mlp.params.items()}
    assert not np.allclose(mlp.apply(params, X), mlp(X))
    numpy_params = {name: np.asarray(p) for name, p in params.items()}
    close(mlp.apply(numpy_params, X), mlp.apply(params, X))


def test_weights_are_arguments_and_no_constants_of_the_program(mlp):
    jaxpr = jax.make_jaxpr(mlp.apply)(mlp.params, X)
    assert jaxpr.consts == []
    text = jax.jit(mlp.apply).lower(mlp.params, X).as_text()
    assert "dense<" not in text.replace("dense<0.000000e+00>", "")


def test_one_export_with_a_symbolic_batch_serves_all(mlp):
    (n,) = export.symbolic_shape("n")
    exported = export.export(jax.jit(mlp.apply))(mlp.params, jax.ShapeDtypeStruct((n, 4), jnp.float32))
    assert str(exported.out_avals[0].shape) == "(n, 2)"
    again = export.deserialize(exported.serialize())
    for count in (1, 3, 8):
        x = RNG.normal(size=(count, 4)).astype(np.float32)
        close(again.call(mlp.params, x), expected(x))


def test_an_exported_model_may_return_a_symbolic_shape():
    found = load(model("main (float[N,4] x) => (int64[2] s) { s = Shape(x) }"))
    (n,) = export.symbolic_shape("n")
    exported = export.export(jax.jit(lambda x: found.apply({}, x)))(jax.ShapeDtypeStruct((n, 4), jnp.float32))
    np.testing.assert_array_equal(exported.call(X), [3, 4])


# Static inputs and outputs

STATIC = model("main (float[N] x, int64[K] s) => (float[M] y) { t = Identity(s) y = Reshape(x, t) }")


def test_static_inputs_key_the_compilation_by_value(monkeypatch):
    found = load(STATIC)
    traces = count_traces(monkeypatch)
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [2, 3], [-1], [3, 2]):
        assert found(x, np.int64(shape)).shape == x.reshape(shape).shape
    assert len(traces) == 3
    for given in ([2, 3], (2, 3), jnp.array([2, 3])):
        assert found(x, given).shape == (2, 3)
    assert len(traces) == 3
    assert found.apply({}, x, [3, 2]).shape == (3, 2)
    assert jax.jit(lambda x: found(x, np.int64([3, 2])))(x).shape == (3, 2)


def test_static_outputs_are_numpy_in_64_bits():
    text = "main (float[A,B] x) => (int64[2] s, float[A,B] y, int64 n) { s = Shape(x) y = Relu(x) n = Size(x) }"
    found = load(model(text))
    for call in (found, lambda x: found.apply({}, x)):
        s, y, n = call(X)
        assert isinstance(s, np.ndarray)
        assert isinstance(y, jax.Array)
        assert (s.dtype, s.tolist()) == (np.int64, [3, 4])
        assert (n.dtype, n.shape, int(n)) == (np.int64, (), 12)


def test_an_initializer_that_is_an_input_too_is_its_default():
    text = "main (float[N] x, float[1] w, int64[K] s) => (float[M] y) { z = Mul(x, w) y = Reshape(z, s) }"
    found = load(model(text, initializers={"w": np.float32([2]), "s": np.int64([-1])}))
    x = np.float32([1, 2])
    assert [v.name for v in found.inputs] == ["x"]
    np.testing.assert_array_equal(found(x), [2, 4])
    np.testing.assert_array_equal(found(x, w=np.float32([3])), [3, 6])
    np.testing.assert_array_equal(found(x, s=[2, 1]), [[2], [4]])


def test_strings_pass_through_as_numpy():
    found = load(model("main (string[N] x) => (string[N] y) { y = Identity(x) }"))
    for given in (np.array(["a", "b"], object), np.array(["a", "b"]), ["a", "b"]):
        result = found(given)
        assert isinstance(result, np.ndarray)
        assert result.tolist() == ["a", "b"]


# 64 bits


def test_int64_inputs_while_x64_is_off():
    found = load(model("main (int64[N] x) => (int64[N] y) { y = Add(x, x) }"), x64=False)
    assert found(np.int64([2**30 - 1])).tolist() == [2**31 - 2]
    with pytest.raises(OutOfRangeError, match=r"the int64 value -2147483649 does not fit int32.*turn it on"):
        found(np.int64([1, -(2**31) - 1]))


def test_an_int64_parameter_that_does_not_fit_is_told_and_never_cut():
    weights = np.arange(2000)
    weights[7] = 2**40
    proto = model("main (int64[N] x) => (int64[M] y) { y = Add(x, w) }", initializers={"w": weights})
    found = load(proto, x64=False)
    with pytest.raises(OutOfRangeError, match="the int64 value 1099511627776 does not fit int32"):
        found(np.int64([1]))
    with jax.enable_x64(True):
        wide = load(model("main (int64[N] x) => (int64[M] y) { y = Add(x, w) }", initializers={"w": weights}))
        assert int(wide(np.int64([1]))[7]) == 2**40 + 1


def test_the_end_of_a_slice_is_no_number():
    end = np.int64([np.iinfo(np.int64).max])
    found = load(
        model("main (float[N] x) => (float[M] y) { y = Slice(x, a, b) }", initializers={"a": np.int64([1]), "b": end})
    )
    np.testing.assert_array_equal(found(np.float32([1, 2, 3])), [2, 3])


# What is made at load


def test_tensors_that_nodes_make_are_parameters():
    found = load(
        build(
            node("ConstantOfShape", ["k"], ["w"], value=tensor(np.float32([0.5]), "")),
            node("Constant", [], ["v"], value=tensor(np.float32([[1, 2, 3]]), "")),
            node("Mul", ["x", "w"], ["a"]),
            node("Add", ["a", "v"], ["y"]),
            initializers=[tensor([3], "k")],
        )
    )
    assert {name: p.shape for name, p in found.params.items()} == {"w": (3,), "v": (1, 3)}
    np.testing.assert_array_equal(found(np.ones((1, 3), np.float32)), [[1.5, 2.5, 3.5]])
    assert [n.operator.name for n in found.graph.nodes] == ["Mul", "Add"]


def test_random_operators_take_a_key():
    text = "main (float[N] x) => (float[N] y) { y = Dropout(x, r, t) }"
    found = load(model(text, initializers={"r": np.float32(0.5), "t": np.bool_(True)}))
    x = np.ones(64, np.float32)
    first, again, other = (found(x, rng=jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert set(np.unique(first)) == {0, 2}


def test_nothing_survives_between_calls(mlp):
    close(mlp(X), expected(X))
    close(mlp.apply({**mlp.params, "b1": jnp.zeros(5)}, X), np.maximum(X @ W1, 0) @ W2)
    close(mlp(X), expected(X))


def test_names_of_nodes_reach_the_program():
    found = load(build(node("Relu", ["x"], ["y"], node_name="encoder/relu")))
    text = jax.jit(found.apply).lower({}, np.ones((1, 3), np.float32)).as_text(debug_info=True)
    assert "encoder/relu" in text


# Listing


def test_the_listing(mlp):
    assert mlp.show().splitlines() == [
        "model main · opset ai.onnx 18 · tests",
        "  6 nodes, 3 parameters with 35 elements",
        "  in   x: float32[N, 4]",
        "  out  y: float32[N, 2]",
        "  a = MatMul(x, w1)",
        "  b = Add(a, b1)",
        "  c = Relu(b)",
        "  s = Shape(c, start=0)",
        "  d = Reshape(c, s, allowzero=0)",
        "  y = MatMul(d, w2)",
    ]
    assert repr(mlp) == "<jaxops.Model 'main': (x: float32[N, 4]) → (y: float32[N, 2]), 6 nodes>"


def test_the_listing_shows_attributes_and_subgraphs():
    text = """main (float[N] x, bool c) => (float[M] y) {
        a = LeakyRelu<alpha=0.25>(x) b = Transpose<perm=[0]>(a) k = Cast<to=1>(b)
        y = If(c) <
            then_branch = t () => (float[A] p) { p = Relu(k) }, else_branch = e () => (float[B] q) { q = Neg(k) }
        >
    }"""
    lines = load(model(text)).show()
    assert "a = LeakyRelu(x, alpha=0.25)" in lines
    assert "b = Transpose(a, perm=[0])" in lines
    assert "then_branch:\n" in lines
    assert "p = Relu(k)" in lines


def test_an_initializer_that_shape_arithmetic_uses_can_be_given_anew():
    text = "main (float[N] x, int64[2] s) => (float[A, B] y) { c = ConstantOfShape(s) y = Add(c, x) }"
    found = load(model(text, initializers={"s": np.int64([2, 3])}))
    assert found(np.ones(3, np.float32)).shape == (2, 3)
    assert found(np.ones(3, np.float32), s=np.int64([5, 3])).shape == (5, 3)


def test_before_ir_version_4_an_initializer_is_no_input():
    text = "main (float[N] x, float[3] w) => (float[N] y) { y = Add(x, w) }"
    proto = model(text, initializers={"w": np.ones(3, np.float32)})
    proto.ir_version = 3
    found = load(proto)
    assert list(found.params) == ["w"]
    with pytest.raises(TypeError, match="the model has no input 'w'"):
        found(np.ones(3, np.float32), w=np.ones(3, np.float32))


CHAIN = """main (float[B, 3, H, W] x) => (float[P, Q] y, int64[4] s) {
    s = Shape(x)
    i = Constant<value_int = 0>()
    n = Gather(s, i)
    axes = Constant<value_ints = [0]>()
    first = Unsqueeze(n, axes)
    rest = Constant<value_ints = [-1]>()
    target = Concat<axis = 0>(first, rest)
    y = Reshape(x, target)
}"""


def test_the_chain_of_exported_models_at_symbolic_sizes():
    found = load(model(CHAIN))
    y, s = found(np.ones((2, 3, 4, 5), np.float32))
    assert y.shape == (2, 60)
    assert isinstance(s, np.ndarray)
    specs = export.symbolic_args_specs((jax.ShapeDtypeStruct((1, 3, 1, 1), np.float32),), "b, 3, h, w")
    for call in (lambda x: found.apply({}, x), lambda x: found(x)):
        y, s = export.export(jax.jit(call))(*specs).call(jnp.ones((2, 3, 4, 5)))
        assert y.shape == (2, 60)
        assert s.tolist() == [2, 3, 4, 5]


def test_static_outputs_are_never_cut():
    text = (
        "main (float[N] x) => (int64 y, int64[2] z) { i = Constant<value_int = 0>() y = Gather(w, i) z = Identity(w) }"
    )
    weights = {"w": np.int64([5_000_000_000, 1])}
    x = np.ones((2, 2), np.float32)
    for auto in (load(model(text, initializers=weights)), jax.jit(load(model(text, initializers=weights)))):
        y, z = map(np.asarray, auto(x[0]))
        assert y == z[0] == 5_000_000_000
    found = load(model(text, initializers=weights), x64=False)
    y, z = found(x[0])
    assert y == z[0] == 5_000_000_000
    for call in (lambda: jax.jit(found.apply)({}, x[0]), lambda: jax.jit(found)(x[0]), lambda: jax.vmap(found)(x)):
        with pytest.raises(OutOfRangeError, match="the int64 value 5000000000 does not fit int32"):
            call()


def test_parameters_first_read_inside_a_trace_outlive_it(mlp):
    inside = jax.jit(lambda x: mlp(x))(X)
    close(mlp(X), inside)


def test_integers_are_parameters_only_when_they_look_like_quantised_weights():
    text = "main (int32[N] i) => (float[M] y, int8[K, L] q) { y = Gather(w, t) q = Gather(b, i) }"
    values = {"w": np.ones(9, np.float32), "t": np.zeros(2000, np.int32), "b": np.zeros((40, 50), np.int8)}
    found = load(model(text, initializers=values))
    assert sorted(found.params) == ["b", "w"]


BRANCHES = """<ir_version: 9, opset_import: ["": 18]>
main (float[3, 3] x, bool c) => (float[3, 3] y) {
    y = If (c) <
        then_branch = g1 () => (float[3, 3] a) <float[3, 3] w = {1,2,3,4,5,6,7,8,9}> { a = MatMul(x, w) },
        else_branch = g2 () => (float[3, 3] b) <float[3] v = {1,2,3}, int64[2] s = {1, 3}> {
            r = Reshape(v, s)
            b = Add(x, r)
        }
    >
}"""


def test_weights_of_subgraphs_are_parameters():
    found = load(parser.parse_model(BRANCHES))
    assert {name: p.shape for name, p in found.params.items()} == {"w": (3, 3), "v": (3,)}
    x = np.eye(3, dtype=np.float32)
    np.testing.assert_array_equal(found(x, np.array(True)), np.arange(1, 10).reshape(3, 3))
    np.testing.assert_array_equal(found(x, np.array(False)), x + np.float32([1, 2, 3]))
    grads = jax.grad(lambda params: found.apply(params, x, np.array(False)).sum())(found.params)
    np.testing.assert_array_equal(grads["v"], [3, 3, 3])
    np.testing.assert_array_equal(grads["w"], np.zeros((3, 3)))


def test_inputs_may_have_the_names_of_parameters_of_the_call():
    found = load(model("main (float[N] self, float[N] params) => (float[N] y) { y = Sub(self, params) }"))
    values = {"self": np.float32([3]), "params": np.float32([1])}
    np.testing.assert_array_equal(found(**values), [2])
    np.testing.assert_array_equal(found.apply({}, **values), [2])
