"""Reads texts of attributes as values: numbers, lists with or without spaces, booleans, sizes."""

import re
from collections.abc import Callable
from typing import Any

from jaxops.errors import ModelError

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_RANGE = re.compile(r"(\d{1,19})\s*\.\.\s*(\d{1,19})?|\.\.\s*(\d{1,19})", re.ASCII)
# The largest size in a file, which stands for no limit.
_UNBOUNDED = 2**63 - 1


def boolean(text: str, subject: str) -> bool:
    """Reads true, false, 1 or 0, in any case. Raises ModelError, which begins with `subject`, for another text."""
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ModelError(f"{subject} is {text!r:.40}; it must be true or false")
    return value


def integer(text: str, subject: str) -> int:
    """Reads a whole number. Raises ModelError, which begins with `subject`, for another text."""
    if not _INTEGER.fullmatch(text.strip()):
        raise ModelError(f"{subject} is {text!r:.40}; it must be a whole number")
    return int(text)


def number(text: str, subject: str) -> float:
    """Reads a number. Raises ModelError, which begins with `subject`, for another text."""
    try:
        return float(text)
    except ValueError as error:
        raise ModelError(f"{subject} is {text!r:.40}; it must be a number") from error


def listed(text: str, item: Callable[[str, str], Any], subject: str) -> tuple[Any, ...]:
    """Reads a list, separated by commas. item: reads an element."""
    return tuple(item(part, subject) for part in text.split(",")) if text.strip() else ()


def word(text: str, _: str) -> str:
    """Returns a word without the spaces around it."""
    return text.strip()


def shape(text: str, subject: str) -> list[tuple[int, int | None]] | None:
    """Reads the smallest and largest size of each axis from a text such as "?,3,1..8,2.."; None stands for no limit.

    Returns None for a free rank, "...". Raises ModelError, which begins with `subject`, for another text.
    """
    text = text.strip().removeprefix("[").removesuffix("]").strip()
    return None if text == "..." else list(listed(text, _limits, subject))


def _limits(text: str, subject: str) -> tuple[int, int | None]:
    text = text.strip()
    if text in ("?", "-1"):
        return 0, None
    span = _RANGE.fullmatch(text)
    if span:
        low, high = int(span[1] or 0), span[2] or span[3]
        largest = None if high is None or int(high) >= _UNBOUNDED else int(high)
        if largest is not None and largest < low:
            raise ModelError(f"{subject} holds {text!r:.40}, whose limits are in the wrong order")
        return low, largest
    size = integer(text, subject)
    if size < 0:
        raise ModelError(f"{subject} holds {size}; a size must be at least 0, or ? if it is free")
    return size, size
