"""Operators on strings, which are static: NumPy arrays of dtype object."""

__all__ = ["regex_full_match", "string_concat", "string_normalizer", "string_split"]

import functools
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from jaxops.attributes import flag, integer, one_of
from jaxops.dtypes import is_string
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, describe, shape_text
from jaxops.memory import bounded_operands
from jaxops.ops.checked import bounded_like
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.static import array, foldable


def _strings(op: str, operand: str, value: Any) -> np.ndarray:
    values = array(value)
    if not isinstance(values, np.ndarray) or not is_string(values):
        raise DTypeError(f"{op}: `{operand}` must be strings, in a NumPy array, but is {describe(values)}")
    bounded_operands(op, (values,))
    return values.astype(object)


def _each(fn: Any, values: np.ndarray, dtype: Any = object) -> np.ndarray:
    found = np.empty(values.shape, dtype)
    for place, item in np.ndenumerate(values):
        found[place] = fn(item)
    return found


@foldable
def string_concat(x: Any, y: Any) -> np.ndarray:
    """Concatenates each string of `x` with that of `y`; the operands broadcast to each other.

    x, y: strings. Returns strings, of the broadcast shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for anything but strings.
    Source: ONNX StringConcat, opset 20.

    >>> string_concat(np.array(["a", "b"]), np.array("c"))
    array(['ac', 'bc'], dtype=object)
    """
    a, b = _strings("string_concat", "x", x), _strings("string_concat", "y", y)
    bounded_like("string_concat", broadcast("string_concat", a.shape, b.shape), a)
    return np.asarray(a + b, object)


@foldable
def string_split(x: Any, *, delimiter: str | None = None, maxsplit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Splits strings into (pieces along a new last axis, padded with ''; the number of pieces of each string).

    x: strings, any shape. delimiter: None or '' splits at runs of white space and ignores it at both ends.
    maxsplit: the largest number of splits per string; None, or a negative number as in onnxruntime, is no limit.
    Returns strings of shape (*x.shape, largest number of pieces) and int64 numbers of shape x.shape.
    Raises DTypeError for anything but strings.
    Source: ONNX StringSplit, opset 20. An empty string has no pieces, as in onnxruntime.

    >>> string_split(np.array(["a b", "c"]))
    (array([['a', 'b'],
           ['c', '']], dtype=object), array([2, 1]))
    """
    values = _strings("string_split", "x", x)
    limit = -1 if maxsplit is None else integer("string_split", "maxsplit", maxsplit)
    if delimiter:
        pieces = [item.split(delimiter, limit) if item else [] for item in values.flat]
    else:
        pieces = [item.strip().split(None, limit) for item in values.flat]
    most = max(map(len, pieces), default=0)
    found = np.full((len(pieces), most), "", object)
    for row, items in zip(found, pieces, strict=True):
        row[: len(items)] = items
    counts = np.array([len(items) for items in pieces], np.int64)
    return found.reshape(*values.shape, most), counts.reshape(values.shape)


CaseChange = Literal["LOWER", "UPPER", "NONE"]
_LOCALE = re.compile(r"(?P<language>[A-Za-z]{1,8})([_-][A-Za-z0-9]+)*([.@][A-Za-z0-9_.@-]+)?|")
# In these languages i with a dot and i without one are two letters, each of both cases.
_DOTTED = ("tr", "az")
_LOWER, _UPPER = str.maketrans({"I": "ı", "İ": "i"}), str.maketrans({"i": "İ", "ı": "I"})


def _cases(locale: str | None) -> dict[str, Callable[[str], str]]:
    """The changes of case in the language of a locale, such as en_US, tr-TR or C.UTF-8."""
    found = _LOCALE.fullmatch(locale or "")
    if found is None:
        raise ArgumentError(
            f"string_normalizer: `locale` is {locale!r}; it must be the name of a locale, such as en_US"
        )
    if (found["language"] or "").lower() in _DOTTED:
        return {
            "NONE": str,
            "LOWER": lambda text: text.translate(_LOWER).lower(),
            "UPPER": lambda text: text.translate(_UPPER).upper(),
        }
    return {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@foldable
def string_normalizer(
    x: Any,
    *,
    case_change_action: CaseChange = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] = (),
) -> np.ndarray:
    """Drops stop words, then changes the case of the remaining strings.

    x: strings, (C,) or (1, C). case_change_action: 'LOWER', 'UPPER' or 'NONE'. is_case_sensitive: whether stop words
    match only in their own case. locale: such as en_US, its default; the cases of all languages are those of Unicode,
    but for the dotted and dotless i of Turkish and Azerbaijani.
    Returns (D,) or (1, D); one empty string when no string remains.
    Raises ShapeError for another shape, ArgumentError for another action or for no name of a locale, DTypeError for
    anything but strings.
    Source: ONNX StringNormalizer, opset 10.

    >>> string_normalizer(np.array(["The", "Cat"]), stopwords=["the"], case_change_action="UPPER")
    array(['CAT'], dtype=object)
    """
    values = _strings("string_normalizer", "x", x)
    if values.ndim not in (1, 2) or (values.ndim == 2 and values.shape[0] != 1):
        raise ShapeError(f"string_normalizer: x of {shape_text(values.shape)} must be (C,) or (1, C)")
    one_of("string_normalizer", "case_change_action", case_change_action, CaseChange)
    cases = _cases(locale)
    same = str if flag("string_normalizer", "is_case_sensitive", is_case_sensitive) else cases["LOWER"]
    dropped = {same(word) for word in stopwords}
    kept = [cases[case_change_action](item) for item in values.flat if same(item) not in dropped]
    return np.array(kept or [""], object).reshape((1, -1) if values.ndim == 2 else (-1,))


# RE2 syntax that Python writes differently, and Python syntax that RE2 lacks (backreferences, lookaround, possessive
# quantifiers).
_TOKENS = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|(?P<end>\\z)|(?P<foreign>\\[1-9Z]|\(\?(?:[=!>#(]|<[=!]|P=|[imsU-]*[aLux]))"
    r"|\(\?(?P<flags>[ims-]*U[imsU-]*)(?P<after>[:)])|(?P<name>\(\?<)|\\(?P<sign>[pP])(?:\{(?P<long>\^?\w+)\}|(?P<short>\w))"
    r"|\\(?P<letter>[dswDSW])|\\.|\[:(?P<set>\^?\w+):\]|(?P<open>\[\^?\]?)|(?P<close>\])|(?P<dollar>\$)"
    r"|(?P<possessive>[*+?}]\+)",
    re.DOTALL,
)
_LETTERS = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ",
    "upper": "A-Z",
    "word": r"0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


@functools.cache
def _category(name: str, inverted: bool) -> str:
    """The characters of a general category of Unicode, such as L or Lu, as ranges of a class."""
    held = [unicodedata.category(chr(code)).startswith(name) != inverted for code in range(sys.maxunicode + 1)]
    edges = np.flatnonzero(np.diff([False, *held, False])).reshape(-1, 2)
    if len(edges) < 2:  # no character or, inverted, all of them
        raise re.error(f"the class {name!r} is not known; those of scripts are not supported")
    return "".join(f"\\U{first:08x}-\\U{end - 1:08x}" for first, end in edges.tolist())


class _ToPython:
    """What a token of RE2 is in Python."""

    def __init__(self, pattern: str) -> None:
        self.inside = False  # a class in brackets
        self.lines = re.search(r"\(\?[imsU]*m", pattern) is not None

    def __call__(self, token: re.Match[str]) -> str:
        found = token.groupdict()
        if found["foreign"] or (found["possessive"] and not self.inside):
            raise re.error(f"RE2 does not have {token[0]!r}")
        if found["open"]:
            if self.inside:  # Python warns of a bracket in a class
                return "".join(f"\\{c}" for c in token[0])
            self.inside = True
            return token[0]
        if found["close"]:
            self.inside = False
            return token[0]
        if found["quoted"] is not None:
            return re.escape(found["quoted"])
        if found["flags"]:  # U swaps greedy and lazy, which does not change whether a whole string matches
            kept = found["flags"].replace("U", "").rstrip("-")
            return f"(?{kept}{found['after']}" if kept else "(?:" if found["after"] == ":" else "(?:)"
        if found["name"]:
            return "(?P<"
        if found["end"] or (found["dollar"] and not self.inside and not self.lines):
            return r"\Z"
        return self._of_class(token, found)

    def _of_class(self, token: re.Match[str], found: dict[str, str | None]) -> str:
        if found["sign"]:
            name = found["long"] or found["short"] or ""
            items = _category(name.removeprefix("^"), (found["sign"] == "P") != name.startswith("^"))
            return items if self.inside else f"[{items}]"
        letter = found["letter"]
        if letter in _LETTERS:
            return _LETTERS[letter] if self.inside else f"[{_LETTERS[letter]}]"
        if letter and not self.inside:
            return f"[^{_LETTERS[letter.lower()]}]"
        if found["set"]:
            if found["set"] not in _CLASSES:
                raise re.error(f"the class {token[0]!r} is not known")
            return _CLASSES[found["set"]]
        return token[0]


@foldable
def regex_full_match(x: Any, *, pattern: str | None = None) -> np.ndarray:
    """Whether a pattern matches each string from its first to its last character.

    x: strings, any shape. pattern: in RE2 syntax, without classes of scripts (`\\\\p{Greek}`). Returns booleans.
    Raises ArgumentError for a malformed pattern and for syntax that RE2 lacks (backreferences, lookaround,
    possessive quantifiers); SignatureError without a pattern; DTypeError for anything but strings.
    Source: ONNX RegexFullMatch, opset 20.

    >>> regex_full_match(np.array(["a1", "a1b"]), pattern="[a-z][[:digit:]]")
    array([ True, False])
    """
    values = _strings("regex_full_match", "x", x)
    if pattern is None:
        raise SignatureError("regex_full_match: `pattern` is missing")
    try:
        # RE2's \b and \W know ASCII only, but re.ASCII would also restrict (?i) to ASCII letters.
        plain = pattern.isascii() or "(?i" not in pattern
        compiled = re.compile(_TOKENS.sub(_ToPython(pattern), pattern), re.ASCII if plain else 0)
    except re.error as error:
        raise ArgumentError(f"regex_full_match: `pattern` {pattern!r} is not valid: {error}") from error
    return _each(lambda item: compiled.fullmatch(item) is not None, values, bool)
