"""Earlier versions of arithmetic, Clip, Gemm, Softmax and so on.

Broadcasting came with opset 7 (8 for Sum, Max, Min and Mean); before, only b broadcasts to a, and only if `broadcast`
is 1.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.attributes import axis as resolve_axis
from jaxops.dtypes import is_float
from jaxops.errors import AxisError, DTypeError, ShapeError, shape_text
from jaxops.onnx.registry import version
from jaxops.shapes.arithmetic import agree, must_agree
from jaxops.signature import Static
from jaxops.signature_errors import errors_of
from jaxops.static import Array, Sizes, array


def _aligned(op: str, a: Array, b: Array, axis: int | None, broadcast: int) -> Array:
    """Returns `b` with axes of size 1 appended, so that its own axes align with those of `a` from `axis` on."""
    one, other = a.shape, b.shape
    if not broadcast:
        _same_shape(op, [one, other], "pass broadcast=1 to broadcast b")
        return b
    if b.size == 1 and b.ndim <= a.ndim:
        return b
    start = a.ndim - b.ndim if axis is None else axis
    if not 0 <= start <= a.ndim - b.ndim:
        raise AxisError(
            f"{op}: with `axis` {axis}, b of {shape_text(other)} does not fit inside a of {shape_text(one)}"
        )
    met = one[start : start + b.ndim]
    # By the text of these versions a single axis does not broadcast, but cases of the standard's suite do that.
    problem = f"{op}: the sizes of a and b"
    if any(have != 1 and not agree(problem, have, want) for have, want in zip(other, met, strict=True)):
        raise ShapeError(
            f"{op}: b of {shape_text(other)} does not fit the sizes {shape_text(met)} of a of {shape_text(one)}"
        )
    return b.reshape(other + (1,) * (a.ndim - start - b.ndim))


def _same_shape(op: str, shapes: Sequence[Sizes], hint: str) -> None:
    for sizes in shapes[1:]:
        if sizes != shapes[0]:
            problem = f"{op}: operands of {shape_text(shapes[0])} and {shape_text(sizes)} must have one shape in this "
            must_agree(f"{problem}version; {hint}", sizes, shapes[0])


def one_way(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes Add-1 and similar versions from the function with the newest meaning."""

    def broadcast_1(a: Array, b: Array, *, axis: int | None = None, broadcast: int) -> Array:
        a, b = array(a), array(b)
        return fn(a, _aligned(fn.__name__, a, b, axis, broadcast))

    return broadcast_1


for _name, _fn in {"Add": ops.add, "Sub": ops.sub, "Mul": ops.mul, "Div": ops.div, "Pow": ops.pow}.items():
    version(_name, 1)(one_way(_fn))
    version(_name, 7)(_fn)


def _like_shapes(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes Sum-1 and similar versions."""

    def same_shapes_1(inputs: Sequence[Array]) -> Array:
        arrays = [array(x) for x in inputs]
        _same_shape(fn.__name__, [x.shape for x in arrays], "broadcast with Expand first")
        return fn(arrays)

    return same_shapes_1


for _name, _fn in {"Sum": ops.sum, "Mean": ops.mean, "Max": ops.max, "Min": ops.min}.items():
    version(_name, 1)(_like_shapes(_fn))
    version(_name, 8)(_fn)


@version("Mod", 10)
def mod_10(a: Array, b: Array, *, fmod: int) -> Array:
    if not fmod and is_float(array(a).dtype):
        raise DTypeError(f"mod: before opset 28 floating-point operands need fmod=1, got {array(a).dtype.name}")
    return ops.mod(a, b, fmod=fmod)


version("Mod", 28)(ops.mod)


@version("Clip", 1)
def clip_1(input: Array, *, min: float | None = None, max: float | None = None) -> Array:
    x = array(input)
    limit = float(np.finfo(np.float32).max)
    # The defaults of Clip-6 are float32's limits: no limits for float16, as in onnxruntime, and double's for double.
    least, most = (-np.inf, np.inf) if x.dtype == np.float16 else (None, None)
    low = least if min is None or min <= -limit else min
    high = most if max is None or max >= limit else max
    return ops.clip(x, *(None if bound is None else np.asarray(bound, x.dtype) for bound in (low, high)))


version("Clip", 11)(ops.clip)


@version("PRelu", 1)
def prelu_1(x: Array, slope: Array) -> Array:
    x, slope = array(x), array(slope)
    # One slope per channel (axis 1); the text only has "of size 1 … shared across different channels".
    if slope.ndim == 1 and x.ndim > 2 and slope.size != 1:
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return ops.prelu(x, slope)


version("PRelu", 7)(ops.prelu)


@version("Erf", 9)
def erf_9(input: Array) -> Array:
    x = array(input)
    if is_float(x.dtype):
        return ops.erf(x)
    # The text permits integers but does not say how to round; the ONNX reference truncates.
    return ops.cast(ops.erf(ops.cast(x, to=np.float32)), to=x.dtype)


version("Erf", 13)(ops.erf)


@version("Gemm", 1)
def gemm_1(
    a: Array, b: Array, c: Array, *, alpha: float, beta: float, broadcast: int, transA: int, transB: int
) -> Array:
    a, b, c = array(a), array(b), array(c)
    if not broadcast and a.ndim == b.ndim == 2:
        sizes = a.shape[1 if transA else 0], b.shape[0 if transB else 1]
        _same_shape("gemm", [sizes, c.shape], "pass broadcast=1 to broadcast c to the product")
    return ops.gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


version("Gemm", 7)(ops.gemm)


def _over_the_rest(fn: Callable[..., Array]) -> Callable[..., Array]:
    """Makes the versions before opset 13, in which all axes from `axis` on count as one."""

    def softmax_1(input: Array, *, axis: int) -> Array:
        rank = array(input).ndim
        with errors_of(fn.__name__):
            first = resolve_axis(axis, rank)
        return fn(input, axes=tuple(range(first, rank)))

    return softmax_1


for _name, _fn in {"Softmax": ops.softmax, "LogSoftmax": ops.log_softmax, "Hardmax": ops.hardmax}.items():
    version(_name, 1)(_over_the_rest(_fn))
    version(_name, 13)(_fn)

version("TopK", 1)(ops.top_k)


@version("TopK", 10)
def top_k_10(x: Array, k: Static, *, axis: int) -> Any:
    if np.ndim(k) != 1:
        raise ShapeError(f"top_k: `k` must be a vector of one integer, but has {np.ndim(k)} axes")
    return ops.top_k(x, k, axis=axis)


version("TopK", 11)(ops.top_k)
