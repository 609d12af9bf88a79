"""Images as inputs of a model: `run classifier.onnx photo.png`."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxops.command_line.shared import show
from jaxops.dtypes import is_float
from jaxops.errors import ArgumentError
from jaxops.ops.image.decoding import decoded

# Pillow's mode for each number of channels. A shape is searched for these numbers in this order.
_MODES = {3: "RGB", 1: "L", 4: "RGBA"}


def read_image(path: str, formal: Any) -> np.ndarray:
    """Reads an image file as an array with the shape and type of an input.

    A float input gets pixels / 255, and a line that says so is printed. Raises ArgumentError for an input that does not
    take an image, for an image of another size, and for a file that cannot be decoded; UnsupportedError without Pillow.
    """
    channels, axis = _channels(path, formal)
    try:
        pixels = decoded(Path(path).read_bytes(), _MODES[channels], path)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: neither a .npy file nor an image that can be decoded: {error}") from error
    height, width = pixels.shape[:2]
    declared = formal.shape[-2:] if axis == -3 else formal.shape[-3:-1]
    fixed = [d if isinstance(d, int) else size for d, size in zip(declared, (height, width), strict=True)]
    if fixed != [height, width]:
        raise ArgumentError(
            f"{path}: the image is {width} wide and {height} high, but input {formal} takes {fixed[1]} and {fixed[0]}\n"
            f"  hint    resize it, by Pillow: Image.open({path!r}).resize(({fixed[1]}, {fixed[0]})).save('resized.png')"
        )
    values = pixels.transpose(2, 0, 1) if axis == -3 else pixels
    values = values.reshape((1,) * (len(formal.shape) - 3) + values.shape)
    if formal.dtype == np.uint8:
        return values
    show(f"{path}: {formal.name} = pixels / 255, without normalization by a mean and a standard deviation")
    return (values / 255).astype(formal.dtype)


def _channels(path: str, formal: Any) -> tuple[int, int]:
    """Returns the number of channels of an image input, and the axis of the channels: -3 or -1.

    Raises ArgumentError for an input that does not take an image, and for one that takes a batch of several images.
    """
    shape = formal.shape or ()
    batch = shape[:-3]
    if (
        formal.kind == "tensor"
        and formal.dtype is not None
        and (formal.dtype == np.uint8 or is_float(formal.dtype))
        and len(shape) in (3, 4)
        and not (batch and isinstance(batch[0], int) and batch[0] != 1)
    ):
        for channels in _MODES:
            for axis in (-3, -1):
                if shape[axis] == channels:
                    return channels, axis
    raise ArgumentError(
        f"{path}: input {formal} does not take an image; an input for images is uint8 or floats, (1, channels, height, "
        "width) or (1, height, width, channels), with 3, 1 or 4 channels\n"
        f"  hint    give a .npy file: --input {formal.name}=FILE.npy"
    )
