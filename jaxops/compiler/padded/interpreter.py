"""Runs a traced program of symbolic sizes on padded arrays, so that one compiled program serves every size.

Each value is an array with room for the largest size. Along an axis of symbolic size n, its first n elements are the
true ones, and surplus elements follow them. An operation that computes each entry of such an axis separately runs
unchanged. An operation that combines entries (a sum, a matrix product, a concatenation) leaves the surplus ones out.
So the results are exact for every model.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.compiler.axis_rules import dependent_axes
from jaxops.compiler.ir import emitted, interpret
from jaxops.compiler.padded.rules import NEUTRAL, RULES
from jaxops.compiler.padded.values import Capacity, Padded, bind, guarded
from jaxops.compiler.padded.windows import windowed_call
from jaxops.compiler.primitives import called_jaxpr, jaxprs, sizes_of, symbolic_axes
from jaxops.compiler.row_independence import independent_axes_of, is_row_wise
from jaxops.errors import UnsupportedError
from jaxops.jax_internals import scan_operands
from jaxops.static import is_symbolic


def run_padded(closed: Any, inputs: Sequence[Any], capacity: Capacity) -> list[Padded]:
    """Returns the results of a closed jaxpr. inputs: arrays whose surplus elements are zero.

    Raises UnsupportedError for an operation that combines entries of a symbolic axis and has no rule.
    """

    def compute(eqn: Any, operands: list[Padded]) -> list[Padded]:
        scope = str(eqn.source_info.name_stack)
        with jax.named_scope(scope):
            try:
                return _evaluate(eqn, operands, capacity)
            except UnsupportedError as error:
                raise UnsupportedError(f"{error}\n  in      {scope}" if scope else str(error)) from None

    return interpret(closed, [Padded(x, zeroed=True) for x in inputs], compute, _constant)


def _run(program: Any, inputs: Sequence[Padded], capacity: Capacity) -> list[Padded]:
    return interpret(program, inputs, lambda eqn, operands: _evaluate(eqn, operands, capacity), _constant)


def _constant(value: Any, type: Any) -> Padded:
    return Padded(value if isinstance(value, jax.Array) else jnp.asarray(value, type.dtype), zeroed=True)


def _evaluate(eqn: Any, inputs: list[Padded], capacity: Capacity) -> list[Padded]:
    name = eqn.primitive.name
    if name == "dim_as_value":
        return [Padded(jnp.asarray(capacity.true_size(eqn.params["dim"])), zeroed=True)]
    if name in _COUNTS:
        return [_COUNTS[name](eqn, inputs, capacity)]
    if not _has_symbolic_size(eqn, capacity):
        return [Padded(y, zeroed=True) for y in emitted(eqn, [x.array for x in inputs])]
    if name == "custom_jvp_call" and capacity.differentiable:
        return _with_own_derivative(eqn, inputs, capacity)
    if (inner := called_jaxpr(eqn)) is not None:
        return windowed_call(eqn, inputs, capacity) or _run(inner, inputs, capacity)
    results = _computed(eqn, inputs, capacity)
    if capacity.differentiable:
        results = [guarded(y, sizes_of(v), capacity) for y, v in zip(results, eqn.outvars, strict=True)]
    return results


def _computed(eqn: Any, inputs: list[Padded], capacity: Capacity) -> list[Padded]:
    """Returns the results of an operation with a symbolic size that is no call."""
    name = eqn.primitive.name
    if name in _LOOPS:
        return _LOOPS[name](eqn, inputs, capacity)
    sizes, arrays = [sizes_of(v) for v in eqn.invars], [x.array for x in inputs]
    # A cumulative sum depends on earlier elements only, so surplus elements do not change the true ones.
    if capacity.differentiable and name in _BY_OTHERS:
        inputs = [Padded(x.masked(s, symbolic_axes(s), 0, capacity)) for x, s in zip(inputs, sizes, strict=True)]
        arrays = [x.array for x in inputs]
    forward = name.startswith("cum") and not eqn.params["reverse"] and not capacity.differentiable
    if is_row_wise(eqn) or forward:
        zeroed = name in _KEEPS_ZEROS and all(x.zeroed for x in inputs)
        if name == "broadcast_in_dim":
            zeroed = zeroed and len(symbolic_axes(sizes[0])) == len(symbolic_axes(eqn.params["shape"]))
        return bind(eqn, arrays, capacity, zeroed)
    if name in NEUTRAL:
        fill, axes = NEUTRAL[name](eqn.invars[0].aval.dtype), independent_axes_of(eqn)
        masked = (
            x.masked(s, dependent_axes(axes, k, s), fill, capacity)
            for k, (x, s) in enumerate(zip(inputs, sizes, strict=True))
        )
        return bind(eqn, list(masked), capacity)
    problem = f"`{name}` works along an axis whose size differs from call to call"
    if name not in RULES:
        raise UnsupportedError(f"{problem}; that is not supported")
    try:
        results = RULES[name](eqn, inputs, sizes, capacity)
    except UnsupportedError as error:
        raise UnsupportedError(f"{problem}: {error}") from None
    return results if isinstance(results, list) else [results]


def _counted(eqn: Any, inputs: list[Padded], capacity: Capacity) -> Padded:
    """Gives a padded result its symbolic size. Without a second operand, the true size is not known."""
    for size in inputs[1:]:
        capacity.learn(eqn.params["symbol"], size.array)
    return Padded(inputs[0].array)


def _with_surplus(eqn: Any, inputs: list[Padded], capacity: Capacity) -> Padded:
    return Padded(inputs[0].array, zeroed=True)


def _with_own_derivative(eqn: Any, inputs: list[Padded], capacity: Capacity) -> list[Padded]:
    """Runs a call with a custom derivative, which is run on padded arrays, too."""
    types = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    inner, moving = called_jaxpr(eqn), [k for k, x in enumerate(types) if _is_inexact(x)]
    results = [k for k, v in enumerate(eqn.outvars) if _is_inexact(v.aval)]

    def derivative(values: Sequence[Any], directions: Sequence[Any]) -> Any:
        tangents = [np.zeros(x.shape, jax.dtypes.float0) for x in types]
        for k, direction in zip(moving, directions, strict=True):
            tangents[k] = direction
        after, moved = jax.jvp(lambda *arrays: emitted(eqn, arrays), values, tangents)
        return [*after, *(moved[k] for k in results)]

    @jax.custom_jvp
    def call(*arrays: Any) -> list[Any]:
        return _arrays(inner, list(map(Padded, arrays)), capacity)

    @call.defjvp
    def _(arrays: Any, tangents: Any) -> Any:
        program = jax.make_jaxpr(derivative)(types, [types[k] for k in moving])
        directions = [tangents[k] for k in moving]
        values = _arrays(program, list(map(Padded, (*arrays, *directions))), capacity)
        after, moved = values[: len(eqn.outvars)], iter(values[len(eqn.outvars) :])
        rest = [next(moved) if k in results else np.zeros(y.shape, jax.dtypes.float0) for k, y in enumerate(after)]
        return after, rest

    return list(map(Padded, call(*(x.array for x in inputs))))


def _is_inexact(type: Any) -> bool:
    return jnp.issubdtype(type.dtype, np.inexact)


def _scan(eqn: Any, inputs: list[Padded], capacity: Capacity) -> list[Padded]:
    """Runs a scan. If its length is symbolic, the steps at surplus elements leave the state as it is."""
    params = eqn.params
    constants, carry = scan_operands(params)
    carried = constants + carry
    count = capacity.count(params["length"])

    def step(state: Any, numbered: Any) -> Any:
        number, slices = numbered
        results = _arrays(params["jaxpr"], [*inputs[:constants], *map(Padded, (*state, *slices))], capacity)
        after, rows = results[: len(state)], results[len(state) :]
        if is_symbolic(params["length"]):
            after = [jnp.where(number < count, new, old) for new, old in zip(after, state, strict=True)]
        return after, rows

    numbers = lax.iota(np.int32, capacity.of(params["length"]))
    state, slices = ([x.array for x in part] for part in (inputs[constants:carried], inputs[carried:]))
    last, rows = lax.scan(step, state, (numbers, slices), reverse=params["reverse"], unroll=params["unroll"])
    return [Padded(x) for x in (*last, *rows)]


def _while(eqn: Any, inputs: list[Padded], capacity: Capacity) -> list[Padded]:
    params = eqn.params
    constants, start = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    sizes = params["cond_jaxpr"].out_avals[0].shape  # of `jax.vmap`: each entry goes on for itself

    def goes_on(state: Any) -> Any:
        (flags,) = _run(params["cond_jaxpr"], [*inputs[:constants], *map(Padded, state)], capacity)
        return flags.masked(sizes, symbolic_axes(sizes), False, capacity)

    def body(state: Any) -> Any:
        after = _arrays(params["body_jaxpr"], [*inputs[constants:start], *map(Padded, state)], capacity)
        if not sizes:
            return after
        flags = goes_on(state)
        chosen = [jnp.expand_dims(flags, tuple(range(flags.ndim, x.ndim))) for x in after]
        return [jnp.where(now, new, old) for now, new, old in zip(chosen, after, state, strict=True)]

    return [
        Padded(x) for x in lax.while_loop(lambda state: goes_on(state).any(), body, [x.array for x in inputs[start:]])
    ]


def _cond(eqn: Any, inputs: list[Padded], capacity: Capacity) -> list[Padded]:
    branches = [functools.partial(_arrays, branch, inputs[1:], capacity) for branch in eqn.params["branches"]]
    return [Padded(x) for x in lax.switch(inputs[0].array, branches)]


def _arrays(program: Any, inputs: Sequence[Padded], capacity: Capacity) -> list[Any]:
    return [x.array for x in _run(program, inputs, capacity)]


_COUNTS: dict[str, Callable[..., Padded]] = {"counted": _counted, "padded": _with_surplus}
# Products: the derivative by one operand reads the other one, so neither may have a NaN among its surplus elements.
_BY_OTHERS = {"conv_general_dilated", "dot_general"}
_LOOPS: dict[str, Callable[..., list[Padded]]] = {"cond": _cond, "scan": _scan, "while": _while}


def _has_symbolic_size(eqn: Any, capacity: Capacity) -> bool:
    """Returns True if an equation has sizes that vary: in operands, results, parameters or inner programs."""
    sizes = [sizes_of(v) for v in (*eqn.invars, *eqn.outvars)]
    if any(map(capacity.varies, jax.tree.leaves((sizes, list(eqn.params.values()))))):
        return True
    return any(_has_symbolic_size(inner, capacity) for jaxpr in jaxprs(eqn) for inner in jaxpr.eqns)


# Primitives whose results are zero if their operands are.
_KEEPS_ZEROS = {
    *("broadcast_in_dim", "concatenate", "convert_element_type", "copy", "dynamic_slice", "dynamic_update_slice"),
    *("neg", "reshape", "slice", "split", "squeeze", "transpose"),
}
