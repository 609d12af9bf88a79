"""Means and sums of quantized numbers, beside onnxruntime where it has a kernel, else beside NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from quantized_peer import agree, close
from whole_numbers import whole_numbers

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError

RNG = np.random.default_rng(4)
whole = whole_numbers(RNG)
KINDS = pytest.mark.parametrize("kind", [np.uint8, np.int8])
f32 = np.float32

POOLS = {
    "plain": {"kernel_shape": [3, 2]},
    "padded": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
    "with padding": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    "ceil": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    "ceil with padding": {
        "kernel_shape": [3, 3],
        "strides": [2, 2],
        "ceil_mode": 1,
        "count_include_pad": 1,
        "pads": [1, 1, 1, 1],
    },
    "channels last": {"kernel_shape": [2, 2], "channels_last": 1},
    "same": {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
}


@KINDS
@pytest.mark.parametrize("name", POOLS)
def test_average_pool(name, kind):
    given = (whole(kind, 2, 5, 9, 8), f32(0.03), whole(kind), f32(0.02), whole(kind))
    agree("QLinearAveragePool", given, steps=1, **POOLS[name])  # onnxruntime sums floats, so ties may go another way


@KINDS
def test_one_axis_and_three(kind):
    for shape, kernel in (((2, 3, 20), [3]), ((1, 2, 5, 6, 4), [2, 3, 2])):
        given = (whole(kind, *shape), f32(0.03), whole(kind), f32(0.02), whole(kind))
        agree("QLinearAveragePool", given, steps=1, kernel_shape=kernel)


@KINDS
@pytest.mark.parametrize("channels_last", [0, 1])
def test_global_average_pool(kind, channels_last):
    given = (whole(kind, 2, 50, 9, 40), f32(0.03), whole(kind), f32(0.01), whole(kind))
    agree("QLinearGlobalAveragePool", given, steps=1, channels_last=channels_last)


@KINDS
@pytest.mark.parametrize("keepdims", [0, 1])
def test_mean_and_sum_over_axes(kind, keepdims):  # they have no kernel on a CPU
    x, zero, info = whole(kind, 3, 4, 5), whole(kind), np.iinfo(kind)
    mean = (x.astype(int) - int(zero)).mean((0, 2), keepdims=bool(keepdims)) * 0.03
    wanted = np.clip(np.rint(mean / 0.02 + 5), info.min, info.max).astype(kind)
    close(ms.qlinear_reduce_mean(x, 0.03, zero, 0.02, kind(5), axes=(0, -1), keepdims=keepdims), wanted)
    total = x.astype(np.int32 if kind is np.int8 else np.uint32).sum((0, 2), keepdims=bool(keepdims))
    wanted = total.astype(np.int32 if kind is np.int8 else np.uint32)
    close(ms.reduce_sum_integer(x, axes=(0, -1), keepdims=keepdims), wanted)


def test_jit_vmap_and_export():
    x, zero = whole(np.uint8, 4, 3, 30, 30), np.uint8(7)

    def fn(x):
        y = ms.qlinear_average_pool(x, f32(0.1), zero, f32(0.05), zero, kernel_shape=(3, 3), strides=(2, 2))
        return ms.qlinear_global_average_pool(y, f32(0.05), zero, f32(0.02), zero)

    wanted = np.asarray(fn(x))
    close(jax.jit(fn)(x), wanted, steps=1)
    close(jax.vmap(fn)(x[:, None])[:, 0], wanted, steps=1)
    (spec,) = symbolic_args_specs([jnp.asarray(x)], ["n, 3, h, w"], scope=None)
    close(export(jax.jit(fn))(spec).call(jnp.asarray(x)), wanted, steps=1)
    with jax.enable_x64(True):
        close(fn(x), wanted, steps=1)


X, S, Z = np.ones((1, 2, 4), np.uint8), f32(1), np.uint8(0)
ERRORS = [
    (lambda: ms.qlinear_average_pool(X, S, Z, S, Z, kernel_shape=(2, 2)), ShapeError, "qlinear_average_pool: "),
    (lambda: ms.qlinear_average_pool(X[0], S, Z, S, Z, kernel_shape=(2,)), ShapeError, "at least one spatial axis"),
    (lambda: ms.qlinear_average_pool(X, S, Z, S, kernel_shape=(2,), ceil_mode=2), ArgumentError, "`ceil_mode` is 2"),
    (lambda: ms.qlinear_global_average_pool(X[0], S, Z, S, Z), ShapeError, "at least one spatial axis"),
    (lambda: ms.qlinear_reduce_mean(X, S, Z, S, axes=(3,), keepdims=1), AxisError, "`axes` is 3"),
    (lambda: ms.reduce_sum_integer(X.astype("i4"), axes=(0,), keepdims=1), DTypeError, "`data` is int32; it must be"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
