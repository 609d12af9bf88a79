"""Turns a node into calls of public operators.

The function of a node is either public, or an adapter that calls public functions (for an old version, or a choice of
outputs). An adapter runs on placeholders, and its calls are recorded. This works for every adapter that does not read
data; any other one raises UnsupportedError.
"""

import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import jax
import numpy as np

from jaxops import ops
from jaxops.dtypes import as_traced
from jaxops.errors import JaxopsError, SizeError, UnsupportedError
from jaxops.ops import microsoft, ml, openvino, preview, training
from jaxops.ops.math.exponentials import erfc
from jaxops.static import array, is_symbolic, known, static_array
from jaxops.tools.python.assumptions import Assumptions
from jaxops.tools.python.call_arguments import arguments, written
from jaxops.tools.python.expressions import Group, Ref, call, flat
from jaxops.tools.python.literals import short_float
from jaxops.tools.python.operands import FAILURES, Nested, Operand, Results, Unknown, abstract
from jaxops.tools.python.otherwise import OTHERWISE

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
# Functions that convert the operand at this position to an array; a placeholder counts as an array.
_CONVERSIONS = {array: 0, as_traced: 0, static_array: 0, known: 1}


@dataclass(frozen=True, eq=False)
class _Sealed:
    """Wraps a result while it passes through the operator, which would check its type."""

    value: Any


class _SealedOwn(_Sealed):
    """The placeholder of a user's operator, which must return values that have a type."""

    dtype = None


@dataclass
class Recorded:
    """A recorded call: its result values, and the expression of the call."""

    targets: list[str]
    expression: Group
    unpacks: bool = False  # the call returns a tuple
    open_ended: bool = False  # the tuple may have more values than targets


class Recorder:
    """Records the calls of public operators that one node makes, as steps."""

    def __init__(self, node: Any, prefix: str, assumptions: Assumptions, results: Sequence[Any] | None) -> None:
        """assumptions: learns from the results of calls. results: known facts about the outputs of a node with
        subgraphs.
        """
        self.node = node
        self._assumptions = assumptions
        self._results = results
        self.prefix = prefix
        self.steps: list[Recorded] = []
        self.modules: list[str] = []  # of functions that `load` was given
        self._rebuilt: dict[Any, Any] = {}

    def run(self, inputs: Sequence[Any], attributes: Mapping[str, Any], rng: Any) -> list[Any]:
        """The outputs of the node as operands or static values. Raises UnsupportedError if an adapter reads data."""
        operator = self.node.operator
        if getattr(operator, "straight_through", False):
            raise UnsupportedError(
                f"to_python: {self._what()} has a straight-through derivative, which a package cannot have\n"
                "  hint    load the model without straight_through=True"
            )
        if getattr(operator, "fn", None) is None:
            raise UnsupportedError(
                f"to_python: {self._what()} is not a call of a public operator\n"
                "  hint    write the model as it was loaded, and convert its parameters and inputs"
            )
        fn = self._replaced(operator.fn)
        if fn is operator.fn:
            raise UnsupportedError(
                f"to_python: {self._what()} calls {operator.fn}, which has no name and cannot be imported\n"
                "  hint    give `load` a function at the top of a module"
            )

        seal = _SealedOwn if _is_own(operator.fn) or operator.fn is erfc else _Sealed

        @functools.wraps(operator.fn)
        def sealed(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            return tuple(map(seal, result)) if isinstance(result, tuple) else seal(result)

        recorded = operator.with_function(sealed)
        try:
            outputs = recorded.call(inputs, attributes, n_outputs=len(self.node.outputs), rng=rng)
        except (TypeError, AttributeError, SizeError) as error:
            self._assumptions.failed(error)
            if isinstance(error, JaxopsError) and not isinstance(error, SizeError | Unknown):
                raise
            return self._otherwise(inputs, attributes, rng, error)
        if getattr(operator, "flat_at_zero", False) and isinstance(inputs[0], Operand) and not inputs[0].static:
            self.steps[-1].expression = _flat_at_zero(self.steps[-1].expression)
        return [item.value for item in outputs]

    def _otherwise(self, inputs: Sequence[Any], attributes: Mapping[str, Any], rng: Any, error: Exception) -> Any:
        """The outputs for an adapter that raised `error`, since it needs values that are known only in the package."""
        operator, count = self.node.operator, len(self.node.outputs)
        special = OTHERWISE.get(operator.fn.__name__, lambda *_: None)(inputs, attributes, count)
        if special is not None:
            self.steps = [Recorded([], special[0])]
            return self._made(self.steps[0], special[1] or self._results or [None] * count, True)
        if not operator.spelling:
            self._assumptions.assume_wanted()
            raise UnsupportedError(
                f"to_python: {self._what()} is computed from the shapes or values of its operands, which are not known "
                f"here ({error}); no call of the newest operators computes the same\n"
                "  hint    convert the model to a newer opset; onnx.version_converter does it for ONNX"
            ) from error
        named = {name: x for name, x in attributes.items() if x is not None}
        if operator.schema.output_counts[0] != operator.schema.output_counts[1]:
            named["n_outputs"] = count
        if rng is not None:
            named["rng"] = rng
        items = [written(x, Any) for x in (*inputs, *named.values())]
        self.steps = [Recorded([], call(operator.spelling, items, [""] * len(inputs) + list(named)))]
        variadic = operator.schema.output_counts[1] is None
        return self._made(self.steps[0], [None] * count, count > 1 or variadic)

    def _what(self) -> str:
        return f"node '{self.node.label}' ({self.node.operator.label})"

    def _replaced(self, value: Any) -> Any:
        """The recording substitute, in an adapter, for a public operator, a helper, or a module of operators."""
        if isinstance(value, types.ModuleType) and any(value is module for module in _SPELLINGS.values()):
            return _Operators(self, value)
        if not isinstance(value, types.FunctionType):
            return value
        if value in _PUBLIC:
            return self._recording(value, _PUBLIC[value])
        if value in _CONVERSIONS:
            return _passing(value, _CONVERSIONS[value])
        if value is self.node.operator.fn and _is_own(value):
            return self._recording(value, self._own(value))
        if value.__module__.rpartition(".")[0] == self.node.operator.fn.__module__.rpartition(".")[0]:
            return self._rebuild(value)
        return value

    def _own(self, fn: types.FunctionType) -> str:
        """The dotted name by which a function that a caller passed to `load` can be imported."""
        module = sys.modules.get(fn.__module__)
        if fn.__module__ == "__main__" or getattr(module, fn.__qualname__, None) is not fn:
            raise UnsupportedError(
                f"to_python: {self._what()} calls {fn.__module__}.{fn.__qualname__}, which cannot be imported\n"
                "  hint    put the function at the top of a module that can be imported"
            )
        self.modules.append(fn.__module__)
        return f"{fn.__module__}.{fn.__qualname__}"

    def _rebuild(self, fn: types.FunctionType) -> Callable[..., Any]:
        """A copy of an adapter, or of its helper, that calls recording functions."""
        if fn in self._rebuilt:
            return self._rebuilt[fn]
        names: dict[str, Any] = {}
        cells = tuple(types.CellType() for _ in fn.__closure__ or ())
        copy = types.FunctionType(fn.__code__, names, fn.__name__, fn.__defaults__, cells or None)
        copy.__kwdefaults__, copy.__annotations__ = fn.__kwdefaults__, fn.__annotations__
        self._rebuilt[fn] = copy
        names["__builtins__"] = fn.__globals__["__builtins__"]
        used = set(_names(fn.__code__))
        names.update({name: self._replaced(v) for name, v in fn.__globals__.items() if name in used})
        for cell, original in zip(cells, fn.__closure__ or (), strict=True):
            cell.cell_contents = self._replaced(original.cell_contents)
        return copy

    def _recording(self, fn: Callable[..., Any], spelling: str) -> Callable[..., Any]:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            leaves = jax.tree.leaves((args, kwargs))
            recorded = fn is self.node.operator.fn or any(isinstance(leaf, Operand | Nested) for leaf in leaves)
            if not recorded and any(map(is_symbolic, leaves)):  # it makes an array of sizes
                recorded = not _is_static(_evaluated(fn, args, kwargs, lambda _: None))
            results = None if recorded else fn(*args, **kwargs)
            recorded |= any(isinstance(x, jax.Array) for x in jax.tree.leaves(results))  # of constants
            return self._record(fn, spelling, args, kwargs) if recorded else results

        return run

    def _record(self, fn: Callable[..., Any], spelling: str, args: Any, kwargs: Any) -> Any:
        if fn is ops.reshape and _needs_no_zero(*args, **kwargs):
            kwargs = {**kwargs, "allowzero": 0}
        if "rng" in kwargs and (kwargs["rng"] is None or not _draws(fn, args, kwargs)):
            kwargs = {name: value for name, value in kwargs.items() if name != "rng"}
        step = Recorded([], _with_floats(fn, spelling, args, kwargs))
        self.steps.append(step)
        operands = [x for x in jax.tree.leaves((args, kwargs)) if isinstance(x, Operand)]
        static = all(x.static for x in operands)  # sizes, which the package may compare
        failed = functools.partial(self._assumptions.failed, operands=len(operands))
        outputs = _evaluated(fn, args, kwargs, self._assumptions.wanted if static else failed)
        self._assumptions.learn(outputs)
        bodies = [(graph, self.node.operator.subgraphs[name]) for name, graph in self.node.subgraphs.items()]
        if bodies and not bodies[0][1].modifies:
            count = len(bodies[0][0].outputs) - bodies[0][1].leading
            results = tuple(self._results or ())
            outputs = results if len(results) == count else (None,) * count
        if outputs is None:
            outputs = self._unknown(fn, args, kwargs)
            step.open_ended = isinstance(outputs, list)
        if outputs is None:
            step.targets = [f"{self.prefix}#{len(self.steps)}.0"]
            return Results(Ref(step.targets[0]), static=static, step=step)
        several = isinstance(outputs, tuple | list)
        operands = self._made(step, outputs if several else [outputs], several)
        return tuple(operands) if several else operands[0]

    def _unknown(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[None, ...] | list[None] | None:
        """Placeholders for unknown results of a call: None for one, a tuple for several, a list for any number."""
        count = len(self.node.outputs)
        annotation = inspect.signature(fn).return_annotation
        if get_origin(annotation) is tuple and Ellipsis not in get_args(annotation):
            return (None,) * len(get_args(annotation))
        several = get_origin(annotation) is tuple or (count > 1 and annotation in (Any, inspect.Signature.empty))
        if annotation is Any:  # flags determine the number of results
            flags = [name for name in inspect.signature(fn).parameters if name.startswith("return_")]
            several |= any(kwargs.get(name) for name in flags or ["training_mode"])
            several |= fn is microsoft.linear_attention_gate and len(args) > 3 and args[3] is not None
        return [None] * count if several else None

    def _made(self, step: Recorded, facts: Sequence[Any], unpacks: bool) -> list[Any]:
        """The results of a step. facts: known about each of them."""
        step.unpacks = unpacks
        step.targets = [f"{self.prefix}#{len(self.steps)}.{k}" for k in range(len(facts))]
        return [
            fact if isinstance(fact, np.ndarray) else Operand(Ref(target), _traced(fact))
            for target, fact in zip(step.targets, facts, strict=True)
        ]


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


def _traced(fact: Any) -> Any:
    return fact if isinstance(fact, jax.ShapeDtypeStruct) else None


@dataclass(frozen=True)
class _Operators:
    """A module of operators whose functions record."""

    recorder: Recorder
    module: types.ModuleType

    def __getattr__(self, name: str) -> Any:
        return self.recorder._replaced(getattr(self.module, name))


def _names(code: types.CodeType) -> Any:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _passing(fn: Callable[..., Any], position: int) -> Callable[..., Any]:
    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        value = args[position]
        return value if isinstance(value, Operand) else fn(*args, **kwargs)

    return run


def _with_floats(fn: Callable[..., Any], spelling: str, args: Any, kwargs: Any) -> Group:
    """The text of a call, with 0.1 in place of the nearest float32 if the traced program is the same."""
    rounded = jax.tree.map(lambda x: short_float(x) if type(x) is float else x, (args, kwargs))
    same = repr(rounded) == repr((args, kwargs)) or (
        (program := _program(fn, args, kwargs)) is not None and program == _program(fn, *rounded)
    )
    return arguments(fn, spelling, args, kwargs, short_floats=same)


def _program(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The traced program of a call, in comparable form; None if its operands are not known well enough."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    if any(isinstance(x, Nested) or (isinstance(x, Operand) and not x.traceable) for x in leaves):
        return None
    try:
        program = jax.make_jaxpr(lambda *xs: jax.tree.leaves(_call(fn, tree, leaves, iter(xs))))(
            *(x.fact for x in leaves if isinstance(x, Operand))
        )
    except FAILURES:
        return None
    return str(program.jaxpr), [np.asarray(x).tobytes() for x in program.consts]


def _evaluated(fn: Callable[..., Any], args: Any, kwargs: Any, failed: Callable[[Exception], None]) -> Any:
    """The results of a call: shapes and types, static arrays; None if they cannot be determined."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    if any(isinstance(x, Nested) or (isinstance(x, Operand) and not x.traceable) for x in leaves):
        return None
    traced = [x.fact for x in leaves if isinstance(x, Operand)]
    return abstract(lambda *xs: _call(fn, tree, leaves, iter(xs)), traced, failed)


def _is_static(outputs: Any) -> bool:
    """Returns True for results that are known, such as sizes of sizes."""
    return all(isinstance(value, np.ndarray) for value in (outputs if isinstance(outputs, tuple | list) else [outputs]))


def _draws(fn: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Returns True if a call reads its random key; Dropout does not, unless it is training."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    if any(isinstance(x, Nested) or (isinstance(x, Operand) and not x.traceable) for x in leaves):
        return True
    operands = [x for x in leaves if isinstance(x, Operand)]
    try:
        traced = jax.make_jaxpr(lambda *xs: jax.tree.leaves(_call(fn, tree, leaves, iter(xs))))(
            *(x.fact for x in operands)
        )
    except FAILURES:
        return True
    key = next(v for v, x in zip(traced.jaxpr.invars, operands, strict=True) if x is kwargs["rng"])
    return any(key is operand for equation in traced.jaxpr.eqns for operand in equation.invars)


def _call(fn: Callable[..., Any], tree: Any, leaves: Sequence[Any], values: Any) -> Any:
    args, kwargs = jax.tree.unflatten(tree, [next(values) if isinstance(x, Operand) else x for x in leaves])
    return fn(*args, **kwargs)


def _is_own(fn: Any) -> bool:
    return fn.__module__.partition(".")[0] != "jaxops"
