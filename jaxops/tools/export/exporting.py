"""Exports a graph as a `jax.export.Exported`: one program for many sizes."""

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.export import Exported, default_export_platform

from jaxops.compiler.run.specialized import program_name
from jaxops.dtypes import canonical
from jaxops.errors import (
    ArgumentError,
    JaxopsError,
    SizeError,
    StaticError,
    TooLargeError,
    UnsupportedError,
    symbols_in,
)
from jaxops.graph import declared_sizes as names_of
from jaxops.graph.interpreter import SIZE_CONSTRAINTS, open_question
from jaxops.graph.nodes import Tensor, Value
from jaxops.jax_internals import jaxpr_as_fun, lowered_equation, terms
from jaxops.ops.common.randomness import MissingKeyError
from jaxops.progress import say
from jaxops.runtime.auto_axes import auto_axes
from jaxops.static import LIMITING, Undecided, is_symbolic
from jaxops.tools.export.limits.learned import Limits
from jaxops.tools.export.limits.solver import two_uses
from jaxops.tools.export.limits.tables import check_tables

# JAX accepts any other name, such as "gpu", without an error, but then no device runs the program.
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_COMPARISON = re.compile(r"(<=|>=|==|<|>)")


def export(
    model: str,
    apply: Callable[..., Any],
    inputs: Sequence[Value],
    params: Mapping[str, Tensor] | None,
    sizes: Mapping[str, int | str] | None,
    platforms: Sequence[str] | None,
) -> Exported:
    """Exports the program of (params, *inputs) for every value of the named sizes; several outputs are a tuple.

    model: its name. apply: `Model.apply`, or one that has its parameters if `params` is None. sizes, platforms,
    errors: see `Model.export`.
    """
    if isinstance(platforms, str):
        raise ArgumentError(f"export: `platforms` is {platforms!r}; give a list, such as [{platforms!r}]")
    for platform in platforms or ():
        if platform not in (*_PLATFORMS, default_export_platform()):
            raise ArgumentError(f"export: unknown platform {platform!r}; name some of {', '.join(_PLATFORMS)}")
    sizes = sizes or {}
    inputs = names_of.named([v for v in inputs if v.kind != "optional"])
    for value in inputs:
        _check(value)
    names_of.known(inputs, sizes)
    meanings = names_of.symbols(inputs)
    constraints_asked: list[str] = []
    for name, meaning in sizes.items():
        meanings[name], constraints = _read(name, meaning, meanings[name])
        constraints_asked += constraints
    names_of.check_limits(inputs, {name: int(text) for name, text in meanings.items() if text.isdigit()})
    constraints_asked += names_of.constraints(inputs, meanings)

    keys: tuple[Any, ...] = ()  # the random key, the last argument of a model that needs one

    def outputs_of(*arguments: Any) -> Any:
        first, last = len(weights), len(weights) + len(inputs)
        named = {v.name: x for v, x in zip(inputs, arguments[first:last], strict=True)}
        outputs = apply(*arguments[:first], named, **dict(zip(["rng"], arguments[last:], strict=False)))
        return tuple(outputs) if isinstance(outputs, tuple) else outputs

    def program(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(outputs_of, return_shape=True)(*arguments)
        check_tables(closed)
        if limits.in_trace:
            raise _Learned
        return jax.tree.unflatten(jax.tree.structure(shapes), jaxpr_as_fun(closed)(*jax.tree.leaves(arguments)))

    program.__name__ = program_name(model)
    weights = (
        []
        if params is None
        else [{name: jax.ShapeDtypeStruct(t.shape, canonical(t.dtype)) for name, t in params.items()}]
    )
    axes = {meanings[d]: axis for v in inputs for axis, d in enumerate(v.shape or ()) if d in meanings}
    batches = {meanings[d]: meanings[b] for d, b in names_of.batches(inputs).items() if d in meanings and b in meanings}
    limits, limiting, first = Limits(constraints_asked, axes, batches), True, None
    while True:
        specs = _specs(inputs, meanings, limits)
        tokens = SIZE_CONSTRAINTS.set(limits), LIMITING.set(limiting)
        try:
            exported = _exported(program, platforms, (*weights, *specs, *keys))
            _say_limited(meanings, limits)
            return exported
        except _Learned:
            pass
        except SizeError as error:
            if limits.in_trace or limits.learn(error) or limits.splits_products():
                continue
            if limiting:
                limits, limiting = Limits(constraints_asked, axes, batches, products=limits.products), False
                continue
            error.names = {text: name for name, text in meanings.items()}
            error.example = limits.example(error)
            error.apart = _apart(inputs, meanings, list(two_uses(error.needs)))
            first = first or error
            if not limits.turns():
                raise first from first.__cause__
        except MissingKeyError:
            if keys:
                raise
            keys = (jax.eval_shape(lambda: jax.random.key(0)),)
        except JaxopsError as error:
            if limits.in_trace or limits.splits_products():
                continue
            if isinstance(error, StaticError):
                error.instead = "call the model without exporting it"
            symbolic = sorted(
                (name for name, text in meanings.items() if not text.isdigit()),
                key=lambda name: meanings[name] not in limits.asked,
            )
            if symbolic and not first:
                example = f"sizes={ {symbolic[0]: 128} }"
                error.add_note(
                    f"in an export; if it follows from the symbolic {', '.join(symbolic)}, fix one: {example}"
                )
            first = first or error
            if not limits.turns():
                raise first from first.__cause__
        finally:
            SIZE_CONSTRAINTS.reset(tokens[0])
            LIMITING.reset(tokens[1])


def _exported(program: Callable[..., Any], platforms: Sequence[str] | None, specs: Sequence[Any]) -> Exported:
    """Returns the exported program. Raises SizeError if JAX cannot lower it for symbolic sizes, TooLargeError if it
    cannot compute with one: a program computes sizes in 32 bits while x64 is off, and JAX recurses through them.
    """
    try:
        with auto_axes():
            return jax.export.export(jax.jit(program), platforms=platforms)(*specs)
    except (OverflowError, RecursionError) as error:
        if isinstance(error, JaxopsError):
            raise
        raise TooLargeError(
            f"export: a symbolic size has numbers beyond 32 bits, or thousands of operations: {error}\n"
            "  hint    fix sizes with `sizes=`"
        ) from error
    except (Undecided, NotImplementedError) as error:
        if isinstance(error, JaxopsError):
            raise
        equation = lowered_equation(error)
        sizes = [] if equation is None else [d for v in equation.invars for d in getattr(v.aval, "shape", ())]
        subject = (
            "export" if equation is None else f"export: {equation.primitive} in '{equation.source_info.name_stack}'"
        )
        raise open_question(subject, error, [d for d in sizes if is_symbolic(d)]) from error


def _say_limited(meanings: Mapping[str, str], limits: Limits) -> None:
    """Says which sizes the model fixes, and which have a certain form, such as multiples of 4.

    meanings: the texts asked for, by name. limits: those of the program.
    """
    for limit in limits.learned:
        if limit.said:
            say(f"export: {limit.said}")
    learned = {limit.symbol for limit in limits.learned}
    for name, size in limits.sizes(meanings).items():
        if learned.isdisjoint(symbols_in(meanings[name])):
            continue
        if not is_symbolic(size):
            say(f"export: the model fixes the size '{name}' to {size}")
            continue
        first, *more = terms(size)
        multiple = not more and first.number > 1 and str(first.size).isidentifier()
        form = f"a multiple of {first.number}" if multiple else f"of the form {size}"
        say(f"export: the size '{name}' must be {form}")


def _apart(inputs: Sequence[Value], meanings: Mapping[str, str], symbols: Sequence[str]) -> str:
    """The end of a hint: how to name the uses of a size apart. symbols: of a size that has two uses; maybe none."""
    uses = [
        (value, axis)
        for value in inputs
        for axis, size in enumerate(value.shape or ())
        if isinstance(size, str) and size in meanings and set(symbols_in(meanings[size])) & set(symbols)
    ]
    if len(uses) < 2:
        return ""
    listing = " and ".join(f"axis {axis} of '{value.name}'" for value, axis in uses)
    own = names_of.own_name(*uses[-1])
    return f";\n          or name its uses apart, which are {listing}: sizes={ {own: own} }"


class _Learned(Exception):
    """Raised after a trace that succeeded with limits which it learned on the way: it must be repeated with these."""


def _check(value: Value) -> None:
    if value.static:
        # Each of several numbers may set a size, and those have no bound.
        is_one = value.shape is not None and all(d == 1 for d in value.shape)
        condition = "" if is_one else ", if it is one number computed from it"
        raise StaticError(
            f"export: input '{value.name}' must be known while tracing, so it cannot be an argument of the program\n"
            f"  needed  {value.static}\n"
            f"  hint    fix its value when loading: load(path, values={{{value.name!r}: value}}), or the largest "
            f"size that it sets{condition}: bounds={{{value.name!r}: n}}"
        )
    if value.kind != "tensor" or value.shape is None or value.dtype is None:
        raise UnsupportedError(
            f"export: the model declares {value}; every input must be a tensor with a declared type and number of "
            f"axes, or use jax.export.export(jax.jit(model.apply)) with your own shapes"
        )


def _read(name: str, meaning: int | str, symbol: str) -> tuple[str, list[str]]:
    """Splits a text such as `"s <= 512, s >= 2"` into the size `s` and its constraints.

    symbol: the identifier for the name, which may stand in the text itself.
    """
    if isinstance(meaning, int) and not isinstance(meaning, bool):
        return str(meaning), []
    if not isinstance(meaning, str) or not meaning.strip():
        raise ArgumentError(
            f"sizes: '{name}' is {meaning!r}; give a number, a name such as 'b', or one with a limit such as 's <= 512'"
        )
    size, constraints = "", []
    # A comma inside parentheses separates the arguments of max(…) and the like.
    for part in re.split(r",(?![^(]*\))", meaning):
        left, *comparison = (
            symbol if item.strip() == name and not name.isdigit() else item.strip() for item in _COMPARISON.split(part)
        )
        size = size or left
        if not comparison:
            continue
        if len(comparison) != 2:
            raise ArgumentError(f"sizes: '{name}' is {meaning!r}; write one comparison at a time: 's >= 2, s <= 512'")
        sign, right = comparison
        strict = {"<": ("<=", " - 1"), ">": (">=", " + 1")}
        sign, more = strict.get(sign, (sign, ""))
        constraints.append(f"{left} {sign} {right}{more}")
    reserved = [text for text in symbols_in(size, *constraints) if keyword.iskeyword(text)]
    if reserved:
        raise ArgumentError(
            f"sizes: '{name}' is {meaning!r}; '{reserved[0]}' is a word of Python, so take another name"
        )
    return size, constraints


def _specs(inputs: Sequence[Value], meanings: Mapping[str, str], limits: Limits) -> list[Any]:
    """A shape and type for each input; all symbols are in one scope of constraints."""
    try:
        values = limits.sizes(meanings)
    except ValueError as error:
        renamed = {name: text for name, text in meanings.items() if name != text}
        problem = str(error).splitlines()[0]
        raise ArgumentError(
            f"sizes: {renamed} with the constraints {limits.asked_for} are not symbolic sizes: {problem}"
        ) from error

    names_of.check_numbers({name: size for name, size in values.items() if isinstance(size, int)})

    def spec(value: Value) -> jax.ShapeDtypeStruct:
        sizes = [
            d if isinstance(d, int) else names_of.expression(d, values) for d in value.shape or () if d is not None
        ]
        return jax.ShapeDtypeStruct(sizes, canonical(value.dtype))

    return list(map(spec, inputs))
