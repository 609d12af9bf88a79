"""Exception classes, and the layout of their messages.

Every class derives from `JaxopsError` and from the built-in that a caller would expect.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.shown_text import clean

# The names in the text of a symbolic size.
_SYMBOL = re.compile(r"\b(?!(?:floordiv|mod|max|min)\()[A-Za-z_]\w*")


def symbols_in(*sizes: Any) -> list[str]:
    """The names of the symbols in sizes, each once, in order."""
    return list(dict.fromkeys(_SYMBOL.findall(" ".join(map(str, sizes)))))


class JaxopsError(Exception):
    """Any error that jaxops raises on purpose: the base of all the classes here.

    op: the operator that raised it, with which its text begins; None as long as none was named. Names of files
    in its text and notes are shown by `clean`, so that none controls a terminal.

    >>> import jaxops as jo
    >>> try:
    ...     jo.reshape(np.zeros(6), (4, 2))
    ... except jo.JaxopsError as error:
    ...     print(type(error).__name__)
    ShapeError
    """

    op: str | None = None

    def __str__(self) -> str:
        text = f"{self.op}: {self._text()}" if self.op else self._text()
        return clean(text, keep="\n")

    def _text(self) -> str:
        return super().__str__()

    def add_note(self, note: str) -> None:
        super().add_note(clean(note, keep="\n"))


class ShapeError(JaxopsError, ValueError):
    """Sizes that do not fit together, or do not fit an attribute.

    >>> import jaxops as jo
    >>> jo.concat([np.zeros((2, 3)), np.zeros((2, 4))], axis=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    jaxops.errors.ShapeError: concat: operand 1 of (2, 4) does not fit operand 0 of (2, 3); ...
    """


class SizeError(ShapeError):
    """A question about symbolic sizes whose answer depends on their values.

    needs: the condition for the model to run at all, such as "s <= 512", if it is known; else empty. otherwise: the
    condition of another program, if there is one: "s == 1" in addition to "s >= 2", if a branch asks for 1.
    broadcasts: True if a size of 1 fits, too. names: for each symbol, the name under which the model declares it, if
    that differs. example: sizes that meet the condition. apart: what else to do if the model gives one name to two
    sizes.

    >>> import jax, jaxops as jo
    >>> (n,) = jax.export.symbolic_shape("n")
    >>> try:
    ...     jax.eval_shape(lambda x: jo.reshape(x, (2, 3)), jax.ShapeDtypeStruct((n,), "float32"))
    ... except ValueError as error:
    ...     print(error.needs)
    n == 6
    """

    def __init__(
        self,
        problem: str,
        *sizes: Any,
        needs: str = "",
        otherwise: str = "",
        fix: int | None = None,
        broadcasts: bool = False,
    ) -> None:
        """sizes: those in question. fix: a number for the first symbol in them that settles it."""
        super().__init__(problem)
        self.sizes = sizes
        self.problem, self.needs, self.fix, self.exact = problem, needs, 128 if fix is None else fix, fix is not None
        self.symbols = symbols_in(*sizes)
        self.otherwise, self.broadcasts = otherwise, broadcasts
        self.names: Mapping[str, str] = {}
        self.example: Mapping[str, int] = {}
        self.apart = ""

    def _text(self) -> str:
        if not self.symbols:
            return self.problem
        shown = symbols_in(self.problem, self.needs)
        named = [f"{symbol} is {name!r}" for symbol, name in self.names.items() if symbol in shown and symbol != name]
        return self._with_hint() + ("\n  names   " + ", ".join(named) if named else "")

    def _with_hint(self) -> str:
        if self.example:
            fixed = {self.names.get(symbol, symbol): number for symbol, number in self.example.items()}
            return f"{self.problem}\n  hint    fix sizes for which {self.needs}, such as sizes={fixed}{self.apart}"
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
        # Does not suggest an untried number as a solution.
        fixed = "" if sign and not alone and not self.exact else f", or fix a size: {number}"
        return f"{self.problem}\n  hint    export with sizes={ {key: value} }{fixed}"


class AxisError(JaxopsError, ValueError, IndexError):
    """An axis that the operand does not have.

    >>> import jaxops as jo
    >>> jo.softmax(np.zeros(3), axis=1)
    Traceback (most recent call last):
    jaxops.errors.AxisError: softmax: `axis` is 1, but the operand has 1 axis; the range is [-1, 0]
    """


class BoundsError(JaxopsError, IndexError):
    """A static index that is out of range.

    >>> import jaxops as jo
    >>> jo.gather(np.arange(3), 5)
    Traceback (most recent call last):
    jaxops.errors.BoundsError: gather: index 5 is outside axis 0 of size 3 (int64[3] [0 1 2])
    """


class ArgumentError(JaxopsError, ValueError):
    """A value of an attribute or operand that the operator does not allow.

    >>> import jaxops as jo
    >>> jo.gelu(np.zeros(3), approximate="sin")
    Traceback (most recent call last):
    jaxops.errors.ArgumentError: gelu: `approximate` is 'sin'; it must be one of 'none', 'tanh'
    """


class DTypeError(JaxopsError, TypeError):
    """An element type that the operator, or this version of it, does not allow.

    >>> import jaxops as jo
    >>> jo.bitwise_not(np.zeros(3))
    Traceback (most recent call last):
    jaxops.errors.DTypeError: bitwise_not: operands must be integer, got float64; convert with jaxops.cast
    """


class StaticError(JaxopsError, TypeError):
    """A traced value where the operator needs one that is known while tracing.

    node: the node of a loaded model that needs it. instead: what a user of the model should do, in the hint.

    >>> import jax, jaxops as jo
    >>> try:
    ...     jax.jit(jo.reshape)(np.zeros(6), np.array([2, 3]))
    ... except TypeError as error:
    ...     print(str(error).splitlines()[0])
    reshape: `shape` must be known while tracing, but it is traced
    """

    def __init__(self, text: str, hint: str = "") -> None:
        """hint: for a caller of the operator. A user of a model, who has a file alone, gets another one."""
        super().__init__(text, hint)
        self.text, self.hint, self.node, self.instead = text, hint, "", "call the model outside `jax.jit`"

    def _text(self) -> str:
        of_model = (
            f"{self.instead}: model(…) computes the value first, and then runs the rest; if it is a size, "
            "load(path, bounds={name: n}), with the node that computes it, makes one program; if it follows from "
            "inputs that stay the same, load(path, values={name: value}) fixes them"
        )
        return f"{self.text}\n  hint    {of_model if self.node else self.hint}" if self.hint else self.text


class UnboundedError(StaticError):
    """A result whose size depends on traced data, of an operator that takes a fixed `size` for it.

    node, operator: the node of a loaded model that makes the result, and its operator; empty if a caller calls the
    operator. inputs: the names of the model's inputs whose values decide the size; empty if all of them do.

    >>> import jax, jaxops as jo
    >>> try:
    ...     jax.jit(jo.nonzero)(np.zeros(3))
    ... except TypeError as error:
    ...     print(str(error).splitlines()[0])
    nonzero: the size of the result depends on `x`, which is traced
    """

    def __init__(self, text: str, result: str) -> None:
        """text: of the error, without a hint. result: the result of `n` for the size, such as "n rows"."""
        super().__init__(text)
        self.args = text, result
        self.result, self.operator, self.inputs = result, "", list[str]()

    def _text(self) -> str:
        if self.node:
            hint = (
                f"{self.instead}, or load(path, bounds={{{self.node!r}: n}}), which makes it "
                f"{self.result}; {{{self.operator!r}: n}} bounds each {self.operator}, and model.cuts lists all"
            )
            if self.inputs:
                values = ", ".join(f"{name!r}: value" for name in self.inputs)
                hint += f". Or load(path, values={{{values}}}) fixes what decides the size, if it stays the same"
        else:
            hint = (
                "call it outside `jax.jit`, as a loaded model does in `model(…)`, or give `size`: "
                f"{self.op}(…, size=n) returns {self.result}"
            )
        return f"{self.text}\n  hint    {hint}"


class SignatureError(JaxopsError, TypeError):
    """An operand or attribute that is missing, unknown or given twice.

    >>> import jaxops as jo
    >>> jo.concat([], axis=0)
    Traceback (most recent call last):
    jaxops.errors.SignatureError: concat: `inputs` is empty; at least one array is needed
    """


class OutOfRangeError(JaxopsError, OverflowError):
    """A 64-bit constant or result that does not fit the 32-bit type that stands for its own while x64 is off.

    >>> import jax.numpy as jnp, jaxops as jo
    >>> jo.add(jnp.arange(3), np.int64(2**40))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    jaxops.errors.OutOfRangeError: add: the int64 value 1099511627776 does not fit int32, which stands for int64...
    """


class TooLargeError(JaxopsError, MemoryError, OverflowError):
    """A value or a result that takes more bytes than are allowed, or than a size can count.

    >>> import jaxops as jo
    >>> jo.constant_of_shape((2**62,))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    jaxops.errors.TooLargeError: constant_of_shape: an array of shape (4611686018427387904,) ... takes 16 EiB...
    """


class UnsupportedError(JaxopsError, NotImplementedError):
    """A feature of the standard that jaxops does not implement.

    >>> import jaxops.onnx, onnx
    >>> text = "net (float[N] x) => (float[N] y) { y = NoSuchOperator(x) }"
    >>> jaxops.onnx.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}'))
    Traceback (most recent call last):
    jaxops.errors.UnsupportedError: the model uses operators that jaxops does not have:
      NoSuchOperator: not in opset 18; the standard has no such operator  (node 'y')
      hint    give a function for each: load(path, operators={('', 'NoSuchOperator'): fn})
    """


class ModelError(JaxopsError, ValueError):
    """A malformed model.

    >>> import jaxops.onnx
    >>> jaxops.onnx.load(b"not a model")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    jaxops.errors.ModelError: the bytes: not an ONNX model, or a truncated one: ...
    """


class PathError(JaxopsError, FileNotFoundError):
    """A path without a file: nothing is there, or something that is not a file, such as a folder.

    >>> import jaxops.onnx
    >>> jaxops.onnx.load("missing.onnx")
    Traceback (most recent call last):
    jaxops.errors.PathError: load: there is no file 'missing.onnx'
    """


class ExistsError(JaxopsError, FileExistsError):
    """A path to write to that holds files which jaxops did not write, or which were changed since.

    >>> import tempfile, jaxops.onnx
    >>> model = jaxops.onnx.load("notebooks/digits.onnx")
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +ELLIPSIS
    ...     open(f"{folder}/notes.txt", "w").close()
    ...     model.to_python(folder)
    Traceback (most recent call last):
    jaxops.errors.ExistsError: to_python: the folder ... was not written by to_python...
    """


# The note of an error about two branches that no program can hold.
BOTH_BRANCHES = (
    "the condition of this If is traced, so both branches are compiled; if a model input decides it, give that input "
    "as a NumPy value, or fix it: load(path, values={name: value})"
)


def shape_text(sizes: Sequence[Any]) -> str:
    """Sizes the way messages show them."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def amount(count: Any, noun: str, plural: str = "") -> str:
    """A number and its noun, singular for 1. plural: the noun for other numbers (default: with an s).

    >>> amount(1, "node"), amount(1234, "node"), amount(2, "axis", "axes")
    ('1 node', '1,234 nodes', '2 axes')
    """
    number = f"{count:,}" if isinstance(count, int) else str(count)
    return f"{number} {noun if number == '1' else plural or noun + 's'}"


def items(array: np.ndarray) -> Iterable[Any]:
    """The elements one by one, without a copy where NumPy can: `flat` takes at most 32 axes."""
    return array.flat if array.ndim <= 32 else array.ravel()


def describe(value: Any) -> str:
    """`float32[2,3]` for an array, with its elements if they are known and few; `repr` for any other value but a list
    of arrays.
    """
    if _is_sequence(value):
        return f"a sequence of {amount(len(value), 'array')}"
    shape = getattr(value, "shape", None)
    # The class np.float32 has the attributes of its instances, and `nnx.Rngs` of flax has any attribute.
    if not isinstance(shape, tuple) or not hasattr(value, "dtype") or isinstance(value, type):
        return repr(value)
    name = value.dtype.name
    if (
        name == "object"
        and isinstance(value, np.ndarray)
        and not any(isinstance(item, str | bytes) for item in items(value))
    ):
        name = "int64"  # symbolic sizes
    text = f"{name}[{','.join(map(str, shape))}]"
    if isinstance(value, np.ndarray | np.generic) and value.size <= 8:
        return f"{text} {np.array2string(np.asarray(value), formatter={'object': _short, 'numpystr': _short})}"
    return text


def _short(element: Any) -> str:
    return f"{element[:40]!r}…" if isinstance(element, str) and len(element) > 40 else repr(element)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(hasattr(item, "dtype") for item in value)


def near(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: those like it, except for case and underscores, if there are any."""

    def folded(text: str) -> str:
        return text.replace("_", "").lower()

    by_text: dict[str, list[str]] = {}
    for candidate in names:
        by_text.setdefault(folded(candidate), []).append(candidate)
    texts = [folded(name)] if folded(name) in by_text else difflib.get_close_matches(folded(name), by_text, 3)
    matches = [candidate for text in texts for candidate in by_text[text]]
    return f"; similar: {', '.join(map(repr, matches))}" if matches else ""


def install(extra: str) -> str:
    """The end of a message about a missing package: how to install the extra of jaxops that brings it.

    No package index has jaxops, so the command is one for a checkout.
    """
    return f"install the extra `{extra}` of jaxops: pip install '.[{extra}]' in a checkout of jaxops"


def message(problem: str, *, hint: str | None = None, **operands: Any) -> str:
    """The layout of an error: the problem, then one line per operand, then a hint."""
    lines = [problem]
    lines += [f"  {name:<7} {describe(value)}" for name, value in operands.items()]
    if hint:
        lines.append(f"  hint    {hint}")
    return "\n".join(lines)
