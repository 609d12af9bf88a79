"""Finds the programs that compute each row of a symbolic axis from the same row of their operands.

Such a program may run on surplus rows too, since they change no other row. So a piece of a model that comes after a
data-dependent size is compiled once for a rounded-up size, and serves all smaller ones down to the next power of two.
"""

import math
from collections.abc import Callable
from typing import Any

from jaxops.compiler.primitives import CALLS, ELEMENTWISE, called_jaxpr, jaxprs, symbolic_axes

# Element-wise primitives, and what depends on the place only, or brings elements to another place.
_ANY_SIZE = ELEMENTWISE | {
    *("bitcast_convert_type", "broadcast_in_dim", "expand_dims", "iota", "optimization_barrier", "squeeze"),
    *("stack", "transpose"),
}


def row_wise(jaxpr: Any) -> bool:
    """Tells whether no equation mixes the rows of a symbolic axis, or uses its size as a number."""
    return all(is_row_wise(eqn) for eqn in jaxpr.eqns)


def is_row_wise(eqn: Any) -> bool:
    """Tells whether an equation computes each row of a symbolic axis from the same row of its operands."""
    name = eqn.primitive.name
    if name in CALLS or called_jaxpr(eqn) is not None:
        # A loop over a symbolic number of rows would run over the surplus ones too.
        return isinstance(eqn.params.get("length", 0), int) and all(map(row_wise, jaxprs(eqn)))
    operands = [v.aval for v in eqn.invars]
    if name == "dim_as_value":
        return False
    if not any(_symbolic(aval) for aval in (*operands, *(v.aval for v in eqn.outvars))):
        return True
    if name in _ANY_SIZE:
        return True
    rule = _RULES.get(name)
    return rule is not None and rule(eqn.params, *operands)


def _symbolic(aval: Any) -> set[int]:
    return symbolic_axes(getattr(aval, "shape", ()))


def _apart(key: str) -> Callable[..., bool]:
    """The rule of an operation along the axis, or axes, that a parameter names: none of them is symbolic."""

    def rule(params: dict[str, Any], *operands: Any) -> bool:
        along = params[key]
        return not any(_symbolic(x) & ({along} if isinstance(along, int) else set(along)) for x in operands)

    return rule


def _dot(params: dict[str, Any], a: Any, b: Any) -> bool:
    (of_a, of_b), _ = params["dimension_numbers"]
    return not (_symbolic(a) & set(of_a) or _symbolic(b) & set(of_b))


def _convolution(params: dict[str, Any], x: Any, w: Any) -> bool:
    return (
        not _symbolic(w)
        and _symbolic(x) <= {params["dimension_numbers"].lhs_spec[0]}
        and not (params["batch_group_count"] > 1)
    )


def _slice(params: dict[str, Any], x: Any) -> bool:
    strides = params["strides"] or (1,) * len(x.shape)
    return all(
        params["start_indices"][a] == 0 and params["limit_indices"][a] == x.shape[a] and strides[a] == 1
        for a in _symbolic(x)
    )


def _pad(params: dict[str, Any], x: Any, _: Any) -> bool:
    return all(tuple(params["padding_config"][a]) == (0, 0, 0) for a in _symbolic(x))


def _gather(params: dict[str, Any], x: Any, _: Any) -> bool:
    numbers = params["dimension_numbers"]
    batch = set(numbers.operand_batching_dims)
    return all(
        a in batch or (a not in numbers.start_index_map and params["slice_sizes"][a] == x.shape[a])
        for a in _symbolic(x)
    )


def _dynamic_slice(params: dict[str, Any], x: Any, *_: Any) -> bool:
    return all(params["slice_sizes"][a] == x.shape[a] for a in _symbolic(x))


def _dynamic_update_slice(_: dict[str, Any], x: Any, update: Any, *__: Any) -> bool:
    return all(update.shape[a] == x.shape[a] for a in _symbolic(x))


def _window(params: dict[str, Any], x: Any, *_: Any) -> bool:
    return all(params["window_dimensions"][a] == 1 and params["window_strides"][a] == 1 for a in _symbolic(x))


def _top_k(params: dict[str, Any], x: Any) -> bool:
    axis = params.get("axis", -1)
    return axis % len(x.shape) not in _symbolic(x)


def _reshape(params: dict[str, Any], x: Any, *_: Any) -> bool:
    before, after = ([size for size in sizes if size != 1] for sizes in (x.shape, params["new_sizes"]))
    if before == after:
        return True
    # The first axis is the symbolic one, before and after: true rows stay before surplus ones.
    return all(
        not isinstance(sizes[0], int) and all(isinstance(size, int) for size in sizes[1:]) and math.prod(sizes[1:]) > 0
        for sizes in (before, after)
    )


_RULES: dict[str, Callable[..., bool]] = {
    **{f"reduce_{kind}": _apart("axes") for kind in ("sum", "max", "min", "prod", "and", "or", "xor")},
    **{f"cum{kind}": _apart("axis") for kind in ("sum", "prod", "max", "min", "logsumexp")},
    **{f"reduce_window{kind}": _window for kind in ("", "_sum", "_max", "_min")},
    "argmax": _apart("axes"),
    "argmin": _apart("axes"),
    "concatenate": _apart("dimension"),
    "conv_general_dilated": _convolution,
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "pad": _pad,
    "reduce": _apart("dimensions"),
    "reshape": _reshape,
    "rev": _apart("dimensions"),
    "slice": _slice,
    "sort": _apart("dimension"),
    "split": _apart("axis"),
    "top_k": _top_k,
}
