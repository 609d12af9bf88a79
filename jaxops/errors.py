"""Exception classes, and the layout of their messages.

Every class derives from `JaxopsError` and from the built-in that a caller would expect.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# The names in the text of a symbolic size.
_SYMBOL = re.compile(r"\b(?!(?:floordiv|mod|max|min)\()[A-Za-z_]\w*")


def symbols_in(*sizes: Any) -> list[str]:
    """The names of the symbols in sizes, each once, in order."""
    return list(dict.fromkeys(_SYMBOL.findall(" ".join(map(str, sizes)))))


class JaxopsError(Exception):
    """Any error that jaxops raises on purpose."""


class ShapeError(JaxopsError, ValueError):
    """Sizes that do not fit together, or do not fit an attribute."""


class SizeError(ShapeError):
    """A question about symbolic sizes whose answer depends on their values.

    needs: the condition for the model to run at all, such as "s <= 512", if it is known; else empty. otherwise: what
    holds instead where it may be otherwise, too: "s == 1" beside "s >= 2", of a branch that asks for 1. names: for each
    symbol, the name under which the model declares it, where that differs. example: numbers with which it holds.
    """

    def __init__(self, problem: str, *sizes: Any, needs: str = "", otherwise: str = "", fix: int | None = None) -> None:
        """sizes: those in question. fix: a number for the first symbol in them that settles it."""
        super().__init__(problem)
        self.sizes = sizes
        self.problem, self.needs, self.fix, self.exact = problem, needs, 128 if fix is None else fix, fix is not None
        self.symbols = symbols_in(*sizes)
        self.otherwise = otherwise
        self.names: Mapping[str, str] = {}
        self.example: Mapping[str, int] = {}

    def __str__(self) -> str:
        if not self.symbols:
            return self.problem
        if self.example:
            fixed = {self.names.get(symbol, symbol): number for symbol, number in self.example.items()}
            return f"{self.problem}\n  hint    fix sizes for which {self.needs}, such as sizes={fixed}"
        keys = [self.names.get(symbol, symbol) for symbol in self.symbols]
        number = f"sizes={ {keys[0]: self.fix} }"
        if not self.needs:
            more = (
                f", or limit it: sizes={ {keys[0]: f'{self.symbols[0]} >= {self.fix}'} }"
                if len(keys) == 1 and not self.exact
                else ""
            )
            return f"{self.problem}\n  hint    fix {keys[0]!r} when exporting or loading: {number}{more}"
        left, sign, right = self.needs.partition(" == ")
        alone = left in self.symbols and sign
        if alone and right.isdigit():
            key = self.names.get(left, left)
            return f"{self.problem}\n  hint    fix {key!r} when exporting or loading: sizes={ {key: int(right)} }"
        key, value = (self.names.get(left, left), right) if alone else (keys[0], f"{self.symbols[0]}, {self.needs}")
        value = self.needs if self.needs.startswith((f"{self.symbols[0]} <", f"{self.symbols[0]} >")) else value
        # A number that nobody has tried hardly solves an equation.
        fixed = "" if sign and not alone and not self.exact else f", or fix a size: {number}"
        return f"{self.problem}\n  hint    export with sizes={ {key: value} }{fixed}"


class AxisError(JaxopsError, ValueError, IndexError):
    """An axis outside the rank of its operand."""


class BoundsError(JaxopsError, IndexError):
    """A static index that is out of range."""


class ArgumentError(JaxopsError, ValueError):
    """A value of an attribute or operand that the operator does not allow."""


class DTypeError(JaxopsError, TypeError):
    """An element type that the operator, or this version of it, does not allow."""


class StaticError(JaxopsError, TypeError):
    """A traced value where the operator needs one that is known while tracing."""


class UnboundedError(StaticError):
    """A result whose size depends on traced data, of an operator that takes a fixed `size` for it.

    node: the node of a loaded model that makes the result; empty where a caller calls the operator.
    """

    def __init__(self, op: str, text: str, result: str) -> None:
        """text: of the error, without a hint. result: the result of `n` for the size, such as "n rows"."""
        super().__init__(op, text, result)
        self.op, self.text, self.result = op, text, result
        self.node = ""

    def __str__(self) -> str:
        if self.node:
            alternative = (
                f"call the model outside `jax.jit`, or load(path, bounds={{{self.node!r}: n}}), which makes it"
            )
        else:
            alternative = (
                "call it outside `jax.jit`, as a loaded model does in `model(…)`, or give `size`: "
                f"{self.op}(…, size=n) returns"
            )
        return f"{self.text}\n  hint    {alternative} {self.result}"


class SignatureError(JaxopsError, TypeError):
    """An operand or attribute that is missing, unknown or given twice."""


class OutOfRangeError(JaxopsError, OverflowError):
    """A 64-bit constant or result that does not fit the 32-bit type that replaces its own while x64 is off."""


class TooLargeError(JaxopsError, MemoryError, OverflowError):
    """A value or a result that takes more bytes than are allowed, or than a size can count."""


class UnsupportedError(JaxopsError, NotImplementedError):
    """A feature of the standard that jaxops does not implement."""


class ModelError(JaxopsError, ValueError):
    """A malformed model."""


class PathError(JaxopsError, FileNotFoundError):
    """A path that names no file: nothing is there, or a directory."""


class ExistsError(JaxopsError, FileExistsError):
    """A path to write to that holds files which jaxops did not write, or which were changed since."""


def shape_text(sizes: Sequence[Any]) -> str:
    """Sizes the way messages show them."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def items(array: np.ndarray) -> Iterable[Any]:
    """The elements one by one, without a copy where NumPy can: `flat` takes at most 32 axes."""
    return array.flat if array.ndim <= 32 else array.ravel()


def describe(value: Any) -> str:
    """`float32[2,3]` for an array, with its elements if they are known and few; `repr` for any other value."""
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype") or isinstance(value, type):  # np.float32 has all of its instances'
        return repr(value)
    name = value.dtype.name
    if (
        name == "object"
        and isinstance(value, np.ndarray)
        and not any(isinstance(item, str | bytes) for item in items(value))
    ):
        name = "int64"  # symbolic sizes
    text = f"{name}[{','.join(map(str, shape))}]"
    if isinstance(value, np.ndarray | np.generic):
        return f"{text} {np.array2string(np.asarray(value), threshold=8, edgeitems=3)}" if value.size <= 8 else text
    return text


def one_line(text: str, longest: int) -> str:
    """Text from a file as a line of at most so many characters, control characters as Python writes them.

    >>> one_line("conv\\n\\x1b[1m", 99), one_line("encoder.layer.0", 8)
    ('conv\\\\n\\\\x1b[1m', 'encoder…')
    """
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: longest + 1])
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def near(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: those like it, but for case and underscores, if there are any."""

    def folded(text: str) -> str:
        return text.replace("_", "").lower()

    by_text: dict[str, list[str]] = {}
    for candidate in names:
        by_text.setdefault(folded(candidate), []).append(candidate)
    texts = [folded(name)] if folded(name) in by_text else difflib.get_close_matches(folded(name), by_text, 3)
    matches = [candidate for text in texts for candidate in by_text[text]]
    return f"; near it: {', '.join(map(repr, matches))}" if matches else ""


def install(extra: str) -> str:
    """The end of a message about a missing package: how to install the extra of jaxops that brings it.

    No package index has jaxops, so the command is one for a checkout.
    """
    return f"install the extra `{extra}` of jaxops: pip install '.[{extra}]' in a checkout of jaxops"


def message(op: str, problem: str, *, hint: str | None = None, **operands: Any) -> str:
    """The layout of an error: operator and problem, then one line per operand, then a hint."""
    lines = [f"{op}: {problem}"]
    lines += [f"  {name:<7} {describe(value)}" for name, value in operands.items()]
    if hint:
        lines.append(f"  hint    {hint}")
    return "\n".join(lines)
