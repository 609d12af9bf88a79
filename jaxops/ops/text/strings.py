"""Operators on strings, which are static: NumPy arrays of dtype object."""

__all__ = ["regex_full_match", "string_concat", "string_normalizer", "string_split"]

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from jaxops.attributes import flag, integer, one_of
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, describe, shape_text
from jaxops.memory import bounded, bounded_operands
from jaxops.opaque import ChosenStrings
from jaxops.ops.common.chosen_strings import joins_strings, maps_strings
from jaxops.ops.common.result_sizes import bounded_like
from jaxops.ops.text.regular_expressions import compiled, encoded
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.signature import Traits
from jaxops.static import array

TRAITS = Traits(foldable=True)

# A character of a Python string takes 1, 2 or 4 bytes.
_WIDEST = 4


def _strings(operand: str, value: Any) -> np.ndarray:
    values = array(value)
    bounded_operands((values,))
    if not isinstance(values, np.ndarray) or not all(issubclass(kind, str) for kind in set(map(type, values.flat))):
        raise DTypeError(f"`{operand}` must be strings, in a NumPy array, but is {describe(values)}")
    return values.astype(object, copy=False)


@joins_strings
def string_concat(x: Any, y: Any) -> np.ndarray:
    """Concatenates each string of `x` with that of `y`; the operands broadcast to each other.

    x, y: strings. Returns strings, of the broadcast shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for anything but strings.
    Source: ONNX StringConcat, opset 20.

    >>> string_concat(np.array(["a", "b"]), np.array("c"))
    array(['ac', 'bc'], dtype=object)
    """
    a, b = _strings("x", x), _strings("y", y)
    sizes = broadcast(a.shape, b.shape)
    bounded_like(sizes, a)
    count = sum(math.prod(sizes) // v.size * sum(map(len, v.flat)) for v in (a, b)) if 0 not in sizes else 0
    bounded((count,), _WIDEST, "the characters of its result")
    return np.asarray(a + b, object)


def string_split(x: Any, *, delimiter: str | None = None, maxsplit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Splits strings into (pieces along a new last axis, padded with ''; the number of pieces of each string).

    x: strings, any shape. delimiter: None or '' splits at runs of white space and ignores it at both ends.
    maxsplit: the largest number of splits per string; None sets no limit, nor does a negative number, as in
    onnxruntime. An empty string has no pieces, as in onnxruntime.
    Returns strings of shape (*x.shape, largest number of pieces) and int64 numbers of shape x.shape.
    Raises DTypeError for anything but strings.
    Source: ONNX StringSplit, opset 20.

    >>> string_split(np.array(["a b", "c"]))
    (array([['a', 'b'],
           ['c', '']], dtype=object), array([2, 1]))
    """
    values = _strings("x", x)
    limit = -1 if maxsplit is None else integer("maxsplit", maxsplit)
    # Once for each distinct string, of which a broadcast has few.
    if delimiter:
        cut = {item: item.split(delimiter, limit) if item else [] for item in set(values.flat)}
    else:
        cut = {item: item.strip().split(None, limit) for item in set(values.flat)}
    most = max(map(len, cut.values()), default=0)
    bounded_like((*values.shape, most), values)
    table = np.full((values.size, most), "", object)
    for row, item in zip(table, values.flat, strict=True):
        row[: len(cut[item])] = cut[item]
    counts = np.array([len(cut[item]) for item in values.flat], np.int64)
    return table.reshape(*values.shape, most), counts.reshape(values.shape)


CaseChange = Literal["LOWER", "UPPER", "NONE"]
_LOCALE = re.compile(r"(?P<language>[A-Za-z]{1,8})([_-][A-Za-z0-9]+)*([.@][A-Za-z0-9_.@-]+)?|")
# In these languages, i with a dot and i without a dot are two letters, each with an upper and a lower case.
_DOTTED = ("tr", "az")
_LOWER, _UPPER = str.maketrans({"I": "ı", "İ": "i"}), str.maketrans({"i": "İ", "ı": "I"})


def _cases(locale: str | None) -> dict[str, Callable[[str], str]]:
    """The changes of case in the language of a locale, such as en_US, tr-TR or C.UTF-8."""
    match = _LOCALE.fullmatch(locale or "")
    if match is None:
        raise ArgumentError(f"`locale` is {locale!r}; it must be the name of a locale, such as en_US")
    if (match["language"] or "").lower() in _DOTTED:
        return {
            "NONE": str,
            "LOWER": lambda text: text.translate(_LOWER).lower(),
            "UPPER": lambda text: text.translate(_UPPER).upper(),
        }
    return {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def string_normalizer(
    x: Any,
    *,
    case_change_action: CaseChange = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] = (),
) -> np.ndarray:
    """Drops stop words, then changes the case of the remaining strings.

    x: strings, (C,) or (1, C). case_change_action: 'LOWER', 'UPPER' or 'NONE'. is_case_sensitive: 1 drops a stop word
    only in its own case. locale: such as en_US, its default; case follows Unicode for all languages, except for the
    dotted and dotless i of Turkish and Azerbaijani.
    Returns (D,) or (1, D); one empty string when no string remains. Under `jit`, strings that traced numbers choose are
    refused with `stopwords`, as the numbers would decide the size.
    Raises ShapeError for another shape, ArgumentError for another action or a malformed locale, DTypeError for anything
    but strings.
    Source: ONNX StringNormalizer, opset 10.

    >>> string_normalizer(np.array(["The", "Cat"]), stopwords=["the"], case_change_action="UPPER")
    array(['CAT'], dtype=object)
    """
    x = x if isinstance(x, ChosenStrings) else _strings("x", x)
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ShapeError(f"x of {shape_text(x.shape)} must be (C,) or (1, C)")
    one_of("case_change_action", case_change_action, CaseChange)
    cases, is_exact = _cases(locale), flag("is_case_sensitive", is_case_sensitive)
    if not stopwords and 0 not in x.shape:
        return _in_case(x, change=cases[case_change_action])
    values = _strings("x", x)
    same = str if is_exact else cases["LOWER"]
    dropped = {same(word) for word in stopwords}
    # Once for each distinct string: equal strings, of which a broadcast has many, then share one object.
    changed = {item: cases[case_change_action](item) for item in set(values.flat) if same(item) not in dropped}
    remaining = [changed[item] for item in values.flat if item in changed]
    return np.array(remaining or [""], object).reshape((1, -1) if values.ndim == 2 else (-1,))


@maps_strings
def _in_case(x: Any, *, change: Callable[[str], str]) -> np.ndarray:
    changed = {item: change(item) for item in set(x.flat)}
    return np.array([changed[item] for item in x.flat], object).reshape(x.shape)


@maps_strings
def regex_full_match(x: Any, *, pattern: str | None = None) -> np.ndarray:
    """Returns True for each string that a pattern matches from its first to its last character.

    x: strings, any shape. pattern: in the notation of RE2. Returns booleans.
    Raises ArgumentError for a malformed pattern and for what RE2 lacks (backreferences, lookaround, possessive
    quantifiers); SignatureError without a pattern; DTypeError for anything but strings; UnsupportedError without
    google-re2.
    Source: ONNX RegexFullMatch, opset 20.

    >>> regex_full_match(np.array(["a1", "a1b"]), pattern="[a-z][[:digit:]]")
    array([ True, False])
    """
    values = _strings("x", x)
    if pattern is None:
        raise SignatureError("`pattern` is missing")
    matches = compiled("pattern", pattern).fullmatch
    matched = {item: matches(encoded(item)) is not None for item in set(values.flat)}
    return np.array([matched[item] for item in values.flat], bool).reshape(values.shape)
