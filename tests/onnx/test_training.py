"""The option `training` of `load`: the expected values are NumPy's formulas of BatchNormalization and Dropout."""

import pickle

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import jaxops.onnx
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.tools.generate.decoder import decoder

MOMENTUM, KEY = 0.75, jax.random.key(0)
X = np.random.RandomState(1).randn(20, 2, 3).astype(np.float32)


def _proto(opset=17, channels=2, trains=False, dropout=True, twice=False):
    random = np.random.RandomState(0)
    parameters = {name: random.rand(channels) + 0.5 for name in ("scale", "bias", "mean", "var")}
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in parameters.items()]
    attributes = {"training_mode": int(trains)} if opset >= 14 else {"is_test": int(not trains)} if opset < 7 else {}
    outputs = ["y", "next_mean", "next_var"] if trains else ["y"]
    make = helper.make_node
    nodes = [make("BatchNormalization", ["x", *parameters], outputs, momentum=MOMENTUM, **attributes)]
    if twice:
        nodes.append(make("BatchNormalization", ["y", *parameters], ["y2"], momentum=MOMENTUM, **attributes))
    if dropout and opset < 12:
        nodes.append(make("Dropout", ["y"], ["z"], ratio=0.5))
    elif dropout:
        tensors += [
            numpy_helper.from_array(np.float32(0.5), "ratio"),
            numpy_helper.from_array(np.array(trains), "mode"),
        ]
        nodes.append(make("Dropout", ["y", "ratio", "mode"], ["z"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", channels, 3])
    y = helper.make_tensor_value_info("z" if dropout else "y", TensorProto.FLOAT, ["batch", channels, 3])
    graph = helper.make_graph(nodes, "main", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _text(body, inner=""):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18, "own": 1]> {body} {inner}')


def _along(vector):
    return np.asarray(vector)[None, :, None]


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("opset", [6, 7, 9, 13, 14, 15, 22])
def test_statistics_are_those_of_the_population(opset, trains):
    model = jaxops.onnx.load(_proto(opset, trains=trains, dropout=False), training=True)
    params = model.params
    outputs, statistics = jax.jit(model.apply)(params, X)
    mean, var = X.mean((0, 2)), X.var((0, 2))
    expected = _along(params["scale"]) * (X - _along(mean)) / np.sqrt(_along(var) + 1e-5) + _along(params["bias"])
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    assert set(statistics) == {"mean", "var"}
    for name, new in (("mean", mean), ("var", var)):
        following = np.asarray(params[name]) * MOMENTUM + new * (1 - MOMENTUM)
        np.testing.assert_allclose(statistics[name], following, rtol=1e-5)
    assert model.trainable == {"scale": True, "bias": True, "mean": False, "var": False}


@pytest.mark.parametrize("opset", [6, 7, 10, 13, 22])
def test_dropout_draws(opset):
    model = jaxops.onnx.load(_proto(opset), training=True)
    tensors, _ = model(X, rng=KEY, outputs=["y", "z"])
    kept = np.asarray(tensors.z) != 0
    assert 0.3 < kept.mean() < 0.7
    np.testing.assert_allclose(tensors.z[kept], 2 * np.asarray(tensors.y)[kept], rtol=1e-6)
    assert (np.asarray(model(X, rng=jax.random.key(1))[0] != 0) != kept).any()
    with pytest.raises(ArgumentError, match="training needs a random key"):
        model(X)


def test_one_channel():
    x = X[:, :1]
    model = jaxops.onnx.load(_proto(channels=1, dropout=False), training=True)
    _, statistics = model(x)
    expected = np.asarray(model.params["mean"]) * MOMENTUM + x.mean() * (1 - MOMENTUM)
    np.testing.assert_allclose(statistics["mean"], [expected.item()], rtol=1e-5)


def test_all_ways_to_call_agree():
    model = jaxops.onnx.load(_proto(), training=True)
    prepare, run = model.specialize(X, rng=KEY)
    expected = model.apply(model.params, X, rng=KEY)
    found = [model(X, rng=KEY) for _ in range(3)]
    found += [jax.jit(model.apply)(model.params, X, rng=KEY), run(prepare(model.params), X, rng=KEY)]
    found += [pickle.loads(pickle.dumps(model))(X, rng=KEY), jax.jit(lambda m: m(X, rng=KEY))(model)]
    for outputs, statistics in found:
        np.testing.assert_allclose(outputs, expected[0], rtol=1e-5, atol=1e-6)
        assert statistics.keys() == expected[1].keys()
        for name in statistics:
            np.testing.assert_allclose(statistics[name], expected[1][name], rtol=1e-6)
    every, statistics = model(X, rng=KEY, outputs="*")
    np.testing.assert_allclose(every["z"], expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(statistics["mean"], expected[1]["mean"], rtol=1e-6)


def test_repeated_calls_without_a_key_return_statistics():
    model = jaxops.onnx.load(_proto(dropout=False), training=True)
    results = [model(X) for _ in range(3)]
    assert [set(statistics) for _, statistics in results] == [{"mean", "var"}] * 3


def test_gradient_passes_the_statistics_of_the_batch():
    model = jaxops.onnx.load(_proto(dropout=False), training=True)

    def loss(x):
        outputs, statistics = model.apply(model.params, x)
        return (outputs[0] ** 3).sum(), statistics

    gradient, statistics = jax.grad(loss, has_aux=True)(X)
    # A shift of a channel changes nothing.
    np.testing.assert_allclose(gradient.sum((0, 2)), 0, atol=1e-3)
    assert set(statistics) == {"mean", "var"}


def test_structures_name_training():
    trains, infers = (jaxops.onnx.load(_proto(dropout=False), training=training) for training in (True, False))
    structures = [jax.tree.structure(model) for model in (trains, infers)]
    assert structures[0] != structures[1]
    assert "training True" in str(structures[0])
    assert "training False" in str(structures[1])


@pytest.mark.parametrize("opset", [6, 9, 13, 17])
@pytest.mark.parametrize("trains", [False, True])
def test_saves_a_file_for_inference(tmp_path, opset, trains):
    model = jaxops.onnx.load(_proto(opset, trains=trains), training=True)
    _, statistics = model(X, rng=KEY)
    params = {**model.params, **statistics}
    model.save(tmp_path / "tuned.onnx", params)
    onnx.checker.check_model(onnx.load(tmp_path / "tuned.onnx"))
    outputs = jaxops.onnx.load(tmp_path / "tuned.onnx")(X)
    mean, var, scale, bias = (_along(params[name]) for name in ("mean", "var", "scale", "bias"))
    np.testing.assert_allclose(outputs, scale * (X - mean) / np.sqrt(var + 1e-5) + bias, rtol=1e-4, atol=1e-5)


def test_names_of_modules():
    model = jaxops.onnx.load(_proto(dropout=False), training=True, names="module")
    assert model(X)[1].keys() <= model.params.keys()


def test_model_without_such_operators():
    with pytest.raises(ArgumentError, match=r"TrainingMode.TRAINING, do_constant_folding=False"):
        jaxops.onnx.load(_text("main (float[N] x) => (float[N] y) { y = Relu(x) }"), training=True)


def test_option_is_a_boolean():
    with pytest.raises(ArgumentError, match="`training` is 1; it must be True or False"):
        jaxops.onnx.load(_proto(), training=1)


def test_dropout_in_a_branch_and_a_function_draws():
    branches = (
        "then_branch = g () => (float[N] a) { a = Dropout(x) }, else_branch = h () => (float[N] b) { b = Neg(x) }"
    )
    branch = f"main (bool c, float[N] x) => (float[N] y) {{ y = If (c) <{branches}> }}"
    called = "main (float[N] x) => (float[N] y) { y = own.f(x) }"
    function = '<domain: "own", opset_import: ["": 18]> f (x) => (y) { y = Dropout(x) }'
    ones = np.ones(200, np.float32)
    for proto, inputs in ((_text(branch), (True, ones)), (_text(called, function), (ones,))):
        outputs, statistics = jaxops.onnx.load(proto, training=True)(*inputs, rng=KEY)
        assert set(np.asarray(outputs).tolist()) == {0.0, 2.0}
        assert statistics == {}


def test_batch_normalization_in_a_function_is_refused():
    called = "main (float[N, 2] x, float[2] p) => (float[N, 2] y) { y = own.f(x, p) }"
    function = '<domain: "own", opset_import: ["": 18]> f (x, p) => (y) { y = BatchNormalization(x, p, p, p, p) }'
    with pytest.raises(UnsupportedError, match="is in a function, a branch or a loop"):
        jaxops.onnx.load(_text(called, function), training=True)


def test_other_statistics_are_refused():
    proto = _text("main (float[N, 2] x, float[2] p) => (float[N, 2] y) { y = BatchNormalization(x, p, p, p, p) }")
    with pytest.raises(UnsupportedError, match=r"'p' of .* are no initializer"):
        jaxops.onnx.load(proto, training=True)
    with pytest.raises(UnsupportedError, match=r"belong to another node, too; .* tied=False"):
        jaxops.onnx.load(_proto(twice=True), training=True)
    proto = _proto(trains=True)
    proto.graph.output.append(helper.make_tensor_value_info("next_mean", TensorProto.FLOAT, [2]))
    with pytest.raises(UnsupportedError, match="has statistics that other nodes or outputs read"):
        jaxops.onnx.load(proto, training=True)


def test_decoder_needs_outputs_alone():
    with pytest.raises(UnsupportedError, match="decoder: the model was loaded with training=True"):
        decoder(jaxops.onnx.load(_proto(), training=True), length=4)


@pytest.mark.parametrize("caller", ["export", "compare", "to_python"])
def test_callers_that_need_outputs_alone(caller, tmp_path):
    model = jaxops.onnx.load(_proto(), training=True)
    arguments = {"export": (), "compare": (X,), "to_python": (tmp_path / "net",)}[caller]
    with pytest.raises(UnsupportedError, match=f"{caller}: the model was loaded with training=True; save it"):
        getattr(model, caller)(*arguments)


@pytest.mark.parametrize("more", [[], ["", "ratio", "mode"]])
def test_the_dropout_of_microsoft_draws(more, tmp_path):
    node = helper.make_node("BiasDropout", ["x", "b", *more], ["y"], domain="com.microsoft")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 50]) for name in "xy")
    given = {"b": np.ones(50, np.float32), "ratio": np.float32(0.5), "mode": np.True_}
    weights = [numpy_helper.from_array(np.asarray(given[name]), name) for name in ("b", *more) if name]
    graph = helper.make_graph([node], "main", [x], [y], weights)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=domains)
    model, x = jaxops.onnx.load(proto, training=True), np.ones((4, 50), np.float32)
    y, statistics = jax.jit(model.apply)(model.params, x, rng=jax.random.key(0))
    assert statistics == {}
    assert set(np.unique(y)) == {0.0, 4.0}
    model.save(tmp_path / "saved.onnx")
    np.testing.assert_array_equal(jaxops.onnx.load(tmp_path / "saved.onnx")(x), x + 1)
