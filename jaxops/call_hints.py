"""The errors of calls whose arguments an operator has no parameters for, with the call that was meant."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, get_origin

from jaxops.errors import JaxopsError, SignatureError, amount, message, near

# Names that NumPy, PyTorch and the standard have for the same thing.
_SYNONYMS = (("axis", "axes", "dim", "dims"), ("keepdims", "keepdim"), ("to", "dtype"))

Check = Callable[[inspect.Parameter, Any], None]


def unfit(
    op: str, signature: inspect.Signature, args: tuple[Any, ...], named: Mapping[str, Any], check: Check
) -> NoReturn:
    """Raises SignatureError for a call that `signature.bind` refuses.

    check: raises an error of jaxops for a value that the parameter does not take.
    """
    parameters = signature.parameters
    for name in named:
        if name not in parameters:
            synonyms = [other for names in _SYNONYMS if name in names for other in names if other in parameters]
            similar = f"; similar: {synonyms[0]!r}" if synonyms else near(name, parameters)
            raise SignatureError(f"got an unexpected argument '{name}'{similar or f'; it takes {_listed(parameters)}'}")
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    twice = [p.name for p in positional[: len(args)] if p.name in named]
    if twice:
        raise SignatureError(f"`{twice[0]}` is given twice: by its position and by its name")
    if len(args) > len(positional):
        problem = f"{amount(len(args), 'operand')} are given; it takes {_listed(p.name for p in positional) or 'none'}"
        raise SignatureError(message(problem, hint=_meant(op, parameters, positional, args, named, check)))
    required = [p.name for p in parameters.values() if p.default is p.empty and p not in positional[: len(args)]]
    missing = [name for name in required if name not in named]
    are = "is" if len(missing) == 1 else "are"
    raise SignatureError(f"{_listed(missing)} {are} missing; it takes {_listed(parameters)}")


def _meant(
    op: str,
    parameters: Mapping[str, inspect.Parameter],
    positional: Sequence[inspect.Parameter],
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    check: Check,
) -> str | None:
    """The call in which each argument that is one too many is an attribute, or a member of the only list."""
    attributes = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY and p.name not in named]
    given = [f"{name}={value!r:.40}" for name, value in named.items()]
    if len(positional) == 1 and get_origin(positional[0].annotation) is Sequence:
        arrays = [value for value in args if not isinstance(value, str)]
        found = _by_name(attributes, [value for value in args if isinstance(value, str)], check)
        if found is not None and len(arrays) > 1:
            return f"give the arrays in one list: {op}([a, b, …]{''.join(f', {text}' for text in (*found, *given))})"
        return None
    found = _by_name(attributes, args[len(positional) :], check)
    if not found:
        return None
    call = ", ".join([*(p.name for p in positional), *found, *given])
    return f"attributes are given by name: {op}({call})"


def _by_name(attributes: Sequence[inspect.Parameter], values: Sequence[Any], check: Check) -> list[str] | None:
    """The values as keyword arguments, each for the first attribute that takes such a value; None if none does."""
    left, found = list(attributes), []
    for value in values:
        fitting = next((p for p in left if _takes(p, value, check)), None)
        if fitting is None:
            return None
        left = left[left.index(fitting) + 1 :]
        found.append(f"{fitting.name}={value!r:.40}")
    return found


def _takes(parameter: inspect.Parameter, value: Any, check: Check) -> bool:
    try:
        check(parameter, value)
    except JaxopsError:
        return False
    return True


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)
