"""Products of dequantized arrays become products of their integers, which the scales multiply afterwards.

A product of floats with dequantized blocks, such as weights of 4 bits, reads the packed integers if these are
prepared: floats of all of them would take eight times as many bytes.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.compiler.ir import Constant, Operand, Operation, Program, operation_of, run
from jaxops.compiler.primitives import DIFFERENTIATED, called_jaxpr, jaxprs
from jaxops.jax_internals import jaxpr_as_fun
from jaxops.kernels.convolution.convolve import convolution
from jaxops.kernels.convolution.integer import dequantized_convolution
from jaxops.kernels.dequantize import Quantized, dequantize
from jaxops.kernels.matmul.block_quantized import packed_product
from jaxops.kernels.matmul.int8 import dequantized_dot
from jaxops.kernels.named_call import named_call
from jaxops.kernels.target import Target

# Operations that move elements. If one scale belongs to all elements, they can move the integers instead.
_MOVES = {"broadcast_in_dim", "reshape", "squeeze", "transpose"}


def integer_products(program: Program, target: Target) -> Program:
    """Returns the program with integer products in place of matrix products and convolutions of dequantized arrays.

    Both operands must be dequantized. All other operations read the floats, and so does a loop or a branch whose
    operand is dequantized outside of it.
    """
    if not _dequantizes(o.equation for o in program.operations):
        return program
    types, operations = list(program.types), list[Any]()
    sources: dict[Any, Quantized] = {}  # a dequantized value → its integers, scale and zero point

    def type_of(v: Any) -> Any:
        return jax.typeof(v.value) if isinstance(v, Constant) else types[v]

    def moved(operation: Operation, operand: Operand) -> int:
        """Adds the operation for another operand; returns its result."""
        operations.append(operation_of(_only(operation), [operand], [len(types)], types, operation.scope))
        types.append(operations[-1].equation.outvars[0].aval)
        return len(types) - 1

    for operation in program.operations:
        equation, call = operation.equation, operation.params.get("call")
        leaves, tree = jax.tree.flatten([sources.get(v, v) for v in operation.operands])
        operands = jax.tree.unflatten(tree, map(type_of, leaves))
        if named_call(equation) is dequantize and not call.transforms:
            sources[operation.results[0]] = Quantized(operation.operands, **dict(call.static))
        elif (operand := _identity_of(operation)) in sources:
            sources[operation.results[0]] = sources[operand]
        elif operation.name in _MOVES and isinstance(operands[0], Quantized) and operands[0].has_one_scale:
            source = sources[operation.operands[0]]
            sources[operation.results[0]] = source.with_numbers(moved(operation, source.numbers))
        elif operation.name == "transpose" and isinstance(operands[0], Quantized) and operands[0].block:
            transposed = [moved(operation, v) for v in leaves]
            sources[operation.results[0]] = sources[operation.operands[0]].transposed(
                transposed, operation.params["permutation"]
            )
        elif len(leaves) > len(operands) and (form := _form(equation, operands, target)) is not None:
            values = [v for v in leaves if not isinstance(v, Constant)]
            fn = jax.jit(functools.partial(_call, form, tree, leaves))
            operation = operation_of(fn, values, operation.results, types, operation.scope)
        else:
            operation = dataclasses.replace(operation, equation=_with_programs(equation, target))
        operations.append(operation)
    return program.replace(operations=operations, types=types).needed()


def _dequantizes(equations: Iterable[Any]) -> bool:
    """Returns True if the equations, or those in their loops and branches, call `dequantize`."""
    for equation in equations:
        call = named_call(equation)
        if call is dequantize or (call is None and any(_dequantizes(inner.eqns) for inner in jaxprs(equation))):
            return True
    return False


def _identity_of(operation: Operation) -> Operand | None:
    """Returns the operand of a call that is an identity with a custom derivative; None for another operation."""
    closed = called_jaxpr(operation.equation) if operation.name in DIFFERENTIATED else None
    if closed is None or closed.jaxpr.outvars[0] not in closed.jaxpr.invars:
        return None
    return operation.operands[closed.jaxpr.invars.index(closed.jaxpr.outvars[0])]


def _only(operation: Operation) -> Callable[[Any], Any]:
    """Returns an operation with one operand as a function."""
    return lambda operand: operation.emit([operand])[0]


def _call(form: Callable[..., Any], tree: Any, leaves: Sequence[Operand], *values: Any) -> Any:
    """Calls a function of operands. Their leaves are the constants among `leaves`, which stay static, and `values`."""
    remaining = iter(values)
    static = (np.asarray(v.value, jax.typeof(v.value).dtype) if isinstance(v, Constant) else None for v in leaves)
    return form(*jax.tree.unflatten(tree, [next(remaining) if x is None else x for x in static]))


def _form(equation: Any, operands: Sequence[Any], target: Target) -> Callable[..., Any] | None:
    """Returns the function that computes an equation with integers; None if there is none.

    operands: each is a type, or a `Quantized` of types. The function takes arrays in place of the types.
    """
    x, w = operands if len(operands) == 2 else (None, None)
    if isinstance(w, Quantized) and w.block and target.prepared and equation.primitive.name == "dot_general":
        return packed_product(x, w, equation.params["dimension_numbers"])
    if isinstance(x, Quantized) and isinstance(w, Quantized) and not (x.block or w.block):
        if equation.primitive.name == "dot_general":
            return dequantized_dot(x, w, equation.params["dimension_numbers"])
        if named_call(equation) is convolution and not equation.params["call"].transforms:
            return dequantized_convolution(x, w, **dict(equation.params["call"].static))
    closed = called_jaxpr(equation)
    if not hasattr(closed, "consts"):
        return None

    def inside(*operands: Any) -> list[Any]:
        return jaxpr_as_fun(closed)(*(x.floats() if isinstance(x, Quantized) else x for x in operands))

    program = _program(inside, operands, target)
    # If the inner program also reads the floats, they are computed once, outside of it.
    return None if _dequantizes(o.equation for o in program.operations) else _function(program)


def _program(fn: Callable[..., Any], types: Sequence[Any], target: Target) -> Program:
    types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), types)
    return integer_products(Program.of(jax.make_jaxpr(fn)(*types)), target)


def _function(program: Program) -> Callable[..., list[Any]]:
    return lambda *operands: run(program, jax.tree.leaves(operands))


def _with_programs(equation: Any, target: Target) -> Any:
    """Returns an equation in whose inner programs products are integer products."""
    params = {name: _parameter(value, target) for name, value in equation.params.items()}
    changed = any(params[name] is not value for name, value in equation.params.items())
    return equation.replace(params=params) if changed else equation


def _parameter(value: Any, target: Target) -> Any:
    if type(value) in (tuple, list):
        values = type(value)(_parameter(item, target) for item in value)
        return value if all(new is old for new, old in zip(values, value, strict=True)) else values
    if not hasattr(value, "consts") or not _dequantizes(value.eqns):
        return value
    return jax.make_jaxpr(_function(_program(jaxpr_as_fun(value), value.in_avals, target)))(*value.in_avals)
