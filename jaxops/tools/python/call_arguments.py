"""Writes the arguments of a call as text."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

import numpy as np

from jaxops import ops
from jaxops.signature import ELEMENT_TYPE, STATIC
from jaxops.tools.python.expressions import Expression, Group, call, sequence
from jaxops.tools.python.literals import literal
from jaxops.tools.python.operands import Nested, Operand
from jaxops.tools.python.quoting import is_keyword_argument, string


def arguments(
    fn: Callable[..., Any], spelling: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, short_floats: bool = False
) -> Group:
    """The text of a call: positional arguments first, without arguments that equal their default."""
    bound = inspect.signature(fn).bind(*args, **kwargs)
    items: list[Expression] = []
    labels: list[str] = []
    skipped = False
    for name, parameter in bound.signature.parameters.items():
        if name not in bound.arguments or _same(bound.arguments[name], parameter.default):
            skipped = True
            continue
        if fn is ops.slice and name == "steps" and _are_ones(bound.arguments[name]):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            items += [written(item, parameter.annotation, short_floats) for item in bound.arguments[name]]
            labels += [""] * len(bound.arguments[name])
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            for keyword, item in bound.arguments[name].items():
                text = written(item, parameter.annotation, short_floats)
                plain = is_keyword_argument(keyword)
                items.append(text if plain else Group(f"**{{{string(keyword)}: ", (text,), "}"))
                labels.append(keyword if plain else "")
            continue
        positional = parameter.kind is not parameter.KEYWORD_ONLY and not skipped
        items.append(written(bound.arguments[name], parameter.annotation, short_floats))
        labels.append("" if positional else name)
    return call(spelling, items, labels)


def _are_ones(steps: Any) -> bool:
    return not isinstance(steps, Operand) and bool(np.all(np.equal(steps, 1)))


def _same(value: Any, default: Any) -> bool:
    if default is None or value is None:
        return default is value
    if isinstance(value, np.dtype) and isinstance(default, type | np.dtype):
        return value == np.dtype(default)
    return type(value) is type(default) and isinstance(value, int | float | str | tuple) and value == default


def written(value: Any, annotation: Any, short_floats: bool = False) -> Expression:
    """The text of an argument. short_floats: see `literal`."""
    if isinstance(value, Operand):
        return value.expression
    if isinstance(value, Nested):
        return value.name
    if isinstance(value, list | tuple) and any(isinstance(item, Operand | np.ndarray) for item in value):
        inner = get_args(annotation)[0] if get_args(annotation) else Any
        return sequence("[]", [written(item, inner, short_floats) for item in value])
    marks = getattr(annotation, "__metadata__", ())
    if ELEMENT_TYPE in marks and isinstance(value, np.dtype):
        return literal(value)
    static = STATIC in marks or _is_ints(annotation)
    plain = static or (annotation in (Any, inspect.Parameter.empty) and getattr(value, "dtype", None) == np.int64)
    return literal(value, plain=plain, short_floats=short_floats)


def _is_ints(annotation: Any) -> bool:
    return any(part is int for part in (annotation, *get_args(annotation))) and get_origin(annotation) is not list
