"""Turns a node into one call, whose function the package can import.

A public operator is called by its name: `jo.conv`. A version of an operator with another meaning is called as the
function of its opset: `opset9.Upsample`. If the opset does not have it (an operator of another domain or with
subgraphs, a type after `astype`, a file that breaks a rule of its opset), the function that computes it is called by
the name of its module.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

import jax
import numpy as np

from jaxops import ops
from jaxops.errors import UnsupportedError, symbols_in
from jaxops.jax_internals import evaluated
from jaxops.ops import microsoft, ml, openvino, preview, training
from jaxops.ops.math.exponentials import erfc
from jaxops.static import is_symbolic
from jaxops.tools.python.assumptions import Assumptions
from jaxops.tools.python.call_arguments import arguments
from jaxops.tools.python.expressions import Group, call, flat
from jaxops.tools.python.literals import short_float
from jaxops.tools.python.operands import FAILURES, Nested, Operand, abstract

_SPELLINGS = {
    "jo": ops,
    "jo.microsoft": microsoft,
    "jo.ml": ml,
    "jo.preview": preview,
    "jo.training": training,
    "jaxops.openvino.ops": openvino,
}
_PUBLIC = {
    getattr(module, name): f"{prefix}.{name}" for prefix, module in _SPELLINGS.items() for name in module.__all__
}
# An operator of files that the standard never had.
_PUBLIC[erfc] = "jax.lax.erfc"

# The number of elements of a static array that a size may be compared with.
_COMPARED = 16


@dataclass(frozen=True)
class Call:
    """A call of a function. module: to be imported for it. opset: the module and the number of its opset."""

    fn: Callable[..., Any]
    spelling: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    module: str = ""
    opset: tuple[str, int] | None = None


@dataclass(frozen=True)
class Statement:
    """A call as source, and its results."""

    call: Call
    expression: Group
    facts: Sequence[Any]  # for each result, an abstract value, a static array, or None if it is unknown
    static: bool  # whether the results are NumPy arrays
    unpacks: bool  # whether the call returns a tuple
    open_ended: bool  # whether the tuple may have more values than `facts`


def statement(
    node: Any,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    rng: Any,
    assumptions: Assumptions,
    results: Sequence[Any] | None = None,
    *,
    converted: bool = False,
) -> Statement:
    """The call that computes a node.

    assumptions: learns from the results. results: facts about the outputs of a node with subgraphs, if known.
    converted: whether the operands have other types than in the file.
    Raises UnsupportedError for a node that no function with a name computes.
    """
    operator = node.operator
    if getattr(operator, "straight_through", False):
        raise UnsupportedError(
            f"to_python: {_title(node)} has a straight-through derivative, which a package cannot have\n"
            "  hint    load the model without straight_through=True"
        )
    if getattr(operator, "fn", None) is None:
        raise UnsupportedError(
            f"to_python: {_title(node)} is not a call of a public operator\n"
            "  hint    write the model as it was loaded, and convert its parameters and inputs"
        )
    chosen = _chosen(node, inputs, attributes, rng, converted)
    expression = _with_floats(chosen)
    if getattr(operator, "flat_at_zero", False) and isinstance(inputs[0], Operand) and not inputs[0].static:
        expression = _flat_at_zero(expression)
    operands = [x for x in jax.tree.leaves((chosen.args, chosen.kwargs)) if isinstance(x, Operand)]
    static = all(x.static for x in operands)  # sizes, which the package may compare

    def failed(error: Exception) -> None:
        if static:
            assumptions.wanted(error)
        else:
            assumptions.failed(error, len(operands))

    outputs = _evaluated(chosen, failed)
    assumptions.learn(outputs)
    bodies = [(graph, operator.subgraphs[name]) for name, graph in node.subgraphs.items()]
    if bodies and not bodies[0][1].modifies:
        count = max(len(bodies[0][0].outputs) - bodies[0][1].leading, len(node.outputs))
        outputs = tuple(results or ()) if len(results or ()) == count else (None,) * count
    open_ended = outputs is None
    if open_ended:
        outputs = _unknown(chosen, operator, len(node.outputs))
        open_ended = isinstance(outputs, list)
    unpacks = isinstance(outputs, tuple | list)
    return Statement(chosen, expression, outputs if unpacks else [outputs], static, unpacks, open_ended)


def _title(node: Any) -> str:
    return f"node '{node.label}' ({node.operator.label})"


def _chosen(node: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], rng: Any, converted: bool) -> Call:
    """The call of a public operator or of a function of an opset, or else of the function that computes the node."""
    fn, kwargs = node.operator.fn, {}
    args: Sequence[Any] = ()

    def noted(*given: Any, **named: Any) -> tuple[()]:
        nonlocal args, kwargs
        args, kwargs = given, named
        return ()

    operator = node.operator.inner if getattr(node.operator, "flat_at_zero", False) else node.operator
    operator.with_function(noted).call(inputs, attributes, n_outputs=len(node.outputs), rng=rng)
    if fn is ops.reshape and _needs_no_zero(*args, **kwargs):
        kwargs["allowzero"] = 0
    if fn in _PUBLIC:
        return _without_key(Call(fn, _PUBLIC[fn], args, kwargs))
    module, name = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
    own = _without_key(Call(fn, f"{module}.{name}", args, kwargs, module))
    newest, of_opset = _newest(operator, args, kwargs), _of_opset(node, inputs, attributes, rng)
    if newest is not None and _agree(newest, own, len(node.outputs)):
        return newest
    if of_opset is not None:
        one, other = (_program(made, len(node.outputs)) for made in (of_opset, own))
        # If neither can be traced here, they are the same function all the same. An opset may only refuse a type that
        # the model has after `astype`.
        if one == other and not (one is None and converted):
            return of_opset
    if not name:
        raise UnsupportedError(
            f"to_python: {_title(node)} calls {fn}, which has no name and cannot be imported\n"
            "  hint    give `load` a function at the top of a module"
        )
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not fn:
        raise UnsupportedError(
            f"to_python: {_title(node)} calls {module}.{name}, which cannot be imported\n"
            "  hint    put the function at the top of a module that can be imported"
        )
    return own


def _newest(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
    """The call of the public operator, of which an older version computes a node, with equal arguments.

    None if there is none, or if it does not have these arguments.
    """
    fn, named = operator.function, {name: value for name, value in kwargs.items() if name != "n_outputs"}
    if fn not in _PUBLIC or not named.keys() <= inspect.signature(fn).parameters.keys():
        return None
    return _without_key(Call(fn, _PUBLIC[fn], args, named))


def _of_opset(node: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], rng: Any) -> Call | None:
    """The call of the function that an opset has for the operator of a node; None if it has none with its arguments."""
    operator, count = node.operator, len(node.outputs)
    if operator.public_opset is None:
        return None
    module, number = operator.public_opset
    fn = getattr(importlib.import_module(module).opset(number), operator.name)
    args, kwargs = operator.exact(inputs, attributes, count)
    while args and args[-1] is None:
        args = args[:-1]
    kwargs = {name: value for name, value in kwargs.items() if value is not None}
    least, most = operator.schema.output_counts
    if least != most and (most is None or count != max(least, 1)):
        kwargs["n_outputs"] = count
    if rng is not None:
        kwargs["rng"] = rng
    if not kwargs.keys() <= inspect.signature(fn).parameters.keys():  # a bound of `load`
        return None
    return _without_key(Call(fn, f"opset{number}.{operator.name}", args, kwargs, module, (module, number)))


def _without_key(made: Call) -> Call:
    """The call without a random key that it does not read; Dropout reads its key only in training."""
    if "rng" not in made.kwargs or (made.kwargs["rng"] is not None and _draws(made)):
        return made
    return replace(made, kwargs={name: value for name, value in made.kwargs.items() if name != "rng"})


def _unknown(made: Call, operator: Any, count: int) -> tuple[None, ...] | list[None] | None:
    """Placeholders for unknown results of a call: None for one, a tuple for several, a list for any number."""
    if made.opset is not None:
        least, most = operator.schema.output_counts
        count = least if least == most else count
        return (None,) * count if count > 1 or most is None else None
    annotation = inspect.signature(made.fn).return_annotation
    if get_origin(annotation) is tuple and Ellipsis not in get_args(annotation):
        return (None,) * len(get_args(annotation))
    several = get_origin(annotation) is tuple or (count > 1 and annotation in (Any, inspect.Signature.empty))
    if annotation is Any:  # flags determine the number of results
        flags = [name for name in inspect.signature(made.fn).parameters if name.startswith("return_")]
        several |= any(made.kwargs.get(name) for name in flags or ["training_mode"])
        several |= made.fn is microsoft.linear_attention_gate and len(made.args) > 3 and made.args[3] is not None
    return [None] * count if several else None


def _flat_at_zero(root: Group) -> Group:
    """The expression of a root of a sum of squares, with derivative zero at zero."""
    total, *axes = root.items
    one = f"lambda x: {flat(call(root.opening[:-1], ['x', *axes], root.labels))}" if axes else root.opening[:-1]
    return call("flat_at_zero", [one, total])


def _needs_no_zero(data: Any, shape: Any, *, allowzero: int = 0) -> bool:
    """Returns True if no 0 in `shape` would mean "the operand's size": each size there is the operand's own anyway."""
    if not isinstance(data, Operand) or data.fact is None or not isinstance(shape, np.ndarray):
        return False
    sizes_of_data = data.fact.shape
    sizes = enumerate(shape.tolist())
    return all(
        d != 0 if isinstance(d, int) else k < len(sizes_of_data) and str(sizes_of_data[k]) == str(d) for k, d in sizes
    )


def _with_floats(made: Call) -> Group:
    """The text of a call, with 0.1 in place of the nearest float32 if the traced program is the same."""
    args, kwargs = jax.tree.map(lambda x: short_float(x) if type(x) is float else x, (made.args, made.kwargs))
    same = repr((args, kwargs)) == repr((made.args, made.kwargs)) or (
        (program := _program(made)) is not None and program == _program(replace(made, args=args, kwargs=kwargs))
    )
    return arguments(made.fn, made.spelling, made.args, made.kwargs, short_floats=same)


def _flattened(made: Call) -> tuple[Callable[..., Any], list[Operand]] | None:
    """(The call as a function of its operands, the operands); None if one of them is not known well enough."""
    leaves, tree = jax.tree.flatten((made.args, made.kwargs))
    operands = [x for x in leaves if isinstance(x, Operand)]
    if any(isinstance(x, Nested) for x in leaves) or not all(x.traceable for x in operands):
        return None

    def run(*values: Any) -> Any:
        following = iter(values)
        args, kwargs = jax.tree.unflatten(tree, [next(following) if isinstance(x, Operand) else x for x in leaves])
        return made.fn(*args, **kwargs)

    return run, operands


def _traced(made: Call, outputs: int | None = None) -> Any:
    """(The traced program of a call, its operands); None if it cannot be traced here. outputs: the number to keep."""
    if (flattened := _flattened(made)) is None:
        return None
    run, operands = flattened

    def leaves(*values: Any) -> list[Any]:
        result = run(*values)
        return jax.tree.leaves(result[:outputs] if isinstance(result, tuple) else result)

    try:
        return jax.make_jaxpr(leaves)(*(x.fact for x in operands)), operands
    except FAILURES:
        return None


def _program(made: Call, outputs: int | None = None) -> Any:
    """The traced program of a call, in comparable form; None if it cannot be traced here."""
    traced = _traced(made, outputs)
    return traced and (str(traced[0].jaxpr), [np.asarray(x).tobytes() for x in traced[0].consts])


def _agree(one: Call, other: Call, outputs: int) -> bool:
    """Returns True if two calls are traced to one program, also with numbers in place of symbolic sizes.

    A function may ask whether two sizes are equal, which is False for symbolic ones that may be equal. So each number
    that a size may be compared with takes their place.
    """
    leaves: list[Any] = jax.tree.leaves((other.args, other.kwargs))
    compared: list[Any] = [d for x in leaves if isinstance(x, Operand) and x.traceable for d in x.fact.shape]
    for x in leaves:
        if not isinstance(x, Operand) and isinstance(x, int | np.ndarray):
            compared += np.asarray(x).reshape(-1)[:_COMPARED].tolist()
    numbers: list[Any] = [None]
    if any(map(is_symbolic, compared)):
        numbers += sorted({1, 2, *(v for v in compared if type(v) is int and v >= 0)})
    programs, expected = ([_program(_with_sizes(made, n), outputs) for n in numbers] for made in (one, other))
    return programs == expected and programs[0] is not None


def _with_sizes(made: Call, number: Any) -> Call:
    """The call with a number in place of each symbol in its sizes; unchanged for None."""

    def size(d: Any) -> Any:
        return evaluated(d, dict.fromkeys(symbols_in(d), number)) if is_symbolic(d) else d

    def fixed(x: Any) -> Any:
        if isinstance(x, Operand) and x.fact is not None:
            return replace(x, fact=jax.ShapeDtypeStruct(tuple(map(size, x.fact.shape)), x.fact.dtype))
        if isinstance(x, Operand) or not is_symbolic(x):
            return x
        return np.array([size(d) for d in np.ravel(x)], np.int64).reshape(np.shape(x))

    if number is None:
        return made
    args, kwargs = jax.tree.map(fixed, (made.args, made.kwargs))
    return replace(made, args=args, kwargs=kwargs)


def _draws(made: Call) -> bool:
    """Returns True if a call reads its random key, or may do so."""
    traced = _traced(made)
    if traced is None:
        return True
    program, operands = traced
    key = next(v for v, x in zip(program.jaxpr.invars, operands, strict=True) if x is made.kwargs["rng"])
    return any(key is operand for equation in program.jaxpr.eqns for operand in equation.invars)


def _evaluated(made: Call, failed: Callable[[Exception], None]) -> Any:
    """The results of a call: shapes and types, static arrays; None if they cannot be determined."""
    if (flattened := _flattened(made)) is None:
        return None
    run, operands = flattened
    return abstract(run, [x.fact for x in operands], failed)
