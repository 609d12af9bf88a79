"""What a node becomes: calls of public operators.

The function of a node is either public itself, or it translates an old version, or a choice of outputs, to public ones.
Such an adapter is run on placeholders, and the calls that it makes are what is written. So every adapter is covered
that makes its calls without looking at data; for one that does look, UnsupportedError says so.
"""

import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

import jax
import numpy as np

from jaxops import ops
from jaxops.dtypes import as_traced
from jaxops.errors import JaxopsError, UnsupportedError
from jaxops.ops import microsoft, ml, preview, training
from jaxops.static import ELEMENT_TYPE, STATIC, array, is_symbolic, known, settled
from jaxops.tools.python.expressions import Expression, Group, Ref, call, sequence
from jaxops.tools.python.literals import literal, written_sizes
from jaxops.tools.python.operands import FAILURES, Nested, Operand, Results, abstract

_SPELLINGS = {"jo": ops, "jo.microsoft": microsoft, "jo.ml": ml, "jo.preview": preview, "jo.training": training}
_PUBLIC = {
    getattr(module, name): f"{prefix}.{name}" for prefix, module in _SPELLINGS.items() for name in module.__all__
}
# Functions that turn an operand into an array, at the given position; a placeholder is one.
_CONVERSIONS = {array: 0, as_traced: 0, settled: 0, known: 2}


@dataclass(frozen=True, eq=False)
class _Sealed:
    """A result on its way out of an operator, which would check its type."""

    value: Any


class _SealedOwn(_Sealed):
    """That of an operator of one's own, which must return what has a type."""

    dtype = None


@dataclass
class Recorded:
    """A call that a node makes: values, and the expression that makes them."""

    targets: list[str]
    expression: Group
    unpacks: bool = False  # whether it gives a tuple
    rest: bool = False  # whether the tuple may have more values than targets


class Recorder:
    """Records the calls of public operators that one node makes, as steps."""

    def __init__(self, node: Any, prefix: str, found: Callable[[Any, Any], None]) -> None:
        """found: is told what each call gives for which operands."""
        self.node = node
        self._found = found
        self.prefix = prefix
        self.steps: list[Recorded] = []
        self._rebuilt: dict[Any, Any] = {}

    def run(self, inputs: Sequence[Any], attributes: Mapping[str, Any], rng: Any) -> list[Any]:
        """The outputs of the node as operands, or static values. Raises UnsupportedError."""
        operator = self.node.operator
        if getattr(operator, "fn", None) is None:
            raise UnsupportedError(
                f"to_python: {self._what()} is not a call of a public operator\n"
                "  hint    write the model as it was loaded, and convert its parameters and inputs"
            )
        fn = self._replaced(operator.fn)
        if fn is operator.fn:
            raise UnsupportedError(f"to_python: {self._what()} is done by {operator.fn}, which cannot be imported")

        seal = _SealedOwn if _is_own(operator.fn) else _Sealed

        @functools.wraps(operator.fn)
        def sealed(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            return tuple(map(seal, result)) if isinstance(result, tuple) else seal(result)

        recorded = replace(operator, fn=sealed)
        try:
            found = recorded.call(inputs, attributes, n_outputs=len(self.node.outputs), rng=rng)
        except (TypeError, AttributeError) as error:
            if isinstance(error, JaxopsError):
                raise
            raise UnsupportedError(
                f"to_python: {self._what()} is computed from the shapes or values of its operands, which are not known "
                f"here ({error}); no call of the newest operators says the same\n"
                "  hint    convert the model to a newer opset (onnx.version_converter)"
            ) from error
        if self.steps and len(self.node.outputs) == 1:
            _without_unread(self.steps[-1])
        return [item.value for item in found]

    def _what(self) -> str:
        return f"node '{self.node.label}' ({self.node.operator.label})"

    def _replaced(self, value: Any) -> Any:
        """What stands in an adapter for a public operator, a helper of the adapter, or a module of operators."""
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
        """How a function that `load` was given is found again."""
        found = sys.modules.get(fn.__module__)
        if fn.__module__ == "__main__" or getattr(found, fn.__qualname__, None) is not fn:
            raise UnsupportedError(
                f"to_python: {self._what()} is done by {fn.__module__}.{fn.__qualname__}, which cannot be imported\n"
                "  hint    put the function at the top of a module of its own"
            )
        return f"{fn.__module__}.{fn.__qualname__}"

    def _rebuild(self, fn: types.FunctionType) -> Callable[..., Any]:
        """A copy of an adapter, or of its helper, that calls what records."""
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
            symbolic = any(isinstance(leaf, Operand | Nested) for leaf in jax.tree.leaves((args, kwargs)))
            if not symbolic and fn is not self.node.operator.fn:
                return fn(*args, **kwargs)
            return self._record(fn, spelling, args, kwargs)

        return run

    def _record(self, fn: Callable[..., Any], spelling: str, args: Any, kwargs: Any) -> Any:
        if fn is ops.reshape and _needs_no_zero(*args, **kwargs):
            kwargs = {**kwargs, "allowzero": 0}
        if "rng" in kwargs and not _draws(fn, args, kwargs):
            kwargs = {name: value for name, value in kwargs.items() if name != "rng"}
        step = Recorded([], arguments(fn, spelling, args, kwargs))
        self.steps.append(step)
        outputs = _evaluated(fn, args, kwargs)
        self._found([x.fact for x in jax.tree.leaves((args, kwargs)) if isinstance(x, Operand)], outputs)
        count = len(self.node.outputs)
        bodies = [(graph, self.node.operator.subgraphs[name]) for name, graph in self.node.subgraphs.items()]
        if bodies and not bodies[0][1].modifies:
            outputs = (None,) * (len(bodies[0][0].outputs) - bodies[0][1].own)
        if isinstance(outputs, tuple):
            facts = list(outputs)
        elif outputs is None and count > 1:
            facts, step.rest = [None] * count, True
        else:
            facts = [outputs]
        step.unpacks = isinstance(outputs, tuple) or step.rest
        step.targets = [f"{self.prefix}#{len(self.steps)}.{k}" for k in range(len(facts))]
        found = tuple(
            fact if isinstance(fact, np.ndarray) and _can_be_written(fact) else Operand(Ref(target), _traced(fact))
            for target, fact in zip(step.targets, facts, strict=True)
        )
        if outputs is None and not step.unpacks:
            return Results(Ref(step.targets[0]), step=step)
        return found if step.unpacks else found[0]


def _without_unread(step: Recorded) -> None:
    """A call of which the first value alone is read: without the flags that ask for others."""
    asks = [label.startswith("return_") and item == "True" for label, item in step.expression.labelled()]
    if step.unpacks and any(asks):
        kept = [(k, item) for k, item in enumerate(step.expression.items) if not asks[k]]
        labels = [step.expression.labels[k] for k, _ in kept]
        step.expression = call(step.expression.opening[:-1], [item for _, item in kept], labels)
        step.targets, step.unpacks, step.rest = step.targets[:1], False, False


def _needs_no_zero(data: Any, shape: Any, *, allowzero: int = 0) -> bool:
    """Whether 0 may stand for the size that the operand has: where that is the size that is asked for."""
    if not isinstance(data, Operand) or data.fact is None or not isinstance(shape, np.ndarray):
        return False
    own = data.fact.shape
    sizes = enumerate(shape.tolist())
    return all(d != 0 if isinstance(d, int) else k < len(own) and str(own[k]) == str(d) for k, d in sizes)


def _can_be_written(value: np.ndarray) -> bool:
    return not is_symbolic(value) or written_sizes(value) is not None


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


def arguments(fn: Callable[..., Any], spelling: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Group:
    """A call as it is written: without arguments that equal their default, positional ones first."""
    bound = inspect.signature(fn).bind(*args, **kwargs)
    items: list[Expression] = []
    labels: list[str] = []
    skipped = False
    for name, parameter in bound.signature.parameters.items():
        if name not in bound.arguments or _same(bound.arguments[name], parameter.default):
            skipped = True
            continue
        if fn is ops.slice and name == "steps" and np.all(np.equal(bound.arguments[name], 1)):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            items += [written(item, parameter.annotation) for item in bound.arguments[name]]
            labels += [""] * len(bound.arguments[name])
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            items += [written(item, parameter.annotation) for item in bound.arguments[name].values()]
            labels += bound.arguments[name]
            continue
        positional = parameter.kind is not parameter.KEYWORD_ONLY and not skipped
        items.append(written(bound.arguments[name], parameter.annotation))
        labels.append("" if positional else name)
    return call(spelling, items, labels)


def _same(value: Any, default: Any) -> bool:
    if default is None or value is None:
        return default is value
    if isinstance(value, np.dtype) and isinstance(default, type | np.dtype):
        return value == np.dtype(default)
    return type(value) is type(default) and isinstance(value, int | float | str) and value == default


def written(value: Any, annotation: Any) -> Expression:
    """An argument as it is written."""
    if isinstance(value, Operand):
        return value.expression
    if isinstance(value, Nested):
        return value.name
    if isinstance(value, list | tuple) and any(isinstance(item, Operand | np.ndarray) for item in value):
        inner = get_args(annotation)[0] if get_args(annotation) else Any
        return sequence("[]", [written(item, inner) for item in value])
    marks = getattr(annotation, "__metadata__", ())
    if ELEMENT_TYPE in marks and isinstance(value, np.dtype):
        return literal(value)
    static = STATIC in marks or _is_ints(annotation)
    return literal(value, plain=static or (annotation is Any and getattr(value, "dtype", None) == np.int64))


def _is_ints(annotation: Any) -> bool:
    return any(part is int for part in (annotation, *get_args(annotation))) and get_origin(annotation) is not list


def _evaluated(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a call gives: shapes and types, static arrays; None where that cannot be told."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    if any(isinstance(x, Nested) or (isinstance(x, Operand) and x.fact is None) for x in leaves):
        return None
    traced = [x.fact for x in leaves if isinstance(x, Operand)]
    return abstract(
        lambda *xs: _call(fn, tree, leaves, iter(xs)),
        traced,
    )


def _draws(fn: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether a call reads its random key; Dropout does not, unless it is training."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    if any(isinstance(x, Nested) or (isinstance(x, Operand) and x.fact is None) for x in leaves):
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
