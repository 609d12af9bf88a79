"""The interface `onnx.backend.base`."""

import numpy as np
import onnx
import pytest
from onnx import helper, parser

import jaxops.onnx.backend as backend
from jaxops.errors import ArgumentError

ADD = parser.parse_model(
    """
    <ir_version: 9, opset_import: ["": 18]>
    sums (int64[N] x, int64[N] y) => (int64[N] z, int64[1] n) { z = Add (x, y)  n = Shape (z) }
    """
)
BIG = np.array([2**40, 1])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("inputs", [[BIG, BIG], {"y": BIG, "x": BIG}], ids=["by position", "by name"])
def test_prepare_and_run_keep_64_bits(compiled, inputs):
    z, n = backend.prepare(ADD, compiled=compiled).run(inputs)
    assert z.dtype == n.dtype == np.int64
    np.testing.assert_array_equal(z, [2**41, 2])
    np.testing.assert_array_equal(n, [2])


def test_run_model():
    z, _ = backend.run_model(ADD, [BIG, BIG])
    np.testing.assert_array_equal(z, [2**41, 2])


def test_run_node_at_an_opset():
    node = helper.make_node("Flatten", ["x"], ["y"], axis=2)
    (y,) = backend.run_node(node, [np.zeros((2, 3, 4), np.float32)], opset_version=9)
    assert y.shape == (6, 4)
    node = helper.make_node("Flatten", ["x"], ["y"], axis=-1)
    with pytest.raises(ValueError, match="negative axes are allowed from opset 11 on"):
        backend.run_node(node, [np.zeros((2, 3, 4), np.float32)], opset_version=9)


def test_run_node_with_several_outputs():
    node = helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)
    a, b = backend.run_node(node, [np.arange(3)])
    assert (a.tolist(), b.tolist()) == ([0, 1], [2])


def test_it_is_a_backend_of_the_standard():
    assert issubclass(backend.JaxopsBackend, onnx.backend.base.Backend)
    assert backend.is_compatible(ADD)


def test_devices():
    assert backend.supports_device("CPU")
    assert backend.supports_device("CPU:0")
    assert not backend.supports_device("CPU:99")
    assert not backend.supports_device("TPU")
    with pytest.raises(ArgumentError, match="device 'TPU': a device is CPU or CUDA"):
        backend.prepare(ADD, "TPU")
    with pytest.raises(ArgumentError, match=r"device 'CPU:99': JAX has . CPU devices"):
        backend.prepare(ADD, "CPU:99")
    with pytest.raises(ArgumentError, match=r"prepare: unknown options \['fast'\]"):
        backend.prepare(ADD, fast=True)
