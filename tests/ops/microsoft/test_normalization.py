"""Normalizations of com.microsoft against NumPy formulas and onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare, ours, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError

RNG = np.random.default_rng(8)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def normal(x, axes=-1, epsilon=1e-5, simplified=False):
    centred = x if simplified else x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)


X, SCALE, SHIFT = f32(2, 5, 8), f32(8), f32(8)
LONG = f32(4, 60, 64)


@pytest.mark.parametrize("simplified", [False, True], ids=["layer", "simplified"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 5, 8), -1), ((2, 5, 8), 1), ((4, 60, 64), -1), ((8,), 0)], ids=str)
def test_layer_normalization(simplified, shape, axis):
    x = f32(*shape)
    scale, shift = f32(*shape[axis:]), f32(*shape[axis:])
    axes = tuple(range(axis % x.ndim, x.ndim))
    expected = normal(x, axes, 1e-3, simplified) * scale
    op = "SimplifiedLayerNormalization" if simplified else "LayerNormalization"
    inputs = [x, scale] if simplified else [x, scale, shift]
    expected = expected if simplified else expected + shift
    found = ours(op, inputs, 2 if simplified else 3, axis=axis, epsilon=1e-3)
    compare(found[:1], [expected], 1e-4, 1e-5)
    # onnxruntime has them in the empty domain.
    theirs = runtime(op, inputs, (True,) * (2 if simplified else 3), domain="", axis=axis, epsilon=1e-3)
    compare(found, theirs, 1e-4, 1e-5)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_layer_normalization_of_other_types(kind, x64):
    x, scale, shift = (v.astype(kind) for v in (X, SCALE, SHIFT))
    found = ours("LayerNormalization", [x, scale, shift])
    compare(
        found,
        runtime("LayerNormalization", [x, scale, shift], domain=""),
        *((2e-3, 2e-3) if kind == np.float16 else (1e-12, 1e-12)),
    )
    (mixed,) = ours("SimplifiedLayerNormalization", [x, SCALE])
    assert mixed.dtype == np.float32
    np.testing.assert_allclose(mixed, normal(x.astype(np.float64), simplified=True) * SCALE, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "skip", "bias", "beta"),
    [
        ((2, 5, 8), (2, 5, 8), True, True),
        ((2, 5, 8), (2, 5, 8), False, False),
        ((2, 5, 8), (1, 5, 8), False, True),
        ((2, 5, 8), (5, 8), True, False),
        ((5, 8), (5, 8), True, True),
        ((4, 60, 64), (4, 60, 64), True, True),
    ],
)
def test_skip(x, skip, bias, beta):
    size = x[-1:]
    given = [f32(*x), f32(*skip), f32(*size)]
    extra = f32(*size) if bias else None
    shift = f32(*size) if beta else None
    compiled = x[-1] == 64
    # The statistics are outputs for training, which no kernel for inference writes.
    wanted = (True, False, False, True)
    tolerance = {"rtol": 1e-4, "atol": 1e-5, "epsilon": 1e-3, "compiled": compiled}
    total = given[0] + given[1] + (extra if bias else 0)
    found = agree("SkipLayerNormalization", [*given, shift, extra], wanted, **tolerance)
    np.testing.assert_allclose(found[0], normal(total, epsilon=1e-3) * given[2] + (shift if beta else 0), 1e-4, 1e-5)
    np.testing.assert_allclose(found[1], total.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2], 1 / np.sqrt(total.var(-1, keepdims=True) + 1e-3), rtol=1e-5)
    found = agree("SkipSimplifiedLayerNormalization", [*given, extra], wanted, **tolerance)
    np.testing.assert_allclose(found[0], normal(total, epsilon=1e-3, simplified=True) * given[2], 1e-4, 1e-5)
    np.testing.assert_allclose(found[2], 1 / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-3), rtol=1e-5)


def test_skip_of_float16():
    given = [v.astype(np.float16) for v in (X, X[::-1], SCALE, SHIFT, SHIFT)]
    agree("SkipLayerNormalization", given, (True, False, False, True), rtol=2e-3, atol=2e-3)
    agree("SkipSimplifiedLayerNormalization", given[:4], (True, False, False, True), rtol=2e-3, atol=2e-3)


def test_a_large_mean_does_not_cancel():
    x = X + 3000
    found = ms.skip_layer_normalization(x, x, SCALE)
    expected = normal(x.astype(np.float64) * 2) * SCALE
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_gated_rms_norm():
    x, gate = f32(2, 5, 24), f32(2, 5, 24)
    for activation in ("silu", "swish", "sigmoid"):
        agree("GatedRMSNorm", [x, SCALE, gate], activation=activation, epsilon=1e-3)
    agree("GatedRMSNorm", [LONG, f32(64), LONG], compiled=True)
    half = [v.astype(np.float16) for v in (x, SCALE, gate)]
    agree("GatedRMSNorm", half, rtol=2e-3, atol=2e-3)


def test_branchwise_rms_norm():
    for scale in (None, f32(8), f32(5, 8), f32(40)):
        inputs = [X] if scale is None else [X, scale]
        agree("BranchwiseRMSNorm", inputs, epsilon=1e-3)
        agree("BranchwiseRMSNorm", [X.reshape(2, 40), *inputs[1:]], num_branches=5)
    agree("BranchwiseRMSNorm", [X.astype(np.float16), SCALE], rtol=2e-3, atol=2e-3)


# onnxruntime has group norms on other devices only.


def groups(x, gamma, beta, count, activation, last, epsilon):
    first = np.moveaxis(x, -1, 1) if last else x
    split = normal(first.reshape(len(x), count, -1), epsilon=epsilon).reshape(first.shape)
    y = split * gamma[:, None, None] + beta[:, None, None]
    y = y / (1 + np.exp(-y)) if activation else y
    return np.moveaxis(y, 1, -1) if last else y


@pytest.mark.parametrize(("last", "activation"), [(1, 0), (1, 1), (0, 1)])
def test_group_norm(last, activation):
    shape = (2, 3, 4, 8) if last else (2, 8, 3, 4)
    x, skip = f32(*shape), f32(*shape)
    attributes = {"groups": 4, "activation": activation, "channels_last": last, "epsilon": 1e-3}
    found = ours("GroupNorm", [x, SCALE, SHIFT], **attributes)
    compare(found, [groups(x, SCALE, SHIFT, 4, activation, last, 1e-3)], 1e-4, 1e-5)
    vector = (1, 1, 1, 8) if last else (1, 8, 1, 1)
    thin = f32(2, 1, 1, 8) if last else f32(2, 8, 1, 1)
    for given in (skip, thin, thin.reshape(2, 8)):
        for bias in (None, f32(8)):
            wide = given if given.ndim == 4 else thin
            total = x + wide + (0 if bias is None else bias.reshape(vector))
            found = ours("SkipGroupNorm", [x, SCALE, SHIFT, given, bias], 2, **attributes)
            compare(found, [groups(total, SCALE, SHIFT, 4, activation, last, 1e-3), total], 1e-4, 1e-5)


def test_group_norm_of_float16_under_jit():
    x = f32(2, 16, 16, 32).astype(np.float16)
    gamma, beta = f32(32), f32(32)
    found = jax.jit(lambda *v: ms.group_norm(*v, groups=8, activation=1))(x, gamma, beta)
    assert found.dtype == np.float16
    expected = groups(x.astype(np.float64), gamma, beta, 8, 1, True, 1e-5)
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=2e-3, atol=2e-3)


def test_gradients_vmap_and_symbolic_sizes():
    def skip(x, gamma):
        return ms.skip_layer_normalization(x, x, gamma, gamma, epsilon=1e-3)

    check_grads(jax.jit(skip), (X, SCALE), order=1, modes=["rev"], rtol=2e-2, atol=2e-2)
    image = f32(1, 2, 2, 8)
    norm = jax.jit(lambda x: ms.group_norm(x, SCALE, SHIFT, groups=2, activation=1))
    check_grads(norm, (image,), order=1, modes=["rev"], rtol=2e-2, atol=2e-2)
    stacked = jax.vmap(lambda x: ms.skip_simplified_layer_normalization(x, x, SCALE))(X)
    np.testing.assert_allclose(stacked, ms.skip_simplified_layer_normalization(X, X, SCALE), rtol=1e-5, atol=1e-6)

    def fn(x):
        y = ms.layer_normalization(skip(x, SCALE), SCALE, SHIFT)
        y = ms.gated_rms_norm(ms.branchwise_rms_norm(y, num_branches=2), SCALE[:2], y)
        return ms.skip_group_norm(y[:, :, None], SCALE, SHIFT, y[:, :, None], activation=0, groups=2)

    made = export(jax.jit(fn))(*symbolic_args_specs([X], ["n, s, 8"]))
    np.testing.assert_allclose(made.call(X), fn(X), rtol=1e-4, atol=1e-5)


IMAGE = f32(2, 3, 4, 8)
OPTIONS = {"activation": 0, "groups": 4}
ERRORS = [
    (lambda: ms.layer_normalization(X, f32(7)), ShapeError, r"shapes \(2, 5, 8\) and \(7,\) do not broadcast"),
    (lambda: ms.layer_normalization(SCALE, f32(1, 8)), ShapeError, r"`scale` of \(1, 8\) must broadcast to"),
    (lambda: ms.layer_normalization(X, SCALE, axis=3), AxisError, "layer_normalization: `axis` is 3"),
    (lambda: ms.simplified_layer_normalization(X.astype(int), SCALE), DTypeError, "`x` must be floating-point"),
    (lambda: ms.layer_normalization(X, SCALE, stash_type=np.int8), DTypeError, "`stash_type` is int8"),
    (
        lambda: ms.skip_layer_normalization(X, X[:1, :2], SCALE),
        ShapeError,
        r"`skip` of \(1, 2, 8\) must have the shape of input, \(2, 5, 8\), or that without the first axis",
    ),
    (lambda: ms.skip_layer_normalization(X[0], X, SCALE), ShapeError, r"`skip` of \(2, 5, 8\) .* of input, \(5, 8\)\n"),
    (lambda: ms.skip_layer_normalization(X, X, X), ShapeError, r"`gamma` has the shape \(2, 5, 8\)"),
    (lambda: ms.gated_rms_norm(X, f32(3), X), ShapeError, "does not divide into heads of 3 elements, the size of `sc"),
    (lambda: ms.gated_rms_norm(X, f32(1, 8), X), ShapeError, r"`scale` of \(1, 8\) must have one axis"),
    (lambda: ms.gated_rms_norm(X, SCALE, X[0]), ShapeError, r"`gate` of \(5, 8\) must be \(2, 5, 8\)"),
    (lambda: ms.gated_rms_norm(X, SCALE, X, activation="tanh"), ArgumentError, "`activation` is 'tanh'"),  # pyright: ignore
    (lambda: ms.branchwise_rms_norm(X, num_branches=3), ShapeError, "does not divide into 3 branches"),
    (lambda: ms.branchwise_rms_norm(X, num_branches=-1), ArgumentError, "`num_branches` is -1; it must not be neg"),
    (lambda: ms.branchwise_rms_norm(SCALE), ShapeError, r"x of \(8,\) has too few axes; give \(…, C, H\)"),
    (lambda: ms.branchwise_rms_norm(X, f32(5)), ShapeError, r"`scale` of \(5,\) must be \(8,\) or \(5, 8\) or \(40,\)"),
    (lambda: ms.group_norm(IMAGE, SCALE, SHIFT, activation=0, groups=3), ShapeError, "do not divide into 3 groups"),
    (lambda: ms.group_norm(IMAGE, SCALE, SHIFT, activation=0, groups=0), ArgumentError, "`groups` is 0; it must be"),
    (lambda: ms.group_norm(IMAGE, SCALE, SHIFT, activation=2, groups=1), ArgumentError, "`activation` is 2"),
    (lambda: ms.group_norm(IMAGE, f32(4), SHIFT, **OPTIONS), ShapeError, r"group_norm: `gamma` has the shape \(4,\)"),
    (
        lambda: ms.skip_group_norm(X, SCALE, SHIFT, X, **OPTIONS),
        ShapeError,
        r"`x` of .* must be \(N, H, W, C\)",
    ),
    (
        lambda: ms.skip_group_norm(IMAGE, SCALE, SHIFT, f32(3, 4, 8), **OPTIONS),
        ShapeError,
        r"`skip` of \(3, 4, 8\) must be \(2, 3, 4, 8\) or \(2, 1, 1, 8\) or \(2, 8\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_bfloat16_keeps_its_type():
    x = jnp.asarray(X, jnp.bfloat16)
    y, mean, inverse, total = ms.skip_layer_normalization(x, x, x[0, 0], return_statistics=True)
    assert [v.dtype.name for v in (y, mean, inverse, total)] == ["bfloat16", "float32", "float32", "bfloat16"]
