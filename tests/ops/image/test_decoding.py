"""Decoded images: files that Pillow writes here, of pixels that are known."""

import io
import sys

import jax
import numpy as np
import onnx
import pytest
from graphs import at_opset, build, info, node
from PIL import Image

import jaxops as jo
import jaxops.onnx
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError, UnsupportedError

RNG = np.random.default_rng(6)
PIXELS = RNG.integers(0, 256, (5, 7, 3)).astype(np.uint8)


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(stream, kind, **options)
    return np.frombuffer(stream.getvalue(), np.uint8)


EXACT = [("BMP", {}), ("PNG", {}), ("TIFF", {}), ("PPM", {}), ("WEBP", {"lossless": True}), ("JPEG2000", {})]


@pytest.mark.parametrize(("kind", "options"), EXACT, ids=[k for k, _ in EXACT])
def test_formats_without_loss(kind, options):
    stream = encoded(PIXELS, kind, **options)
    found = jo.image_decoder(stream)
    assert (found.dtype, found.tolist()) == (np.uint8, PIXELS.tolist())
    assert jo.image_decoder(stream, pixel_format="BGR").tolist() == PIXELS[:, :, ::-1].tolist()
    grey = jo.image_decoder(stream, pixel_format="Grayscale")
    assert grey.shape == (5, 7, 1)
    np.testing.assert_allclose(grey[:, :, 0], PIXELS @ [0.299, 0.587, 0.114], atol=1)
    assert at_opset("ImageDecoder", 20, stream, pixel_format="RGB")[0].tolist() == PIXELS.tolist()


def test_jpeg_is_close():
    smooth = np.add.outer(np.arange(16) * 4, np.arange(24) * 3)[..., None].repeat(3, 2).astype(np.uint8)
    np.testing.assert_allclose(jo.image_decoder(encoded(smooth, "JPEG", quality=95)).astype(int), smooth, atol=6)


def test_other_modes_than_rgb():
    black = np.eye(4, dtype=bool)
    assert (
        jo.image_decoder(encoded(Image.fromarray(black), "PPM")).tolist()
        == np.where(black[..., None], [255] * 3, 0).tolist()
    )
    clear = np.dstack([PIXELS, np.zeros((5, 7), np.uint8)])
    assert jo.image_decoder(encoded(clear, "PNG")).tolist() == PIXELS.tolist()
    palette = Image.fromarray(PIXELS).quantize(8)
    expected = np.asarray(palette.convert("RGB"))
    assert jo.image_decoder(encoded(palette, "PNG")).tolist() == expected.tolist()
    deep = np.array([[0, 255, 256, 65535]], np.uint16)
    for kind in ("PNG", "TIFF", "PPM"):
        assert jo.image_decoder(encoded(deep, kind), pixel_format="Grayscale").ravel().tolist() == [0, 0, 1, 255]


def test_in_a_model():
    proto = build(
        node("ImageDecoder", ["x"], ["y"], pixel_format="BGR"),
        inputs=[info("x", ["n"], onnx.TensorProto.UINT8)],
        outputs=[info("y", None, onnx.TensorProto.UINT8)],
        opsets=[("", 20)],
    )
    model = jaxops.onnx.load(proto)
    for image in (PIXELS, PIXELS[:2]):
        assert np.asarray(model(encoded(image, "PNG"))).tolist() == image[:, :, ::-1].tolist()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "TIFF", "WEBP", "JPEG2000", "PPM"])
def test_a_damaged_file_is_an_empty_image(kind):
    whole = encoded(PIXELS, kind)
    for damaged in (whole[: len(whole) // 2], whole[:3], whole[:0]):
        for pixel_format, channels in (("RGB", 3), ("Grayscale", 1)):
            with pytest.warns(UserWarning, match="image_decoder: .* bytes cannot be decoded, so the image is empty"):
                found = jo.image_decoder(damaged, pixel_format=pixel_format)
            assert (found.shape, found.dtype) == ((0, 0, channels), np.uint8)


def test_a_format_that_the_standard_does_not_list():
    with pytest.warns(UserWarning, match="one of the formats BMP, JPEG, JPEG2000, TIFF, PNG, WEBP, PPM"):
        assert jo.image_decoder(encoded(PIXELS, "GIF")).size == 0


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        UnsupportedError, match=r"needs Pillow; install the extra `image` of jaxops: pip install '\.\[image\]'"
    ):
        jo.image_decoder(np.zeros(3, np.uint8))


ERRORS = [
    (lambda: jax.jit(jo.image_decoder)(np.zeros(3, np.uint8)), StaticError, "`encoded_stream` must be known"),
    (lambda: jo.image_decoder(np.zeros(3)), DTypeError, "`encoded_stream` must be uint8, got float64"),
    (lambda: jo.image_decoder(np.zeros((1, 3), np.uint8)), ShapeError, "`encoded_stream` must be 1-D, but has 2 axes"),
    (lambda: jo.image_decoder(np.zeros(3, np.uint8), pixel_format="rgb"), ArgumentError, "`pixel_format` is 'rgb'"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
