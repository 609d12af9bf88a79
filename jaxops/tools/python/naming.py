"""Chooses names for values, from the names of tensors and operators."""

import builtins
import re

from jaxops.tools.python.expressions import Expression, Group

RESERVED = frozenset(
    {
        *dir(builtins),
        "jo",
        "jaxops",
        "load_file",
        "with_x64",
        "np",
        "jax",
        "jnp",
        "params",
        "warnings",
        "warn_of_unlike",
        "rng",
        "constants",
        "self",
        "apply",
        "fold_in",
        "flat_at_zero",
        "converted",
        "load_params",
        *(f"opset{number}" for number in range(1, 100)),  # the functions of an opset
    }
)


# Operators with the name of a Python function.
OTHERWISE = {"slice": "piece", "range": "indices", "max": "largest", "min": "smallest", "sum": "total"}
OTHERWISE |= {"abs": "magnitude", "pow": "power", "round": "rounded", "hash": "hashed", "not": "negated"}
OTHERWISE["flat_at_zero"] = "root"


def operator_name(expression: Expression) -> str:
    """The name of the operator that an expression calls."""
    return expression.opening[:-1].split(".")[-1] if isinstance(expression, Group) else "x"


def plain_name(value: str) -> str:
    """The name in the file, of a value of a function."""
    return value[1:]


def base_name(value: str, operator: str, path: tuple[str, ...] = ()) -> str:
    """A short name for a value: the last part of its name, without suffixes of exporters; or the name of the operator.

    path: of the function. In a function for an item of a list of modules, the name has no numbers, since they differ
    between items.
    """
    last = re.split(r"[/:]", plain_name(value))[-1]
    if any(part.isdigit() for part in path):
        last = re.sub(r"[._]\d+(?=[._])", "", last)
    # From the back, in linear time.
    backwards = re.match(r"(\d+(_tuptuo_|[._]))*", last[::-1])
    last = last[: len(last) - (backwards.end() if backwards else 0)].removeprefix("node_")
    if re.fullmatch("[A-Za-z]", last):
        return last
    if not re.search(r"[A-Za-z]{2}", last) or last.lower() in ("val", "tensor", "output", "value"):
        return operator
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last)
