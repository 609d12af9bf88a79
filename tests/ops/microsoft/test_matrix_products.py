"""Fused products, convolutions and pools, distances and inverses of com.microsoft."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare, ours
from onnx import helper

import jaxops.onnx
from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(9)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def swapped(x):
    return np.moveaxis(x, 1, -1).copy()


A, B, C = f32(3, 4), f32(4, 5), f32(5)
NAMED = [
    ("Relu", {}),
    ("Tanh", {}),
    ("Sigmoid", {}),
    ("LeakyRelu", {"alpha": 0.2}),
    ("Elu", {"alpha": 0.5}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("Selu", {"alpha": 0.3, "gamma": 0.4}),
    ("ThresholdedRelu", {"alpha": 0.3}),
    ("Celu", {"alpha": 0.3}),
]


@pytest.mark.parametrize(("name", "given"), NAMED, ids=[n for n, _ in NAMED])
def test_fused_gemm(name, given):
    extra = {f"activation_{key}": value for key, value in given.items()}
    agree("FusedGemm", [A, B, C], activation=name, alpha=0.5, beta=2.0, **extra)
    agree("FusedGemm", [A.T.copy(), B.T.copy()], activation=name, transA=1, transB=1, **extra)


def test_fused_products_under_jit():
    agree("FusedGemm", [f32(64, 50), f32(50, 70), f32(70)], compiled=True, activation="Relu", rtol=1e-4)
    agree("TransposeMatMul", [f32(2, 4, 3), f32(2, 5, 4)], transA=1, transB=1, alpha=0.5)
    agree("Inverse", [f32(2, 4, 4) + 4 * np.eye(4, dtype=np.float32)], compiled=True, atol=1e-4)
    agree("CDist", [f32(30, 10), f32(40, 10)], compiled=True, metric="euclidean")
    agree("CDist", [f32(3, 2), f32(4, 2)])


def test_products_without_a_cpu_kernel():
    np.testing.assert_allclose(ms.fused_gemm(A, B, C), A @ B + C, rtol=1e-5, atol=1e-5)
    y = A @ B
    np.testing.assert_allclose(ms.fused_gemm(A, B, activation="Silu"), y * sigmoid(y), rtol=1e-4, atol=1e-5)
    (found,) = ours("GemmFastGelu", [A, B, C])
    np.testing.assert_allclose(found, ms.fast_gelu((A @ B).astype(np.float32), C), rtol=1e-4, atol=1e-5)
    (found,) = ours(
        "FusedMatMulActivation", [A.T, B], transA=1, alpha=0.5, activation="LeakyRelu", activation_alpha=0.1
    )
    np.testing.assert_allclose(found, np.where(y > 0, y, 0.1 * y) * 0.5, rtol=1e-4, atol=1e-5)
    (found,) = ours("FusedMatMulActivation", [A, B], activation="Softmax", activation_axis=0)
    np.testing.assert_allclose(found, np.exp(y) / np.exp(y).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_16_bit_sums_are_wider(dtype):
    ones = jnp.ones((1, 4096), dtype)
    assert ms.gemm_fast_gelu(ones, ones.T).tolist() == [[4096]]
    assert ms.cdist(ones, -ones).tolist() == [[16384]]
    assert ms.inverse(jnp.eye(2, dtype=dtype) * 4).dtype == dtype


def sparse_model(kind=np.float32, **attributes):
    dense = np.array([[0, 2, 0, 0], [0, 0, 0, 3], [4, 0, 0, 0]], kind)
    places = np.flatnonzero(dense)
    values = onnx.numpy_helper.from_array(dense.reshape(-1)[places], "a")
    sparse = helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(places, "ai"), dense.shape)
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attributes)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("b", element, [None, None])],
        [helper.make_tensor_value_info("y", element, None)],
        sparse_initializer=[sparse],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), dense


@pytest.mark.parametrize("attributes", [{}, {"transA": 1}, {"transB": 1, "alpha": 0.5}], ids=str)
def test_sparse_to_dense_matmul(attributes):
    model, dense = sparse_model(**attributes)
    left = dense.T if "transA" in attributes else dense
    b = f32(left.shape[1], 5)
    given = b.T.copy() if "transB" in attributes else b
    found = jaxops.onnx.load(model)(given)
    np.testing.assert_allclose(found, left @ b * attributes.get("alpha", 1), rtol=1e-5)
    # onnxruntime's Python package takes a sparse operand as an initializer only, and makes it dense for this node.
    whole = ms.sparse_to_dense_matmul(dense.astype(int), np.ones((4, 2), int), alpha=2.0)
    np.testing.assert_array_equal(whole, dense.astype(int) @ np.ones((4, 2), int) * 2)


X, W, BIAS = f32(2, 4, 6, 6), f32(6, 2, 3, 3), f32(6)
LISTED = [
    ("Relu", None),
    ("Tanh", None),
    ("Sigmoid", None),
    ("HardSwish", None),
    ("LeakyRelu", [0.2]),
    ("Clip", [-0.5, 0.5]),
    ("HardSigmoid", [0.3, 0.4]),
]


@pytest.mark.parametrize(("name", "params"), LISTED, ids=[n for n, _ in LISTED])
def test_fused_conv(name, params):
    attributes = {"activation": name, "group": 2, "pads": [1, 1, 1, 1]}
    attributes |= {"activation_params": params} if params else {}
    agree("FusedConv", [X, W, BIAS], **attributes)
    z = f32(2, 6, 6, 6)
    found = agree("FusedConv", [X, W, BIAS, z], **attributes)
    last = ours("NhwcFusedConv", [swapped(X), W, BIAS, swapped(z)], **attributes)
    compare(last, [swapped(np.asarray(found[0]))], 1e-5, 1e-5)


def test_convolutions_with_channels_last():
    plain = jaxops.conv(X, W, group=2, strides=(2, 1), auto_pad="SAME_UPPER")
    found = ours("NhwcConv", [swapped(X), swapped(W)], group=2, strides=[2, 1], auto_pad="SAME_UPPER")
    compare(found, [swapped(np.asarray(plain))], 1e-5, 1e-5)
    images = RNG.integers(0, 255, (1, 7, 7, 3)).astype(np.uint8)
    agree("NhwcMaxPool", [images], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], compiled=True)
    more = {"kernel_shape": [2, 3], "ceil_mode": 1, "strides": [2, 2], "dilations": [2, 1]}
    agree("NhwcMaxPool", [images.astype(np.int8)], **more)


def test_conv_transpose_with_dynamic_pads():
    inputs = [f32(1, 2, 5, 5), f32(2, 3, 3, 3), np.array([1, 0, 1, 2]), f32(3)]
    agree("ConvTransposeWithDynamicPads", inputs, static=[2], strides=[2, 2], output_padding=[1, 0])
    (found,) = ours("ConvTransposeWithDynamicPads", [*inputs[:2], None, inputs[3]])  # onnxruntime wants pads
    compare([found], [np.asarray(jaxops.conv_transpose(*inputs[:2], inputs[3]))], 0, 0)


@pytest.mark.parametrize(
    ("sizes", "kernel"), [((2, 3, 9), [3]), ((2, 3, 7, 6), [2, 3]), ((1, 2, 4, 5, 4), [2, 2, 2])], ids=str
)
def test_maxpool_with_mask(sizes, kernel):
    mask = (RNG.random((1, 1, *sizes[2:])) > 0.3).astype(np.int32)
    attributes = {"kernel_shape": kernel, "strides": [2] + [1] * (len(kernel) - 1), "pads": [1] * 2 * len(kernel)}
    x = f32(*sizes)
    one = agree("MaxpoolWithMask", [x, mask], **attributes)
    # Of each plane: onnxruntime reads such a mask at other places.
    full = ours("MaxpoolWithMask", [x, np.broadcast_to(mask, sizes)], **attributes)
    compare(full, [np.asarray(one[0])], 0, 0)
    whole = ours("MaxpoolWithMask", [x, np.ones(sizes, np.int32)], **attributes)
    compare(whole, [np.asarray(jaxops.max_pool(x, **attributes))], 0, 0)


def test_gradients_vmap_and_symbolic_sizes():
    def fn(x):
        y = ms.fused_conv(x, W, BIAS, activation="Silu", group=2)
        pooled = ms.maxpool_with_mask(y, np.ones((1, 1, 4, 4), np.int32), kernel_shape=(2, 2))
        rows = pooled.reshape(pooled.shape[0], -1)
        return ms.cdist(rows, rows[:1], metric="euclidean"), ms.nhwc_conv(jnp.moveaxis(x, 1, -1), swapped(W), group=2)

    small = jax.jit(lambda x: ms.fused_conv(x, W[:1, :1], activation="Silu"))
    check_grads(small, (X[:1, :1],), order=1, modes=["rev"], rtol=1e-2, atol=1e-2)
    same = jnp.ones((2, 3))
    assert np.isfinite(jax.grad(lambda a: ms.cdist(a, same, metric="euclidean").sum())(same)).all()
    found = jax.vmap(ms.inverse)(jnp.stack([jnp.eye(3), 2 * jnp.eye(3)]))
    np.testing.assert_allclose(found, np.stack([np.eye(3), np.eye(3) / 2]), rtol=1e-6)
    made = export(jax.jit(fn))(*symbolic_args_specs([X], ["n, 4, 6, 6"]))
    chex.assert_trees_all_close(made.call(X), fn(X), rtol=1e-4, atol=1e-4)


ERRORS = [
    (lambda: ms.fused_gemm(A, B, activation="Swish"), ArgumentError, "`activation` is 'Swish'; it must be one of Relu"),
    (lambda: ms.fused_gemm(A, A), ShapeError, r"gemm: a of \(3, 4\)"),
    (
        lambda: ms.fused_conv(X, W, group=2, activation="Clip", activation_params=(1.0,)),
        ArgumentError,
        r"`activation_params` is \(1.0,\); Clip has 2: min, max",
    ),
    (
        lambda: ms.fused_conv(X, W, groups=2),
        TypeError,
        "^conv: got an unexpected argument 'groups'; similar: 'group'",
    ),
    (
        lambda: ms.fused_conv(X, W, z=X, group=2),
        ShapeError,
        r"`z` of \(2, 4, 6, 6\) must be \(2, 6, 4, 4\), the shape of the result",
    ),
    (
        lambda: ms.nhwc_conv(A, W),
        ShapeError,
        r"nhwc_conv: `x` of \(3, 4\) needs a first axis, spatial axes and channels",
    ),
    (
        lambda: ms.cdist(A, B),
        ShapeError,
        r"a of \(3, 4\) and b of \(4, 5\) must be matrices with the same number of columns",
    ),
    (lambda: ms.cdist(A, A, metric="cosine"), ArgumentError, "`metric` is 'cosine'"),  # pyright: ignore
    (lambda: ms.inverse(A), ShapeError, r"inverse: .*\(3, 4\)"),
    (lambda: ms.inverse(A.astype(int)), DTypeError, "inverse: `x` must be floating-point"),
    (lambda: ms.sparse_to_dense_matmul(A, C), ShapeError, r"`b` must be a matrix, got \(5,\)"),
    (
        lambda: ms.maxpool_with_mask(X, np.ones((1, 1, 6, 5), int), kernel_shape=(2, 2)),
        ShapeError,
        r"`m` of \(1, 1, 6, 5\) must have the shape of x, \(2, 4, 6, 6\), or 1 in place of the first two",
    ),
    (lambda: ms.maxpool_with_mask(X, X, kernel_shape=(2, 2)), DTypeError, "operands must be integer"),
    (lambda: ms.maxpool_with_mask(X, X.astype(int)), ShapeError, "`kernel_shape` is missing"),
    (
        lambda: jax.jit(lambda p: ms.conv_transpose_with_dynamic_pads(X, W, p))(np.ones(4, int)),
        StaticError,
        "`pads` must be known while tracing",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
