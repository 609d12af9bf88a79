"""Runs a traced program of symbolic sizes on padded arrays, so that one compiled program serves every size.

The shapes in such a program say which elements of a value are true: along an axis of symbolic size the first ones, as
many as the size says. Here each value is an array with room for the largest size, and behind the true elements stand
surplus ones. What works element by element or apart along that axis runs as it is; what mixes elements of the axis (a
sum, a product of matrices, a concatenation) leaves the surplus out. So results are exact, whatever the model computes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.compiler.axis_rules import dependent_axes
from jaxops.compiler.padded.rules import NEUTRAL, RULES
from jaxops.compiler.padded.values import Padded, Room, bound
from jaxops.compiler.primitives import called_jaxpr, jaxprs, sizes_of, symbolic_axes
from jaxops.compiler.row_independence import independent_axes_of, is_row_wise
from jaxops.errors import UnsupportedError
from jaxops.kernels.named_call import named_call
from jaxops.static import is_symbolic, scan_operands


def run_padded(closed: Any, inputs: Sequence[Any], room: Room) -> list[Padded]:
    """The results of a closed jaxpr. inputs: arrays, zero where they are surplus.

    Raises UnsupportedError for an operation along a symbolic axis that has no rule here.
    """
    return _run(closed, [Padded(x, zeroed=True) for x in inputs], room)


def _run(program: Any, inputs: Sequence[Padded], room: Room) -> list[Padded]:
    """program: a jaxpr, or one closed over constants."""
    jaxpr = getattr(program, "jaxpr", program)
    values: dict[Any, Padded] = dict(zip(jaxpr.invars, inputs, strict=True))
    constants = zip(jaxpr.constvars, getattr(program, "consts", ()), strict=True)
    values |= {var: Padded(x, zeroed=True) for var, x in constants}

    def read(var: Any) -> Padded:
        return Padded(jnp.asarray(var.val, var.aval.dtype), True) if hasattr(var, "val") else values[var]

    for eqn in jaxpr.eqns:
        values.update(zip(eqn.outvars, _evaluate(eqn, [read(v) for v in eqn.invars], room), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _evaluate(eqn: Any, inputs: list[Padded], room: Room) -> list[Padded]:
    name = eqn.primitive.name
    if name == "dim_as_value":
        return [Padded(jnp.asarray(room.value(eqn.params["dim"])), zeroed=True)]
    if (inner := called_jaxpr(eqn)) is not None and (named_call(eqn) is None or _mentions(eqn)):
        return _run(inner, inputs, room)
    if not _mentions(eqn):
        return bound(eqn, [x.array for x in inputs], room)
    if name in _LOOPS:
        return _LOOPS[name](eqn, inputs, room)
    sizes, arrays = [sizes_of(v) for v in eqn.invars], [x.array for x in inputs]
    # Running results depend on what comes before them, which is not surplus.
    if is_row_wise(eqn) or (name.startswith("cum") and not eqn.params["reverse"]):
        zeroed = name in _KEEPS_ZEROS and all(x.zeroed for x in inputs)
        if name == "broadcast_in_dim":
            zeroed = zeroed and len(symbolic_axes(sizes[0])) == len(symbolic_axes(eqn.params["shape"]))
        return bound(eqn, arrays, room, zeroed)
    if name in NEUTRAL:
        fill, axes = NEUTRAL[name](eqn.invars[0].aval.dtype), independent_axes_of(eqn)
        masked = (
            x.only_true(s, dependent_axes(axes, k, s), fill, room)
            for k, (x, s) in enumerate(zip(inputs, sizes, strict=True))
        )
        return bound(eqn, list(masked), room)
    if name not in RULES:
        where = str(eqn.source_info.name_stack)
        raise UnsupportedError(
            f"`{name}` works along an axis whose size differs from call to call{f', in {where}' if where else ''}; "
            f"there is no rule for that"
        )
    results = RULES[name](eqn, inputs, sizes, room)
    return results if isinstance(results, list) else [results]


def _scan(eqn: Any, inputs: list[Padded], room: Room) -> list[Padded]:
    """Over an axis of symbolic size, steps at surplus elements leave the state as it is."""
    params = eqn.params
    constants, carry = scan_operands(params)
    carried = constants + carry
    count = room.count(params["length"])

    def one(state: Any, step: Any) -> Any:
        number, slices = step
        made = _arrays(params["jaxpr"], [*inputs[:constants], *map(Padded, (*state, *slices))], room)
        after, rows = made[: len(state)], made[len(state) :]
        if is_symbolic(params["length"]):
            after = [jnp.where(number < count, new, old) for new, old in zip(after, state, strict=True)]
        return after, rows

    numbers = lax.iota(np.int32, room.of(params["length"]))
    state, slices = ([x.array for x in part] for part in (inputs[constants:carried], inputs[carried:]))
    last, rows = lax.scan(one, state, (numbers, slices), reverse=params["reverse"], unroll=params["unroll"])
    return [Padded(x) for x in (*last, *rows)]


def _while(eqn: Any, inputs: list[Padded], room: Room) -> list[Padded]:
    params = eqn.params
    first, start = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def goes_on(state: Any) -> Any:
        return _arrays(params["cond_jaxpr"], [*inputs[:first], *map(Padded, state)], room)[0]

    def one(state: Any) -> Any:
        return _arrays(params["body_jaxpr"], [*inputs[first:start], *map(Padded, state)], room)

    return [Padded(x) for x in lax.while_loop(goes_on, one, [x.array for x in inputs[start:]])]


def _cond(eqn: Any, inputs: list[Padded], room: Room) -> list[Padded]:
    branches = [functools.partial(_arrays, branch, inputs[1:], room) for branch in eqn.params["branches"]]
    return [Padded(x) for x in lax.switch(inputs[0].array, branches)]


def _arrays(program: Any, inputs: Sequence[Padded], room: Room) -> list[Any]:
    return [x.array for x in _run(program, inputs, room)]


_LOOPS: dict[str, Callable[..., list[Padded]]] = {"cond": _cond, "scan": _scan, "while": _while}


def _mentions(eqn: Any) -> bool:
    """Tells whether a symbolic size plays a part in an equation."""
    if any(symbolic_axes(sizes_of(v)) for v in (*eqn.invars, *eqn.outvars)) or _has_symbol(tuple(eqn.params.values())):
        return True
    return any(_mentions(inner) for jaxpr in jaxprs(eqn) for inner in jaxpr.eqns)


def _has_symbol(value: Any) -> bool:
    return any(map(_has_symbol, value)) if type(value) is tuple else is_symbolic(value)


# Zeros in, zeros out.
_KEEPS_ZEROS = {
    *("broadcast_in_dim", "concatenate", "convert_element_type", "copy", "dynamic_slice", "dynamic_update_slice"),
    *("neg", "reshape", "slice", "split", "squeeze", "transpose"),
}
