"""Conversions between RGB and the YUV formats NV12 and I420, whose color planes have half the height and width."""

__all__ = [
    "bgr_to_nv12",
    "i420_to_bgr",
    "i420_to_rgb",
    "nv12_to_bgr",
    "nv12_to_rgb",
    "rgb_to_nv12",
]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import accumulation_type, as_traced, is_float, unify
from jaxops.errors import DTypeError, SignatureError, describe, shape_text
from jaxops.kernels.xla_workarounds import rounded
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.arithmetic import divided, must_fit
from jaxops.signature import Traits
from jaxops.static import ArrayLike, Sizes, jit_if_concrete

TRAITS = Traits(precision="float32")


def nv12_to_rgb(arg: ArrayLike, arg_uv: ArrayLike | None = None) -> jax.Array:
    """Converts an image from the format NV12 to RGB.

    arg: (N, H, W, 1), the brightness Y, and arg_uv: (N, H/2, W/2, 2), the colors U and V; or one plane (N, 3·H/2, W,
    1), in which Y is followed by U and V in turns. uint8 or floats in [0, 255], of one dtype. Returns (N, H, W, 3),
    same
    dtype: R = 1.164·(Y - 16) + 1.596·(V - 128), G = 1.164·(Y - 16) - 0.391·(U - 128) - 0.813·(V - 128) and
    B = 1.164·(Y - 16) + 2.018·(U - 128), in [0, 255]. Integers are rounded half to even, as in OpenVINO.
    Raises ShapeError, DTypeError. Source: OpenVINO NV12toRGB-8.

    >>> nv12_to_rgb(jnp.full((1, 3, 2, 1), 128, jnp.uint8))[0, 0].tolist()
    [[130, 130, 130], [130, 130, 130]]
    """
    return _of_nv12(arg, arg_uv)


def nv12_to_bgr(arg: ArrayLike, arg_uv: ArrayLike | None = None) -> jax.Array:
    """Converts an image from the format NV12 to BGR; see `nv12_to_rgb`.

    Raises ShapeError, DTypeError. Source: OpenVINO NV12toBGR-8.

    >>> nv12_to_bgr(jnp.full((1, 2, 2, 1), 128.0), jnp.full((1, 1, 1, 2), 128.0)).shape
    (1, 2, 2, 3)
    """
    return lax.rev(_of_nv12(arg, arg_uv), (3,))


def i420_to_rgb(arg: ArrayLike, arg_u: ArrayLike | None = None, arg_v: ArrayLike | None = None) -> jax.Array:
    """Converts an image from the format I420 to RGB.

    arg: (N, H, W, 1), the brightness Y, arg_u and arg_v: (N, H/2, W/2, 1), the colors; or one plane (N, 3·H/2, W, 1),
    in which Y is followed by U, and that by V. The rest is as in `nv12_to_rgb`.
    Raises ShapeError, DTypeError, SignatureError. Source: OpenVINO I420toRGB-8.

    >>> i420_to_rgb(jnp.full((1, 3, 2, 1), 128, jnp.uint8))[0, 0].tolist()
    [[130, 130, 130], [130, 130, 130]]
    """
    return _of_i420(arg, arg_u, arg_v)


def i420_to_bgr(arg: ArrayLike, arg_u: ArrayLike | None = None, arg_v: ArrayLike | None = None) -> jax.Array:
    """Converts an image from the format I420 to BGR; see `i420_to_rgb`.

    Raises ShapeError, DTypeError, SignatureError. Source: OpenVINO I420toBGR-8.

    >>> i420_to_bgr(jnp.full((1, 3, 2, 1), 128, jnp.uint8)).shape
    (1, 2, 2, 3)
    """
    return lax.rev(_of_i420(arg, arg_u, arg_v), (3,))


def rgb_to_nv12(arg: ArrayLike, *, single_plane: bool = True) -> Any:
    """Converts an image from RGB to the format NV12.

    arg: (N, H, W, 3), uint8 or floats in [0, 255]; H and W are even. Returns one plane (N, 3·H/2, W, 1), same dtype, in
    which Y is followed by U and V in turns; or without `single_plane` (N, H, W, 1) and (N, H/2, W/2, 2).
    Y = 0.257·R + 0.504·G + 0.098·B + 16, U = -0.148·R - 0.291·G + 0.439·B + 128 and
    V = 0.439·R - 0.368·G - 0.071·B + 128, in [0, 255]. U and V are the means of 2×2 pixels. Integers are rounded half
    away from zero.
    Raises ShapeError, DTypeError. Source: OpenVINO RGBtoNV12-17.

    >>> rgb_to_nv12(jnp.full((1, 2, 2, 3), 128, jnp.uint8)).reshape(-1).tolist()
    [126, 126, 126, 126, 128, 128]
    """
    return _nv12(arg, single_plane, False)


def bgr_to_nv12(arg: ArrayLike, *, single_plane: bool = True) -> Any:
    """Converts an image from BGR to the format NV12; see `rgb_to_nv12`.

    Raises ShapeError, DTypeError. Source: OpenVINO BGRtoNV12-17.

    >>> bgr_to_nv12(jnp.full((1, 2, 2, 3), 128, jnp.uint8)).shape
    (1, 3, 2, 1)
    """
    return _nv12(arg, single_plane, True)


def _planes(**operands: Any) -> list[Any]:
    present = {f"{name} ": as_traced(v) for name, v in operands.items() if v is not None}
    arrays = list(unify(tuple(present.values()), tuple(present)))
    if arrays[0].dtype != np.uint8 and not is_float(arrays[0].dtype):
        raise DTypeError(f"`arg` must be uint8 or floats, got {describe(arrays[0])}")
    return arrays


def _image_sizes(plane: Sizes, divided_by: int) -> Sizes:
    """Returns (N, H, W) of an image from its Y plane, or from a single plane of height 3·H/2."""
    must_fit("arg", plane, ("N", "H", "W", 1))
    n, height, width, _ = plane
    problem = f"`arg` of {shape_text(plane)} must give an even height and width of the image"
    height = divided(problem, height, divided_by) * 2
    divided(problem, width, 2)
    return n, height, width


def _of_nv12(arg: Any, arg_uv: Any) -> jax.Array:
    planes = _planes(arg=arg, arg_uv=arg_uv)
    n, height, width = _image_sizes(planes[0].shape, 3 if arg_uv is None else 2)
    if arg_uv is None:
        whole = planes[0]
        color = whole[:, height:].reshape(n, height // 2, width // 2, 2)
        planes = [whole[:, :height], color]
    must_fit("arg_uv", planes[1].shape, (n, height // 2, width // 2, 2))
    return _colors((planes[0], planes[1][..., :1], planes[1][..., 1:]))


def _of_i420(arg: Any, arg_u: Any, arg_v: Any) -> jax.Array:
    if (arg_u is None) != (arg_v is None):
        raise SignatureError("`arg_u` and `arg_v` must be given together")
    planes = _planes(arg=arg, arg_u=arg_u, arg_v=arg_v)
    n, height, width = _image_sizes(planes[0].shape, 3 if arg_u is None else 2)
    if arg_u is None:
        whole = planes[0]
        color = whole[:, height:].reshape(n, 2, height // 2, width // 2, 1)
        planes = [whole[:, :height], color[:, 0], color[:, 1]]
    for name, plane in zip(("arg_u", "arg_v"), planes[1:], strict=True):
        must_fit(name, plane.shape, (n, height // 2, width // 2, 1))
    return _colors(tuple(planes))


def _whole(x: Any, dtype: Any) -> Any:
    """Clips to [0, 255], and rounds if the type is an integer type."""
    x = x if is_float(dtype) else lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)
    return jnp.clip(x, 0, 255).astype(dtype)


@jit_if_concrete
def _colors(planes: tuple[Any, Any, Any]) -> Any:
    dtype = planes[0].dtype
    work = accumulation_type(dtype) if is_float(dtype) else np.dtype(np.float32)
    y, u, v = (plane.astype(work) for plane in planes)
    u, v = (jnp.repeat(jnp.repeat(plane - 128, 2, 1), 2, 2) for plane in (u, v))
    # Each product is rounded by itself, as in OpenVINO, so that exact halves stay halves.
    light = rounded(1.164 * (y - 16))
    green = light - rounded(0.391 * u) - rounded(0.813 * v)
    parts = [light + rounded(1.596 * v), green, light + rounded(2.018 * u)]
    sizes = (*y.shape[:3], 3)
    colors = jnp.concatenate(parts, 3)
    colors = colors if is_float(dtype) else jnp.round(colors)
    return assert_sizes(_whole(colors, dtype), sizes, dtype)


def _nv12(arg: Any, single_plane: Any, swapped: bool) -> Any:
    (x,) = _planes(arg=arg)
    must_fit("arg", x.shape, ("N", "H", "W", 3))
    problem = f"`arg` of {shape_text(x.shape)} must have an even height and width"
    for size in x.shape[1:3]:
        divided(problem, size, 2)
    y, color = _planes_of(lax.rev(x, (3,)) if swapped else x)
    if not flag("single_plane", single_plane):
        return y, color
    n, height, width, _ = y.shape
    return jnp.concatenate([y, color.reshape(n, height // 2, width, 1)], 1)


@jit_if_concrete
def _planes_of(x: Any) -> tuple[Any, Any]:
    dtype = x.dtype
    work = accumulation_type(dtype) if is_float(dtype) else np.dtype(np.float32)
    red, green, blue = (x[..., i : i + 1].astype(work) for i in range(3))
    light = _whole(0.257 * red + 0.504 * green + 0.098 * blue + 16, dtype)
    u = _whole(-0.148 * red - 0.291 * green + 0.439 * blue + 128, dtype)
    v = _whole(0.439 * red - 0.368 * green - 0.071 * blue + 128, dtype)
    color = jnp.concatenate([u, v], 3).astype(work)
    n, height, width, _ = color.shape
    mean = color.reshape(n, height // 2, 2, width // 2, 2, 2).sum((2, 4)) / 4
    return light, _whole(mean, dtype)
