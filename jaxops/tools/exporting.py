"""One program for many sizes: a graph as a `jax.export.Exported`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.export import Exported, SymbolicScope, symbolic_shape

from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, SizeError, StaticError, UnsupportedError
from jaxops.graph import sizes as names_of
from jaxops.graph.nodes import Tensor, Value

_COMPARISON = re.compile(r"(<=|>=|==|<|>)")


def export(
    call: Callable[..., Sequence[Any]],
    inputs: Sequence[Value],
    params: Mapping[str, Tensor],
    sizes: Mapping[str, int | str] | None,
    platforms: Sequence[str] | None,
) -> Exported:
    """The program of `call(params, *inputs)`, for every size that the inputs declare by name.

    sizes, platforms, errors: see `Model.export`.
    """
    sizes = dict(sizes or {})
    inputs = names_of.named([v for v in inputs if v.kind != "optional"])
    for value in inputs:
        _check(value)
    names_of.known(inputs, sizes)
    meanings = names_of.symbols(inputs)
    given: list[str] = []
    for name, wanted in sizes.items():
        meanings[name], constraints = _read(name, wanted)
        given += constraints

    def program(params: Any, *given: Any) -> Any:
        outputs = tuple(call(params, *given))
        return outputs[0] if len(outputs) == 1 else outputs

    weights = {name: jax.ShapeDtypeStruct(t.shape, canonical(t.dtype)) for name, t in params.items()}
    # What the trace finds that the model cannot do without, such as `s <= 512` for a table of 512 positions.
    needed: list[str] = []
    while True:
        specs = _specs(inputs, meanings, [*given, *needed])
        try:
            return jax.export.export(jax.jit(program), platforms=platforms)(weights, *specs)
        except SizeError as error:
            if not error.needs or error.needs in needed:
                raise
            needed.append(error.needs)


def _check(value: Value) -> None:
    if value.static:
        raise StaticError(
            f"export: input '{value.name}' must be known while tracing, so it cannot be an argument of the program\n"
            f"  needed  {value.static}\n"
            f"  hint    export jax.jit(lambda params, x: model.apply(params, x, {_python_name(value.name)}=…)) with "
            f"jax.export.export, which gives it a value"
        )
    if value.kind != "tensor" or value.shape is None or value.dtype is None:
        raise UnsupportedError(
            f"export: the model declares {value}; every input must be a tensor whose type and number of axes the "
            f"model says, or use jax.export.export(jax.jit(model.apply)) with shapes of your own"
        )


def _python_name(name: str) -> str:
    return name if name.isidentifier() else "**{" + repr(name) + ": …}"


def _read(name: str, wanted: int | str) -> tuple[str, list[str]]:
    """`"s <= 512, s >= 2"` as the size `s` and its constraints."""
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return str(wanted), []
    if not isinstance(wanted, str) or not wanted.strip():
        raise ArgumentError(
            f"sizes: '{name}' is {wanted!r}; give a number, a name such as 'b', or one with a limit such as 's <= 512'"
        )
    size, constraints = "", []
    # A comma inside parentheses separates the arguments of max(…) and the like.
    for part in re.split(r",(?![^(]*\))", wanted):
        left, *rest = (item.strip() for item in _COMPARISON.split(part))
        size = size or left
        if not rest:
            continue
        if len(rest) != 2:
            raise ArgumentError(f"sizes: '{name}' is {wanted!r}; write one comparison at a time: 's >= 2, s <= 512'")
        sign, right = rest
        strict = {"<": ("<=", " - 1"), ">": (">=", " + 1")}
        sign, more = strict.get(sign, (sign, ""))
        constraints.append(f"{left} {sign} {right}{more}")
    return size, constraints


def _specs(inputs: Sequence[Value], meanings: Mapping[str, str], constraints: list[str]) -> list[Any]:
    """A shape and type for each input, of symbols that share their constraints."""
    try:
        scope = SymbolicScope(constraints)
        shapes = []
        for value in inputs:
            sizes = [str(d) if isinstance(d, int) else names_of.expression(d, meanings) for d in value.shape or ()]
            shapes.append(symbolic_shape(", ".join(sizes), scope=scope))
    except ValueError as error:
        what = {name: text for name, text in meanings.items() if name != text}
        problem = str(error).splitlines()[0]
        raise ArgumentError(f"sizes: {what} with the constraints {constraints} are no symbolic sizes: {problem}") from error
    pairs = zip(inputs, shapes, strict=True)
    return [jax.ShapeDtypeStruct(shape, canonical(value.dtype or np.float32)) for value, shape in pairs]
