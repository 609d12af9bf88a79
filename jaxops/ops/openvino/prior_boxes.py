"""Prior boxes: boxes of fixed sizes around the cells of a grid, which a detector moves and scales."""

__all__ = ["prior_box", "prior_box_clustered"]

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, ints
from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.openvino.box_overlaps import below
from jaxops.signature import Static, Traits
from jaxops.static import Sizes

TRAITS = Traits(precision="exact", differentiable=False)
Box = tuple[
    float, float, float, float
]  # the centre relative to that of the cell, and half the width and height, in pixels


def prior_box(
    output_size: Static,
    image_size: Static,
    *,
    offset: float,
    min_size: Sequence[float] = (),
    max_size: Sequence[float] = (),
    aspect_ratio: Sequence[float] = (),
    density: Sequence[float] = (),
    fixed_ratio: Sequence[float] = (),
    fixed_size: Sequence[float] = (),
    clip: bool = False,
    flip: bool = False,
    step: float = 0,
    variance: Sequence[float] = (),
    scale_all_sizes: bool = True,
    min_max_aspect_ratios_order: bool = True,
) -> jax.Array:
    """Makes boxes of each size and aspect ratio around each cell of a grid.

    output_size, image_size: static, (height, width) of the grid and of the image, in pixels. Returns
    (2, 4·height·width·P), float32: x1, y1, x2, y2 as fractions of the image for the P boxes of each cell, row by row,
    and four variances for each box.
    The boxes of a cell: for each `fixed_size` and each `fixed_ratio` (or 1 and each aspect ratio, if there is none), a
    box at `density`² places, cut at the image. Without `fixed_size`, for each `min_size`: a square, a square of size
    sqrt(min_size · max_size), and a box for each aspect ratio except 1; with `min_max_aspect_ratios_order` False the
    second square comes last. flip: each ratio is also inverted. variance: none (0.1), one, or four.
    step: size of a cell in pixels; 0: image / grid, and `offset` is 0.5. scale_all_sizes False: `step` (-1: height of
    the image / height of the grid) and `min_size` are fractions of the image's height, `max_size` is ignored, and the
    aspect ratios apply only to the first `min_size`, after all squares.
    Raises ArgumentError, ShapeError, StaticError. Source: OpenVINO PriorBox-1 and 8.

    >>> prior_box((1, 1), (10, 20), offset=0.5, min_size=(4.0,)).tolist()[0]
    [0.4000000059604645, 0.30000001192092896, 0.6000000238418579, 0.699999988079071]
    """
    grid, image = _pair("output_size", output_size), _pair("image_size", image_size)
    if fixed_size and len(density) != len(fixed_size):
        raise ArgumentError(f"`fixed_size` {fixed_size} and `density` {density} must have one length")
    scaled = flag("scale_all_sizes", scale_all_sizes)
    by_order = flag("min_max_aspect_ratios_order", min_max_aspect_ratios_order)
    ratios = _ratios(aspect_ratio, flag("flip", flip))
    if fixed_size:
        around = []
    elif scaled:
        around = list(_around(min_size, max_size, ratios, by_order))
    else:
        around = [*_around(min_size, (), (), by_order), *list(_around(min_size[:1], (), ratios, by_order))[1:]]
    fixed = list(_fixed(fixed_size, density, fixed_ratio or (1.0, *ratios)))
    size = _floats(image)
    cell = size / _floats(grid)
    if not scaled:
        cell = jnp.stack([cell[0] if step == -1 else step * size[0]] * 2)
    elif scaled and step:
        cell = jnp.full(2, step, np.float32)
    parts = jnp.where(np.arange(len(fixed) + len(around)) < len(fixed), 1.0, 1.0 if scaled else size[0])
    boxes = _boxes(grid, size, cell, 0.5 if scaled and not step else offset, (fixed + around, parts))
    is_fixed = (np.arange(len(fixed) + len(around)) < len(fixed))[:, None]
    cut = jnp.clip(boxes, below(_FIRST, boxes), below(_LAST, boxes))
    boxes = jnp.where(below(is_fixed, boxes), cut, boxes)
    return _with_variances(boxes, clip, variance)


_FIRST = np.array([0, 0, -np.inf, -np.inf], np.float32)
_LAST = np.array([np.inf, np.inf, 1, 1], np.float32)


def prior_box_clustered(
    output_size: Static,
    image_size: Static,
    *,
    offset: float,
    width: Sequence[float] = (1.0,),
    height: Sequence[float] = (1.0,),
    clip: bool = True,
    step: float = 0,
    step_w: float = 0,
    step_h: float = 0,
    variance: Sequence[float] = (),
) -> jax.Array:
    """Makes boxes of given widths and heights around each cell of a grid.

    output_size, image_size, variance and the result are as in `prior_box`. width, height: of the P boxes of each cell,
    in pixels. step_w, step_h: size of a cell in pixels; 0: `step`, or image / grid if that is 0, too. clip: True cuts
    boxes at the image.
    Raises ArgumentError, ShapeError, StaticError. Source: OpenVINO PriorBoxClustered-1.

    >>> prior_box_clustered((1, 1), (4, 4), offset=0.5, width=(2.0,), height=(1.0,)).tolist()[0]
    [0.25, 0.375, 0.75, 0.625]
    """
    grid, image = _pair("output_size", output_size), _pair("image_size", image_size)
    if len(width) != len(height):
        raise ArgumentError(f"`width` {width} and `height` {height} must have one length")
    size = _floats(image)
    steps = (step_h or step, step_w or step)
    cell = jnp.asarray(steps, np.float32) if any(steps) else size / _floats(grid)
    around = [(0.0, 0.0, w / 2, h / 2) for w, h in zip(width, height, strict=True)]
    boxes = _boxes(grid, size, cell, offset, (around, jnp.ones(len(around))))
    return _with_variances(boxes, clip, variance)


def _pair(name: str, value: Any) -> Sizes:
    numbers = ints(name, value)
    if len(numbers) != 2:
        raise ShapeError(f"`{name}` {shape_text(numbers)} must be two numbers, a height and a width")
    return numbers


def _floats(sizes: Sizes) -> Any:
    return as_traced(np.asarray(sizes)).astype(np.float32)


def _ratios(aspect_ratio: Sequence[float], flip: bool) -> list[float]:
    """Returns the aspect ratios without 1 and without repeats."""
    ratios = [1.0]
    for ratio in aspect_ratio:
        if all(abs(ratio - earlier) >= 1e-6 for earlier in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    return [ratio for ratio in ratios if abs(ratio - 1) >= 1e-6]


def _around(low: Sequence[float], high: Sequence[float], ratios: Sequence[float], by_order: bool) -> Iterator[Box]:
    for number, size in enumerate(low):
        both = [(size * high[number]) ** 0.5 / 2] if number < len(high) else []
        squares, oblong = [(0.0, 0.0, half, half) for half in both], []
        for ratio in ratios:
            oblong.append((0.0, 0.0, size / 2 * ratio**0.5, size / 2 / ratio**0.5))
        yield (0.0, 0.0, size / 2, size / 2)
        yield from squares + oblong if by_order else oblong + squares


def _fixed(sizes: Sequence[float], density: Sequence[float], ratios: Sequence[float]) -> Iterator[Box]:
    for size, number in zip(sizes, map(int, density), strict=False):
        # As in OpenVINO, the distance of the places and half the size are whole numbers.
        shift, first = int(size / number), int(size / number) / 2 - int(size) // 2
        for ratio in ratios:
            root = ratio**0.5
            for row, column in np.ndindex(number, number):
                yield (first + column * shift, first + row * shift, size / 2 * root, size / 2 / root)


def _boxes(grid: Sizes, size: Any, cell: Any, offset: float, around: tuple[Sequence[Box], Any]) -> Any:
    """Returns (height, width, P, 4), the corners of all boxes as fractions of the image."""
    boxes, parts = around
    x, y, w, h = np.asarray(boxes, np.float32).reshape(-1, 4).T
    corners = jnp.stack([x - w, y - h, x + w, y + h], -1) * parts.astype(np.float32)[:, None]
    rows, columns = (
        (lax.iota(np.float32, n) + np.float32(offset)) * step for n, step in zip(grid, (cell[0], cell[1]), strict=True)
    )
    rows, columns = (jnp.broadcast_to(v, grid) for v in (rows[:, None], columns[None]))
    centres = jnp.stack([columns, rows, columns, rows], -1)[:, :, None]
    return (centres + below(corners, centres)) / below(jnp.stack([size[1], size[0]] * 2), centres)


def _with_variances(boxes: Any, clip: bool, variance: Sequence[float]) -> jax.Array:
    if len(variance) not in (0, 1, 4):
        raise ArgumentError(f"`variance` {variance} must be none, one or four numbers")
    boxes = jnp.clip(boxes, 0, 1) if flag("clip", clip) else boxes
    variances = jnp.broadcast_to(below(np.asarray(variance or (0.1,), np.float32), boxes), boxes.shape)
    height, width, number, _ = boxes.shape
    result = jnp.stack([boxes.reshape(-1), variances.reshape(-1)])
    return assert_sizes(result, (2, 4 * height * width * number), np.float32)
