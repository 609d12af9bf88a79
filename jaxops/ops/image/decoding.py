"""Decoding of image files, outside of `jit`: the size of an image depends on its bytes."""

__all__ = ["image_decoder"]

import io
import warnings
from typing import Any, Literal

import numpy as np

from jaxops.attributes import one_of
from jaxops.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, describe, install
from jaxops.signature import Static
from jaxops.static import known

PixelFormat = Literal["RGB", "BGR", "Grayscale"]
# Pillow's names of the formats that the standard lists; PPM stands for all portable formats.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")


def image_decoder(encoded_stream: Static, *, pixel_format: PixelFormat = "RGB") -> np.ndarray:
    """The pixels of an image file: BMP, JPEG, JPEG 2000, TIFF, PNG, WebP, PBM, PGM or PPM.

    encoded_stream: static, (bytes,), uint8. Returns (height, width, channels), uint8, with three channels, or one for
    'Grayscale'; transparency is dropped, and of samples of 16 bits the upper 8 are kept. A stream that cannot be
    decoded gives (0, 0, channels), as the standard says, with a warning that says why.
    Raises StaticError for a traced stream, UnsupportedError without Pillow, ShapeError, DTypeError, ArgumentError.
    Source: ONNX ImageDecoder, opset 20.

    >>> image_decoder(np.frombuffer(b"P6 1 1 255\\n" + bytes([1, 2, 3]), np.uint8), pixel_format="BGR").tolist()
    [[[3, 2, 1]]]
    """
    stream = known("encoded_stream", encoded_stream)
    kind = one_of("pixel_format", pixel_format, PixelFormat)
    if stream.dtype != np.uint8:
        raise DTypeError(f"`encoded_stream` must be uint8, got {describe(stream)}")
    if stream.ndim != 1:
        raise ShapeError(f"`encoded_stream` must be 1-D, but has {stream.ndim} axes")
    try:
        pixels = decoded(stream.tobytes(), "L" if kind == "Grayscale" else "RGB")
    except ArgumentError as error:
        problem = f"image_decoder: {stream.size} bytes cannot be decoded, so the image is empty: {error}"
        warnings.warn(problem, stacklevel=2)
        return np.zeros((0, 0, 1 if kind == "Grayscale" else 3), np.uint8)
    return np.ascontiguousarray(pixels[:, :, ::-1]) if kind == "BGR" else pixels


def decoded(data: bytes, mode: str, subject: str = "") -> np.ndarray:
    """The pixels of an image file: (height, width, channels), uint8.

    mode: L, RGB or RGBA, as Pillow names them. subject: begins the message about a missing package.
    Raises ArgumentError, with the reason alone, for bytes that cannot be decoded; UnsupportedError without Pillow.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        begin = f"{subject}: " if subject else ""
        raise UnsupportedError(f"{begin}decoding needs Pillow; {install('image')}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about damage that does not keep it from decoding
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                pixels = _pixels(image, mode)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        # Pillow raises all of these for damaged files; the text of the first one shows the address of an object.
        reason = "its format is unknown" if isinstance(error, UnidentifiedImageError) else error
        raise ArgumentError(f"{reason}; it must be a whole file in one of the formats {', '.join(_FORMATS)}") from error
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _pixels(image: Any, mode: str) -> np.ndarray:
    if image.mode.startswith("I"):  # one channel of 16 bits, which `convert` would clip
        from PIL import Image

        image = Image.fromarray((np.asarray(image).astype(np.int32) >> 8).clip(0, 255).astype(np.uint8))
    return np.asarray(image.convert(mode))
