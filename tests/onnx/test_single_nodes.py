"""Single nodes that once went wrong beside onnxruntime and the reference evaluator; others in `test_random_nodes`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset, build, node
from peer import runtime

import jaxops.onnx

ZERO = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"])
def test_a_reduction_of_a_constant_scalar(op):
    """NumPy gives bare scalars for 0-d operands; a constant float is static, so this is compiled with one."""
    for constant in (node("Constant", [], ["c"], value_float=-2.0), node("Constant", [], ["i"], value_int=-2)):
        last = [node("Cast", ["d"], ["r"], to=1)] if constant.output[0] == "i" else [node("Identity", ["d"], ["r"])]
        nodes = [constant, node(op, [constant.output[0]], ["d"]), *last, node("Add", ["x", "r"], ["y"])]
        model = jaxops.onnx.load(build(*nodes))
        expected = {"ReduceMean": -2, "ReduceLogSumExp": -2, "ReduceSumSquare": 4}.get(op, 2)
        assert model(ZERO).tolist() == (ZERO + expected).tolist()
        assert model.apply(model.params, ZERO).tolist() == (ZERO + expected).tolist()


@pytest.mark.parametrize("align", [0, 1])
def test_an_affine_grid_of_one_image_and_of_axes_of_one_element(align):
    theta = np.random.default_rng(1).normal(size=(2, 2, 3)).astype(np.float32)
    for n, h, w in ((1, 2, 3), (2, 2, 2), (1, 1, 3), (2, 1, 1)):
        found = at_opset("AffineGrid", 20, theta[:n], np.array([n, 1, h, w]), align_corners=align)[0]
        places = [np.linspace(-1, 1, d) if align and d > 1 else (2 * np.arange(d) + 1) / d - 1 for d in (h, w)]
        y, x = np.meshgrid(*places, indexing="ij")
        expected = np.einsum("nij,hwj->nhwi", theta[:n], np.stack([x, y, np.ones_like(x)], -1))
        np.testing.assert_allclose(found, expected, atol=1e-6)
        if min(h, w) > 1:
            theirs = runtime("AffineGrid", [theta[:n], np.array([n, 1, h, w])], 20, align_corners=align)[0]
            np.testing.assert_allclose(found, theirs, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_cross_entropy_of_bfloat16(reduction):
    x = np.random.default_rng(2).normal(size=(4, 3)).astype(jnp.bfloat16)
    labels, weights = np.array([0, 2, 1, 2]), np.array([0.5, 1, 2], jnp.bfloat16)
    log = np.array(jax.nn.log_softmax(x.astype(np.float32)))
    terms, factors = -log[np.arange(4), labels], weights.astype(np.float32)[labels]
    expected = (terms * factors).sum() / factors.sum() if reduction == "mean" else terms * factors
    for opset in (13, 22):
        loss, probability = at_opset(
            "SoftmaxCrossEntropyLoss", opset, *map(jnp.asarray, (x, labels, weights)), n_outputs=2, reduction=reduction
        )
        assert loss.dtype == probability.dtype == jnp.bfloat16
        np.testing.assert_allclose(loss.astype(np.float32), expected, rtol=1e-2)
        np.testing.assert_allclose(probability.astype(np.float32), log, rtol=1e-2)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_with_a_stride_beyond_the_kernel_crops_nothing(auto_pad):
    """No two engines agree; here windows start at 0, stride, 2·stride, …, and there are ceil(size / stride) of them."""
    x = np.arange(1.0, 9).astype(np.float32).reshape(1, 1, 8)
    given = {"auto_pad": auto_pad, "strides": [3]}
    assert at_opset("MaxPool", 12, x, kernel_shape=[1], **given)[0].ravel().tolist() == [1, 4, 7]
    assert at_opset("AveragePool", 12, x, kernel_shape=[2], **given)[0].ravel().tolist() == [1.5, 4.5, 7.5]
    assert at_opset("Conv", 12, x, np.ones((1, 1, 1), np.float32), **given)[0].ravel().tolist() == [1, 4, 7]


def test_nan_in_a_window_and_in_a_reduced_axis():
    """Both give NaN, with dilations and without; onnxruntime skips it in some places of a window."""
    x = np.array([[[1, np.nan, 3, 2, 5, 4]]], np.float32)
    for dilation, expected in ((1, [True, True, False, False, False]), (2, [False, True, False, False])):
        for n_outputs in (1, 2):
            y = at_opset("MaxPool", 12, x, kernel_shape=[2], dilations=[dilation], n_outputs=n_outputs)[0]
            assert np.isnan(y).ravel().tolist() == expected
    for op in ("ReduceMax", "ReduceMin", "GlobalMaxPool"):
        assert np.isnan(at_opset(op, 13, x)[0]).all()
