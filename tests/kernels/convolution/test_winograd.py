"""Winograd's products: the sums of a plain convolution, to as many digits, wherever its numbers are finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node, tensor
from jax import lax

import jaxops.onnx
from jaxops.kernels import target
from jaxops.kernels.convolution import select_cpu, winograd
from jaxops.kernels.target import Target
from jaxops.shapes.nn import windows

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def over(x, w, pads=(0, 0, 0, 0), strides=None, dilations=None):
    return windows.sliding(x.shape[2:], w.shape[2:], windows.Options("NOTSET", pads, strides, dilations))


def by_winograd(x, w, pads):
    """The convolution of data (N, C, d1, d2), compiled."""
    found = over(x, w, pads)
    last = jax.jit(lambda x, w: winograd.convolve(jnp.transpose(x, (0, 2, 3, 1)), w, found))
    return np.transpose(last(x, w), (0, 3, 1, 2))


def exactly(x, w, pads):
    """The same, summed in NumPy with 64 bits."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    shown = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwij,mcij->nmhw", shown, w.astype(np.float64), optimize=True)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 1, 0), (2, 0, 3, 1)])
@pytest.mark.parametrize("kernel", [(3, 3), (1, 3), (2, 3), (5, 3)])
@pytest.mark.parametrize("size", [(6, 8), (7, 7), (5, 3), (28, 29)])
def test_values(size, kernel, pads):
    x, w = f32(2, 5, *size), f32(6, 5, *kernel)
    np.testing.assert_allclose(by_winograd(x, w, pads), exactly(x, w, pads), atol=2e-5)


def test_the_error_of_large_layers_is_that_of_a_plain_convolution():
    for c, size in ((64, 56), (256, 14), (512, 7)):
        x, w, pads = f32(1, c, size, size), f32(c, c, 3, 3), (1, 1, 1, 1)
        right = exactly(x, w, pads)
        plain = lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))
        error, allowed = (np.abs(y - right).max() for y in (by_winograd(x, w, pads), np.asarray(plain)))
        assert error <= 2 * allowed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_reach_the_same_results(value):
    """An infinity may become a NaN where both of a pair read it."""
    w, pads = f32(4, 2, 3, 3), (1, 1, 1, 1)
    for at in range(10):
        x = f32(1, 2, 9, 10)
        x[0, 1, 4, at] = value
        found, expected = by_winograd(x, w, pads), exactly(x, w, pads)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
        if np.isnan(value):
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        else:
            both = np.repeat((~np.isfinite(expected)).reshape(1, 4, 9, 5, 2).all(-1), 2, -1)
            assert not (np.isnan(found) & ~both).any()
        keep = np.isfinite(expected)
        np.testing.assert_allclose(found[keep], expected[keep], atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_when_it_pays(shared):
    def pays(x, w, pads=(1, 1, 1, 1), dtype=np.float32, narrow=False, cores=4, **attributes):
        x, w = np.empty(x, dtype), np.empty(w, dtype)
        target = Target("cpu", cores=cores, prepared=True, divides_batches=shared)
        return winograd.pays(target, x, w, over(x, w, pads, **attributes), narrow)

    assert pays((1, 64, 56, 56), (64, 64, 3, 3))
    assert pays((8, 256, 14, 14), (256, 256, 3, 3))
    assert pays((1, 512, 7, 7), (512, 512, 3, 3))
    assert pays((1, 96, 28, 28), (96, 96, 3, 3)) == shared  # a batch of products takes one core
    assert not pays((1, 192, 7, 7), (320, 192, 3, 3))  # too small
    assert pays((1, 192, 7, 7), (320, 192, 3, 3), narrow=True)
    assert not pays((1, 128, 14, 14), (32, 128, 3, 3), narrow=True)
    assert not pays((8, 64, 56, 56), (64, 64, 3, 3))  # too many products for so few channels
    assert not pays((8, 256, 56, 56), (256, 256, 3, 3))  # too many products
    assert pays((1, 64, 128, 128), (8, 64, 3, 3))  # XLA's own takes as long for 8 filters as for 16
    assert not pays((1, 64, 64, 64), (8, 64, 3, 3))
    assert not pays((4, 64, 128, 128), (8, 64, 3, 3))  # too many data
    assert not pays((1, 256, 28, 28), (256, 256, 3, 3), strides=(2, 2))
    assert not pays((1, 256, 28, 28), (256, 256, 3, 3), dilations=(2, 2))
    assert not pays((1, 256, 28, 28), (256, 256, 5, 5))
    assert not pays((1, 256, 28, 28), (256, 256, 3, 3), dtype=np.float16)
    for narrow in (False, True):
        assert pays((1, 64, 56, 56), (64, 64, 3, 3), narrow=narrow, cores=16) == shared  # few parts for many cores


def test_a_model_uses_it_for_weights_that_it_prepares(monkeypatch):
    monkeypatch.setattr(target, "_jaxlib", lambda: (0, 11))
    x, w = f32(1, 128, 28, 28), f32(128, 128, 3, 3)
    made = build(
        node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), inputs=[info("x", x.shape)], initializers=[tensor(w, "w")]
    )
    model = jaxops.onnx.load(made)
    found = np.asarray(model(x))
    np.testing.assert_allclose(found, exactly(x, w, (1, 1, 1, 1)), atol=5e-4)
    (filters,) = model._weights.cache.prepared.values()
    assert filters.shape == (4, 128, 3, 128)


def test_only_a_specialized_program_uses_it():
    x, w = f32(1, 128, 28, 28), f32(128, 128, 3, 3)
    found = over(x, w, (1, 1, 1, 1))

    def form(is_specialized):
        fast = select_cpu.cpu_form(
            Target("cpu", specialized=is_specialized, prepared=is_specialized), x.shape, w.shape, found, 1
        )
        return fast and str(jax.make_jaxpr(lambda x, w: fast(x, w, found, 1))(x, w))

    assert form(False) is None
    assert "dot_general" in form(True)
    assert "conv_general_dilated" not in form(True)
