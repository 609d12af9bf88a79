"""The last layers of YOLO networks: regions of scores, and pixels as channels."""

__all__ = ["region_yolo", "reorg_yolo"]

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import axis as axis_of, flag, integer, ints
from jaxops.dtypes import as_traced, floating
from jaxops.errors import ArgumentError
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.arithmetic import divided, must_fit
from jaxops.signature import operator
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete


@operator(precision="float32")
def region_yolo(
    data: ArrayLike,
    *,
    axis: int,
    end_axis: int,
    coords: int,
    classes: int,
    num: int,
    do_softmax: bool = True,
    mask: Ints = (),
    anchors: Sequence[float] = (),
) -> jax.Array:
    """Turns the numbers of each region into coordinates, objectness and probabilities of classes.

    data: (N, R·(coords + 1 + classes), H, W), floats; channels: for each of R regions its coordinates, its objectness
    and its classes. The sigmoid is applied to the first two coordinates and the objectness; other coordinates are kept.
    do_softmax True: the softmax is applied to the classes of a region, R is `num`, and the axes from `axis` to
    `end_axis` are flattened. False: the sigmoid is applied to classes, R is the length of `mask`, and the result has
    four axes.
    anchors: ignored here; they are for decoding the boxes.
    Raises ShapeError, ArgumentError, AxisError, DTypeError. Source: OpenVINO RegionYolo-1.

    >>> region_yolo(jnp.zeros((1, 6, 1, 1)), axis=1, end_axis=3, coords=4, classes=1, num=1).tolist()
    [[0.5, 0.5, 0.0, 0.0, 0.5, 1.0]]
    """
    (x,) = floating(data=data)
    flat = flag("do_softmax", do_softmax)
    number = integer("num", num, least=1) if flat else len(ints("mask", mask))
    per_region = (integer("coords", coords, least=2), integer("classes", classes, least=0))
    channels = number * (sum(per_region) + 1)
    must_fit("data", x.shape, ("N", channels, "H", "W"), reason=f": {sum(per_region) + 1} for each of {number} regions")
    first, last = (axis_of(v, 4, operand=name) for name, v in (("axis", axis), ("end_axis", end_axis)))
    if last < first:
        raise ArgumentError(f"`end_axis` is {end_axis}, which comes before `axis`, {axis}")
    y = _region_yolo(x, number, *per_region, flat)
    if not flat:
        return y
    joined = (*y.shape[:first], math.prod(y.shape[first : last + 1]), *y.shape[last + 1 :])
    return lax.reshape(y, joined)


@jit_if_concrete
def _region_yolo(x: jax.Array, number: int, coords: int, classes: int, normalized: bool) -> jax.Array:
    n, _, height, width = x.shape
    entries = x.reshape(n, number, coords + 1 + classes, height, width)
    scores = entries[:, :, coords + 1 :]
    probabilities = jax.nn.softmax(scores, 2) if normalized else jax.nn.sigmoid(scores)
    objectness = jax.nn.sigmoid(entries[:, :, coords : coords + 1])
    parts = [jax.nn.sigmoid(entries[:, :, :2]), entries[:, :, 2:coords], objectness, probabilities]
    return assert_sizes(jnp.concatenate(parts, 2).reshape(x.shape), x.shape, x.dtype)


@operator(kind="movement")
def reorg_yolo(data: ArrayLike, *, stride: int) -> jax.Array:
    """Moves pixels to channels in the order of Darknet's layer, which differs from that of `space_to_depth`.

    data: (N, C, H, W), any dtype; C is a multiple of stride², H and W are multiples of stride. Returns
    (N, C·stride², H / stride, W / stride), same dtype: the elements of an image, read as C / stride² channels of
    (H·stride, W·stride), grouped by their position in a block of stride × stride.
    Raises ShapeError, ArgumentError. Source: OpenVINO ReorgYolo-2.

    >>> reorg_yolo(jnp.arange(16).reshape(1, 4, 2, 2), stride=2).reshape(-1).tolist()
    [0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15]
    """
    return _reorg_yolo(as_traced(data), integer("stride", stride, least=1))


def _reorganized(x: Sizes, stride: int) -> Sizes:
    must_fit("data", x, ("N", "C", "H", "W"))
    n, channels, height, width = x
    problem = f"the sizes of `data` {x} are not multiples of `stride` {stride}, or its channels not of its square"
    divided(problem, channels, stride**2)
    return (n, channels * stride**2, divided(problem, height, stride), divided(problem, width, stride))


@jit_if_concrete
def _reorg_yolo(x: jax.Array, stride: int) -> jax.Array:
    sizes = _reorganized(x.shape, stride)
    n, channels, height, width = x.shape
    pixels = x.reshape(n, channels // stride**2, height, stride, width, stride)
    y = pixels.transpose(0, 3, 5, 1, 2, 4).reshape(sizes)
    return assert_sizes(y, sizes, x.dtype)
