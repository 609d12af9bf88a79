"""Bits of 64-bit numbers, word by word, in programs for any number of them, too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper

import jaxops as jo
import jaxops.onnx
from jaxops.ops.common.words import from_words, words_of

NUMBERS = np.array([0.0, -0.0, 1.5, np.nan, np.inf, 5e-324, -(2.0**52) - 1] * 300)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64, np.float32, np.int32])
def test_words(dtype, x64):
    x = NUMBERS.view(dtype)
    words = jax.jit(words_of)(jnp.asarray(x))
    np.testing.assert_array_equal(np.stack(words, -1).reshape(-1), x.view(np.uint32))
    assert np.asarray(jax.jit(lambda words: from_words(words, dtype))(words)).tobytes() == x.tobytes()


def of_any_number(fn, x):
    (spec,) = jax.export.symbolic_args_specs([x], ["b, ..."])
    return jax.export.export(jax.jit(fn))(spec).call


def test_complex_numbers_of_any_number(x64):
    numbers = NUMBERS.view(np.complex64)
    for data, to in ((numbers, np.uint64), (numbers.view(np.uint64), np.complex64)):
        call = of_any_number(lambda x, to=to: jo.bit_cast(x, to=to), data)
        for part in (data, data[:3]):
            assert np.asarray(call(part)).tobytes() == part.tobytes()


def test_trees_of_float64_for_any_batch(x64):
    """They compare float64 thresholds, which lie in a table of 32-bit words."""
    near = 1 + 2.0**-40
    attributes = {
        "nodes_splits": np.array([1.0, near]),
        "nodes_featureids": np.array([0, 1]),
        "nodes_modes": np.zeros(2, np.uint8),
        "nodes_truenodeids": np.array([1, 0]),
        "nodes_trueleafs": np.array([0, 1]),
        "nodes_falsenodeids": np.array([2, 1]),
        "nodes_falseleafs": np.array([1, 1]),
        "tree_roots": np.array([0]),
        "leaf_targetids": np.zeros(3, int),
        "leaf_weights": np.array([1.0, 2.0, 4.0]),
        "n_targets": 1,
    }
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        **{
            name: helper.make_tensor(name, kind, v.shape, v)
            if (kind := {"f": TensorProto.DOUBLE, "u": TensorProto.UINT8}.get(np.asarray(v).dtype.kind))
            else v
            for name, v in attributes.items()
        },
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["b", 2])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["b", 1])],
    )
    loaded = jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 5)]))
    program = loaded.export()
    rows = np.array([[0.5, near], [0.5, near + 2.0**-50], [1 + 2.0**-50, 0], [np.nan, 0]] * 400)
    for x in (rows, rows[:1]):
        wanted = np.select([~(x[:, 0] <= 1), x[:, 1] <= near], [4.0, 1.0], 2.0)[:, None]
        np.testing.assert_array_equal(program.call(loaded.params, x), wanted)
