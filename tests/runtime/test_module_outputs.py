"""`outputs=` with the path of a module, and with every tensor."""

import functools

import jax
import numpy as np
import pytest
from onnx import TensorProto, helper

import jaxops.onnx
from jaxops.errors import SignatureError

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def net():
    """blocks.0: Neg, Exp (returned); blocks.1: Split, of which both pieces are read."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="/blocks.0/neg/Neg"),
        helper.make_node("Exp", ["a"], ["b"], name="/blocks.0/exp/Exp"),
        helper.make_node("Split", ["b"], ["left", "right"], name="/blocks.1/Split", axis=1, num_outputs=2),
        helper.make_node("Add", ["left", "right"], ["y"], name="/head/Add"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [2, 4])], [value("y", TensorProto.FLOAT, [2, 2])]
    )
    return jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


def test_a_module_stands_for_what_it_returns():
    model = net()
    for run in (model, functools.partial(model.apply, model.params)):
        found = [
            np.asarray(jax.jit(functools.partial(run, outputs=[name]))(X)) for name in ("blocks.0", "blocks.0.exp", "b")
        ]
        assert all(x.tolist() == found[0].tolist() for x in found)
        np.testing.assert_allclose(found[0], np.exp(-X), rtol=1e-6)
        both = run(X, outputs=["blocks.0.neg", "head"])
        np.testing.assert_array_equal(both[0], -X)
        np.testing.assert_array_equal(both[1], run(X))


def test_a_module_of_several_tensors_and_an_unknown_one():
    with pytest.raises(
        SignatureError, match=r"the module 'blocks.1' returns several tensors; name one of \['left', 'r"
    ):
        net()(X, outputs=["blocks.1"])
    with pytest.raises(
        SignatureError, match=r"`outputs`: the model has no tensor or module 'block\.0'; similar: 'blocks\.0'"
    ):
        net()(X, outputs=["block.0"])


def test_every_tensor_is_a_dictionary():
    model = net()
    found = model(X, outputs="*")
    assert list(found) == ["a", "b", "left", "right", "y"]
    again = jax.jit(lambda x: model.apply(model.params, x, outputs="*"))(X)
    for name in found:
        np.testing.assert_allclose(found[name], model(X, outputs=[name]), rtol=1e-6)
        np.testing.assert_allclose(found[name], again[name], rtol=1e-6)
    np.testing.assert_array_equal(model(X), found["y"])
