"""Writes text of a file into source: strings, names, docstrings, comments. Such text enters source in no other way."""

import keyword
import re
from collections.abc import Container

from jaxops.shown_text import clean


def string(value: str) -> str:
    """A string in double quotes, unless that takes more escapes."""
    text = repr(value)
    return text if '"' in value or text[0] == '"' else f'"{text[1:-1]}"'


def identifier(text: str, used: Container[str] = ()) -> str:
    """A Python name for any text, different from `used`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", text)
    words = "".join(c if c.isascii() and c.isalnum() else "_" for c in text).strip("_").lower() or "x"
    while "__" in words:
        words = words.replace("__", "_")
    base = f"x{words}" if words[0].isdigit() else words
    base = f"{base}_" if keyword.iskeyword(base) or base == "l" else base
    name, count = base, 1
    while name in used:
        count += 1
        name = f"{base.rstrip('_')}_{count}"
    return name


def docstring(text: object) -> str:
    r"""Text between the quotes of a docstring, on one line.

    >>> docstring('"weight" of a\b')
    '\\"weight\\" of a\\\\x08'
    """
    return clean(text).replace("\\", "\\\\").replace('"', '\\"')


def comment(text: object) -> str:
    """Text of a comment, on one line."""
    return f"# {clean(text)}"


def is_keyword_argument(name: str) -> bool:
    """Returns True if a call can have a keyword argument of this name without quotes."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
