"""Prompts of any lengths: their checks, and the few sizes for which programs are compiled."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.errors import BoundsError, DTypeError, ShapeError

# The smallest number of tokens for which a program is compiled.
_SMALLEST = 16
# The number of tokens that int32 can tell apart.
_MOST = 2**31


def checked_prompts(prompts: Any) -> list[np.ndarray]:
    """Returns each prompt as integers (n,). prompts: lists of integers, or integers (B, n).

    Raises ShapeError for no prompt, an empty one, or one without a batch, and DTypeError for one of other types.
    """
    if isinstance(prompts, str) or not (isinstance(prompts, Sequence) or np.ndim(prompts) == 2) or not len(prompts):
        raise ShapeError(
            f"`prompts` is {prompts!r:.80}; it must be a list of prompts, each a list of integers: [[1, 5], [1, 7, 2]]"
        )
    rows = []
    for k, prompt in enumerate(prompts):
        if np.ndim(prompt) == 0 and not isinstance(prompt, str):
            raise ShapeError(
                f"prompt {k} is {prompt!r:.80}, no list; a batch of one prompt is a list with one list: [[1, 5, 17]]"
            )
        row = np.asarray(prompt)
        if row.size == 0:
            raise ShapeError(f"prompt {k} is empty; give at least one token, such as the one that begins a text")
        if row.ndim != 1 or row.dtype.kind not in "iu":
            raise DTypeError(f"prompt {k} is {prompt!r:.80}; it must be a list of integers: what a tokenizer returns")
        rows.append(row)
    return rows


def check_vocabulary(what: str, tokens: Any, size: int | None) -> None:
    """Raises BoundsError for a token below 0 or beyond a vocabulary. size: of the vocabulary; None if unknown."""
    tokens = np.asarray(tokens)
    wrong = tokens[(tokens < 0) | (tokens >= (_MOST if size is None else size))]
    if wrong.size:
        has = f"tokens are 0 to {_MOST - 1}" if size is None else f"the model has the tokens 0 to {size - 1}"
        raise BoundsError(f"{what} has the token {wrong[0]}, but {has}\n  hint    use the model's own tokenizer")


def program_width(count: int) -> int:
    """The number of tokens for which a program of prompts is compiled: a power of two."""
    return max(_SMALLEST, 1 << (count - 1).bit_length())


def program_length(count: int) -> int:
    """The number of tokens for which caches have room: a power of two, or halfway between two of them."""
    unit = max(_SMALLEST, (1 << (count - 1).bit_length()) // 4)
    return -(-count // unit) * unit


def padded(rows: Sequence[np.ndarray], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens (B, width) of prompts, padded on the right, and their mask."""
    tokens, mask = (np.zeros((len(rows), width), np.int32) for _ in range(2))
    for row, prompt in enumerate(rows):
        tokens[row, : prompt.size], mask[row, : prompt.size] = prompt, 1
    return tokens, mask


def rows_by_length(rows: Sequence[np.ndarray]) -> Mapping[int, list[int]]:
    """Returns the numbers of the prompts of each length."""
    found: dict[int, list[int]] = {}
    for k, prompt in enumerate(rows):
        found.setdefault(prompt.size, []).append(k)
    return found
