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
from jaxops.compiler.ir import interpret
from jaxops.compiler.padded.rules import NEUTRAL, RULES
from jaxops.compiler.padded.values import Capacity, Padded, bind
from jaxops.compiler.padded.windows import windowed_call
from jaxops.compiler.primitives import called_jaxpr, jaxprs, sizes_of, symbolic_axes
from jaxops.compiler.row_independence import independent_axes_of, is_row_wise
from jaxops.errors import UnsupportedError
from jaxops.kernels.named_call import named_call
from jaxops.static import is_symbolic, scan_operands


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
    if (inner := called_jaxpr(eqn)) is not None and (named_call(eqn) is None or _has_symbolic_size(eqn)):
        return windowed_call(eqn, inputs, capacity) or _run(inner, inputs, capacity)
    if not _has_symbolic_size(eqn):
        return bind(eqn, [x.array for x in inputs], capacity)
    if name in _LOOPS:
        return _LOOPS[name](eqn, inputs, capacity)
    sizes, arrays = [sizes_of(v) for v in eqn.invars], [x.array for x in inputs]
    # A cumulative sum depends on earlier elements only, so surplus elements do not change the true ones.
    if is_row_wise(eqn) or (name.startswith("cum") and not eqn.params["reverse"]):
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

    def condition(state: Any) -> Any:
        return _arrays(params["cond_jaxpr"], [*inputs[:constants], *map(Padded, state)], capacity)[0]

    def body(state: Any) -> Any:
        return _arrays(params["body_jaxpr"], [*inputs[constants:start], *map(Padded, state)], capacity)

    return [Padded(x) for x in lax.while_loop(condition, body, [x.array for x in inputs[start:]])]


def _cond(eqn: Any, inputs: list[Padded], capacity: Capacity) -> list[Padded]:
    branches = [functools.partial(_arrays, branch, inputs[1:], capacity) for branch in eqn.params["branches"]]
    return [Padded(x) for x in lax.switch(inputs[0].array, branches)]


def _arrays(program: Any, inputs: Sequence[Padded], capacity: Capacity) -> list[Any]:
    return [x.array for x in _run(program, inputs, capacity)]


_LOOPS: dict[str, Callable[..., list[Padded]]] = {"cond": _cond, "scan": _scan, "while": _while}


def _has_symbolic_size(eqn: Any) -> bool:
    """Tells whether an equation has symbolic sizes: in operands, results, parameters or inner programs."""
    sizes = [sizes_of(v) for v in (*eqn.invars, *eqn.outvars)]
    if any(map(is_symbolic, jax.tree.leaves((sizes, list(eqn.params.values()))))):
        return True
    return any(_has_symbolic_size(inner) for jaxpr in jaxprs(eqn) for inner in jaxpr.eqns)


# Primitives whose results are zero where their operands are.
_KEEPS_ZEROS = {
    *("broadcast_in_dim", "concatenate", "convert_element_type", "copy", "dynamic_slice", "dynamic_update_slice"),
    *("neg", "reshape", "slice", "split", "squeeze", "transpose"),
}
