"""Replaces named calls by the kernels for the machine that a program is compiled for.

Some kernels have no derivative and no batching rule, so JAX cannot transform a specialized program with them.
"""

import dataclasses
from typing import Any

import jax

from jaxops.compiler.ir import Operation, Program
from jaxops.compiler.primitives import CONTROL, called_jaxpr
from jaxops.jax_internals import closed_call_p
from jaxops.kernels.matmul.dot import dot_form
from jaxops.kernels.named_call import named_call
from jaxops.kernels.target import Target

# Primitives of `lax` that have kernels, too. Each function takes the target, the operands' types and the parameters.
_FORMS = {"dot_general": dot_form}


def select_kernels(program: Program, target: Target) -> Program:
    """Returns the program with a call of the target's form in place of each named call, in loops and branches too.

    An elementwise named call stays one operation, unless it was transformed by `grad` or `vmap`. Inside of a loop or a
    branch, nothing is prepared: what a form makes of weights there, it would make at each step.
    """
    selected: dict[tuple[int, bool], Any] = {}  # (identity of a jaxpr, whether prepared) → the jaxpr with kernels

    def jaxpr_of(jaxpr: Any, target: Target) -> Any:
        key = id(jaxpr), target.prepared
        if key not in selected:
            equations = [equation_of(eqn, target) for eqn in jaxpr.eqns]
            same = all(new is old for new, old in zip(equations, jaxpr.eqns, strict=True))
            selected[key] = jaxpr if same else jaxpr.replace(eqns=equations)
        return selected[key]

    def equation_of(eqn: Any, target: Target) -> Any:
        named, operands = named_call(eqn), [v.aval for v in eqn.invars]
        if named is None and eqn.primitive.name in _FORMS:
            form = _FORMS[eqn.primitive.name](target, operands, eqn.params)
            return eqn if form is None else called(eqn, jax.make_jaxpr(form)(*map(_plain_type, operands)))
        if named is None and not target.specialized and called_jaxpr(eqn, transformable=True) is None:
            return eqn  # named calls inside it select their kernels when they are lowered
        if named is None:
            inside = dataclasses.replace(target, prepared=False) if eqn.primitive.name in CONTROL else target
            params = {name: value_of(value, inside) for name, value in eqn.params.items()}
            changed = any(params[name] is not value for name, value in eqn.params.items())
            return eqn.replace(params=params) if changed else eqn
        call = eqn.params["call"]
        if named.elementwise and not call.transforms:
            return eqn
        return called(eqn, value_of(named.jaxpr(call, operands, target), target))

    def called(eqn: Any, kernel: Any) -> Any:
        return eqn.replace(primitive=closed_call_p, params={"call_jaxpr": kernel})

    def value_of(value: Any, target: Target) -> Any:
        if type(value) in (tuple, list):
            values = type(value)(value_of(v, target) for v in value)
            return value if all(new is old for new, old in zip(values, value, strict=True)) else values
        if hasattr(value, "consts"):
            jaxpr = jaxpr_of(value.jaxpr, target)
            return value if jaxpr is value.jaxpr else value.replace(jaxpr=jaxpr)
        return jaxpr_of(value, target) if hasattr(value, "eqns") else value

    operations = [
        Operation(equation_of(o.equation, target), o.operands, o.results, o.scope) for o in program.operations
    ]
    return program.replace(operations=operations)


def _plain_type(type: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(type.shape, type.dtype)
