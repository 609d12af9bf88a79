"""Images and spectra of com.microsoft: onnxruntime has no kernel of the Fourier transforms for a CPU."""

import itertools

import jax
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare, ours

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(11)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


MODES = list(itertools.product((0, 1), ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")))


@pytest.mark.grid
@pytest.mark.parametrize(("align", "mode", "padding"), MODES)
def test_grid_sample(align, mode, padding):
    attributes = {"align_corners": align, "mode": mode, "padding_mode": padding}
    agree("GridSample", [f32(2, 3, 5, 6), f32(2, 4, 4, 2)], **attributes)


IMAGE, BATCH = f32(2, 3, 7, 9), np.array([0, 1, 1, 0], np.int32)
ROIS = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.9, 0.7], [-0.2, 0.5, 1.3, 0.1], [0.5, 0.5, 0.5, 0.5]], np.float32)


# XLA's older emitters compute (16, 1) wrongly.
@pytest.mark.optimized
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(4, 5), (1, 3), (1, 1), (16, 1)], ids=str)
def test_crop_and_resize(size, mode):
    size = np.array(size, np.int32)
    compiled = size[0] == 4
    agree(
        "CropAndResize", [IMAGE, ROIS, BATCH, size], static=[3], mode=mode, extrapolation_value=-1.5, compiled=compiled
    )


@pytest.mark.parametrize("n", [8, 6])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_rfft(n, count):
    x = f32(2, 4, 5, n)
    values = np.fft.rfftn(x, axes=range(-count, 0))
    pairs = np.stack([values.real, values.imag], -1).astype(np.float32)
    compare(ours("Rfft", [x], signal_ndim=count), [pairs], 1e-4, 1e-4)
    compare(ours("Irfft", [pairs], signal_ndim=count), [x], 1e-4, 1e-5)


def test_complex_products():
    a, b = f32(2, 3, 2), f32(3, 2)
    x, y = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    for op, values in (("ComplexMul", x * y), ("ComplexMulConj", x * y.conj())):
        expected = np.stack([values.real, values.imag], -1).astype(np.float32)
        compare(ours(op, [a, b]), [expected], 1e-5, 1e-5)
        (half,) = ours(op, [a.astype(np.float16), b.astype(np.float16)])
        compare([half], [expected.astype(np.float16)], 5e-3, 5e-3)


def test_gradients_vmap_and_symbolic_sizes():
    def fn(x):
        crops = ms.crop_and_resize(x, ROIS[:1], BATCH[:1], (4, 5))
        return ms.irfft(ms.complex_mul(ms.rfft(crops[..., :4]), ms.rfft(crops[..., :4])), signal_ndim=1)

    check_grads(jax.jit(fn), (IMAGE[:1],), order=1, modes=["rev"], rtol=2e-2, atol=2e-2)
    found = jax.vmap(lambda r, b: ms.crop_and_resize(IMAGE, r[None], b[None], (2, 3))[0])(ROIS, BATCH)
    np.testing.assert_allclose(found, ms.crop_and_resize(IMAGE, ROIS, BATCH, (2, 3)), rtol=1e-5, atol=1e-6)
    made = export(jax.jit(lambda x, r, b: ms.crop_and_resize(x, r, b, (4, 5))))(
        *symbolic_args_specs([IMAGE, ROIS, BATCH], ["n, 3, h, w", "r, 4", "r"])
    )
    expected = ms.crop_and_resize(IMAGE, ROIS, BATCH, (4, 5))
    np.testing.assert_allclose(made.call(IMAGE, ROIS, BATCH), expected, rtol=1e-4, atol=1e-5)


def crop(x=IMAGE, rois=ROIS, batch=BATCH, size=(2, 2), **attributes):
    return ms.crop_and_resize(x, rois, batch, size, **attributes)


ERRORS = [
    (lambda: ms.grid_sample(IMAGE[0], IMAGE), ShapeError, r"grid_sample: `x` of \(3, 7, 9\) must be \(N, C, H, W\)"),
    (lambda: ms.grid_sample(IMAGE, IMAGE, mode="linear"), ArgumentError, "`mode` is 'linear'"),  # pyright: ignore
    (lambda: crop(x=IMAGE[0]), ShapeError, r"crop_and_resize: `x` of \(3, 7, 9\) must be \(N, C, H, W\)"),
    (lambda: crop(rois=ROIS[0]), ShapeError, r"`rois` of \(4,\) must be \(R, 4\)"),
    (lambda: crop(batch=BATCH[:2]), ShapeError, r"`batch_indices` of \(2,\) must be \(4,\), one index for each region"),
    (lambda: crop(batch=ROIS[:, 0]), DTypeError, "operands must be integer"),
    (lambda: crop(size=(2, 0)), ArgumentError, r"`crop_size` is \(2, 0\); it must be a height and a width"),
    (lambda: crop(mode="cubic"), ArgumentError, "`mode` is 'cubic'"),
    (lambda: jax.jit(lambda s: crop(size=s))(BATCH[:2]), StaticError, "`crop_size` must be known while tracing"),
    (lambda: ms.rfft(IMAGE, normalized=1), ArgumentError, "`normalized` is 1; it must be one of 0"),  # pyright: ignore
    (lambda: ms.rfft(IMAGE, onesided=0), ArgumentError, "`onesided` is 0; it must be one of 1"),  # pyright: ignore
    (lambda: ms.rfft(IMAGE, signal_ndim=4), ArgumentError, "`signal_ndim` is 4; it must be 1, 2 or 3"),
    (lambda: ms.rfft(IMAGE[0, 0, 0], signal_ndim=2), ShapeError, r"x of \(9,\) has fewer axes than `signal_ndim`, 2"),
    (lambda: ms.irfft(IMAGE, signal_ndim=1), ShapeError, r"x of \(2, 3, 7, 9\) must have .* 2 axes, the last of 2"),
    (lambda: ms.irfft(f32(1, 2), signal_ndim=1), ShapeError, "frequency bins on axis 0; it needs at least 2"),
    (lambda: ms.complex_mul(IMAGE, IMAGE), ShapeError, r"an operand of \(2, 3, 7, 9\) must end with an axis of size 2"),
    (lambda: ms.complex_mul(f32(3, 2), f32(4, 2)), ShapeError, r"shapes \(3, 2\) and \(4, 2\) do not broadcast"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
