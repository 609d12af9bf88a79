"""Reductions: `keep_dims` is false by default, and an empty list of axes reduces nothing."""

from collections.abc import Callable
from typing import Any

from jaxops import ops
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import single, vector
from jaxops.signature import SizesKept, Static
from jaxops.static import Array


def _reduction(fn: Callable[..., Any]) -> Callable[..., Any]:
    def adapter(data: Array, axes: Static, *, keep_dims: bool) -> Array:
        reduced = vector(fn.__name__, "axes", axes)
        return fn(data, reduced, keepdims=int(keep_dims)) if reduced.size else ops.identity(data)

    adapter.__name__ = adapter.__qualname__ = fn.__name__
    return adapter


_REDUCTIONS = {
    "ReduceL1": ops.reduce_l1,
    "ReduceL2": ops.reduce_l2,
    "ReduceMax": ops.reduce_max,
    "ReduceMin": ops.reduce_min,
    "ReduceMean": ops.reduce_mean,
    "ReduceProd": ops.reduce_prod,
    "ReduceSum": ops.reduce_sum,
    "ReduceLogicalAnd": ops.reduce_min,
    "ReduceLogicalOr": ops.reduce_max,
}
for _name, _function in _REDUCTIONS.items():
    version(_name, 1, of=_function)(_reduction(_function))


@version("CumSum", 3, of=ops.cumsum)
def cumsum(x: SizesKept[Array], axis: Static, *, exclusive: bool, reverse: bool) -> Array:
    return ops.cumsum(x, single("CumSum", "axis", axis), exclusive=int(exclusive), reverse=int(reverse))
