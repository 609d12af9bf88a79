"""Operators on text and tokens: MurmurHash, tokenizer, repeated n-grams, dynamic time warping."""

__all__ = ["dynamic_time_warping", "murmur_hash3", "n_gram_repeat_block", "tokenizer"]

from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer
from jaxops.dtypes import as_traced, floating, is_string
from jaxops.errors import ArgumentError, DTypeError, ShapeError, describe, shape_text
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import bounded_like, unbounded
from jaxops.ops.common.words import from_words, words_of
from jaxops.ops.text.regular_expressions import compiled, encoded
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import AllBits, DataSize, Static, operator
from jaxops.static import A, ArrayLike, Operand, Tracer, array, jit_if_concrete

_HASHED = ("int32", "uint32", "int64", "uint64", "float32", "float64")


@operator(foldable=True)
def murmur_hash3(x: AllBits[Operand[A]], *, positive: int = 1, seed: int = 0) -> A:
    """Returns the 32-bit MurmurHash3 of the bytes of each element.

    x: any shape; strings (static, as UTF-8), or int32, uint32, int64, uint64, float32 or float64. While x64 is off, a
    traced 64-bit number has lost its upper half and hashes as 32 bits: keep it static. (A model that hashes one runs
    with x64.) positive: 1 returns uint32, 0 the same bits as int32. seed: an integer of 32 bits.
    Raises DTypeError for another dtype. Source: com.microsoft MurmurHash3, opset 1.

    >>> murmur_hash3(np.array([1, 2], np.int32), positive=0)
    array([ -68075478, 1085422463], dtype=int32)
    """
    data, start = array(x), integer("seed", seed) & 0xFFFFFFFF
    kind = np.dtype(np.uint32 if flag("positive", positive) else np.int32)
    if is_string(data):
        hashes = np.empty(data.shape, np.uint32)
        for index, text in np.ndenumerate(data):
            hashes[index] = _hash_of_bytes(str(text).encode(errors="surrogatepass"), start)
        return cast(Any, hashes.view(kind))
    if data.dtype.name not in _HASHED:
        raise DTypeError(f"x must be strings or of {', '.join(_HASHED)}, got {describe(data)}")
    if isinstance(data, np.ndarray):
        halves = np.ascontiguousarray(data).reshape(*data.shape, 1).view(np.uint32)
        with np.errstate(over="ignore"):
            return cast(
                Any, np.asarray(_mixed([halves[..., i] for i in np.arange(halves.shape[-1])], start)).view(kind)
            )
    return _murmur_hash3(data, start, kind)


@jit_if_concrete
def _murmur_hash3(x: Any, seed: int, kind: np.dtype) -> Any:
    if isinstance(x, np.ndarray):
        x = as_traced(x)
    return from_words([_mixed(words_of(x), seed)], kind)


def _mixed(words: Sequence[Any], seed: int) -> Any:
    """Returns the hash of 32-bit words, which are arrays of NumPy or JAX."""
    state = words[0] * np.uint32(0) + np.uint32(seed)
    for word in words:
        state = _with_word(state, word)
    return _avalanche(state ^ np.uint32(4 * len(words)))


def _with_word(state: Any, word: Any) -> Any:
    state = state ^ _scrambled(word)
    return ((state << np.uint32(13)) | (state >> np.uint32(19))) * np.uint32(5) + np.uint32(0xE6546B64)


def _scrambled(word: Any) -> Any:
    word = word * np.uint32(0xCC9E2D51)
    return ((word << np.uint32(15)) | (word >> np.uint32(17))) * np.uint32(0x1B873593)


def _avalanche(state: Any) -> Any:
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _hash_of_bytes(text: bytes, seed: int) -> np.uint32:
    aligned = len(text) // 4 * 4
    with np.errstate(over="ignore"):
        state = np.uint32(seed)
        for word in np.frombuffer(text[:aligned], "<u4"):
            state = _with_word(state, word)
        state = state ^ _scrambled(np.uint32(int.from_bytes(text[aligned:], "little")))
        return _avalanche(state ^ np.uint32(len(text)))


@operator(foldable=True)
def tokenizer(
    x: Any,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
) -> np.ndarray:
    """Divides each string into tokens, on a new last axis whose size is the largest number of tokens.

    x: strings, (C,) or (N, C). Returns strings (C, T) or (N, C, T). separators: regular expressions, which cut a string
    one after another; a single empty one makes each character a token. tokenexp: a regular expression that matches
    tokens; '.' makes each character one. Exactly one of the two must be given. They have the syntax of RE2, and match
    as much as they can.
    mincharnum: positive; tokens of fewer characters are dropped. mark: 1 puts the character 0x02 before the
    tokens of a string, and 0x03 after them. pad_value: pads the last axis.
    Raises ShapeError for another rank, DTypeError for anything but strings, ArgumentError.
    Source: com.microsoft Tokenizer, opset 1.

    >>> tokenizer(np.array(["a bc", "d"]), mark=0, mincharnum=1, pad_value="#", separators=(" ",)).tolist()
    [['a', 'bc'], ['d', '#']]
    """
    texts = array(x)
    if not isinstance(texts, np.ndarray) or not is_string(texts):
        raise DTypeError(f"`x` must be strings, in a NumPy array, but is {describe(texts)}")
    if texts.ndim not in (1, 2):
        raise ShapeError(f"`x` must be (C,) or (N, C), got {describe(texts)}")
    if (separators is None) == (tokenexp is None):
        raise ArgumentError("one of `separators` and `tokenexp` must be given")
    least = integer("mincharnum", mincharnum, least=1)
    if texts.size == 0:
        return texts.astype(object)
    tokens = {text: _tokens(str(text), least, separators, tokenexp) for text in set(texts.flat)}
    if not any(tokens.values()):
        return np.empty((*texts.shape, 0), object)
    ends = (["\x02"], ["\x03"]) if flag("mark", mark) else ([], [])
    most = max(map(len, tokens.values())) + 2 * len(ends[0])
    bounded_like((*texts.shape, most), texts, object)
    table = np.full((texts.size, most), pad_value, object)
    for line, text in zip(table, texts.flat, strict=True):
        row = [*ends[0], *tokens[text], *ends[1]]
        line[: len(row)] = row
    return table.reshape(*texts.shape, -1)


def _tokens(text: str, least: int, separators: Sequence[str] | None, tokenexp: str | None) -> list[str]:
    if tokenexp == "." or list(separators or ()) == [""]:
        return list(text)
    if tokenexp is not None:
        pattern = compiled("tokenexp", tokenexp, longest=True)
        matches = [match.group() for match in pattern.finditer(encoded(text))]
        return _long_enough(matches, least)
    pieces = [text]
    for separator in separators or ():
        if not separator:
            raise ArgumentError("`separators` has an empty string; then it must have no other strings")
        pattern = compiled("separators", separator, longest=True)
        pieces = [part for piece in pieces for part in _long_enough(_cut(encoded(piece), pattern), least)]
    return pieces


def _long_enough(tokens: Sequence[bytes], least: int) -> list[str]:
    """Returns the tokens with at least so many characters."""
    texts = (token.decode(errors="surrogatepass") for token in tokens)
    return [token for token in texts if len(token) >= least]


def _cut(text: bytes, pattern: Any) -> list[bytes]:
    parts, begin = [], 0
    for match in pattern.finditer(text):
        if match.end() > match.start():
            parts.append(text[begin : match.start()])
            begin = match.end()
    return [*parts, text[begin:]]


def n_gram_repeat_block(input_ids: ArrayLike, scores: ArrayLike, *, ngram_size: int) -> jax.Array:
    """Sets the score of each token that would repeat an n-gram of the tokens so far to -inf.

    input_ids: (N, S), integers in [0, V). scores: (N, V), floats. ngram_size: positive; the last ngram_size - 1 tokens
    begin the n-gram. Returns an array like scores.
    Raises ShapeError, ArgumentError, DTypeError. Source: com.microsoft NGramRepeatBlock, opset 1.

    >>> n_gram_repeat_block(jnp.array([[0, 1, 0]]), jnp.ones((1, 3)), ngram_size=2).tolist()
    [[1.0, -inf, 1.0]]
    """
    ids, (values,) = as_traced(input_ids), floating(scores=scores)
    require("integer", ids)
    size = integer("ngram_size", ngram_size, least=1)
    must_fit("input_ids", ids.shape, ("N", "S"))
    must_fit("scores", values.shape, (ids.shape[0], "V"), reason=", with a row for each of `input_ids`")
    if isinstance(ids.shape[1], int) and ids.shape[1] < size:
        return values
    return _n_gram_repeat_block((ids, values), size)


@jit_if_concrete
def _n_gram_repeat_block(operands: tuple[jax.Array, ...], size: int) -> jax.Array:
    ids, scores = operands
    length = ids.shape[1]
    count = length - size + 1
    last = lax.slice_in_dim(ids, length - size + 1, length, axis=1)
    repeated = jnp.ones((ids.shape[0], count), bool)
    for i in np.arange(size - 1):
        now = lax.slice_in_dim(ids, int(i), count + int(i), axis=1)
        repeated = repeated & (now == last[:, i : i + 1])
    banned = jnp.where(repeated, -jnp.inf, jnp.inf).astype(scores.dtype)
    row = lax.broadcasted_iota(np.int32, banned.shape, 0)
    return scores.at[row, lax.slice_in_dim(ids, size - 1, length, axis=1)].min(banned)


def _places(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    return jnp.count_nonzero(results[0][0] >= 0)


@operator(data_size=DataSize(_places, lambda inputs, attributes: sum(inputs[0].shape[-2:]) - 1))
def dynamic_time_warping(input: ArrayLike, *, size: Static = None) -> jax.Array:
    """Returns the path of lowest cost through a matrix, from its first element to its last.

    input: (M, N) or (1, M, N), floats, the cost of each place. A step goes to the next row, the next column, or both.
    Returns (2, x), int32: the rows and the columns of the path, max(M, N) <= x < M + N. size: static, a fixed x, to
    which the path is cropped or padded with -1; needed if input is traced. If costs are equal, the step to the next
    column is taken, as in onnxruntime.
    Raises StaticError for a traced input without `size`, ShapeError, DTypeError.
    Source: com.microsoft DynamicTimeWarping, opset 1.

    >>> dynamic_time_warping(jnp.array([[1.0, 1.0, 9.0], [9.0, 9.0, 1.0]])).tolist()
    [[0, 0, 1], [0, 1, 2]]
    """
    (cost,) = floating(input=input)
    must_fit("input", cost.shape, ("M", "N"), (1, "M", "N"))
    if 0 in cost.shape:
        raise ShapeError(f"`input` of {shape_text(cost.shape)} is empty")
    cost = cost.reshape(cost.shape[-2:])
    if size is not None:
        return _warping(cost, integer("size", size))[0]
    if isinstance(cost, Tracer):
        problem = "the length of the path depends on `input`, which is traced"
        raise unbounded(problem, "n places, cropped or filled up with -1", input=cost)
    path, length = _warping(cost, sum(cost.shape) - 1)
    return path[:, : int(length)]


@jit_if_concrete
def _warping(cost: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    rows, columns = cost.shape
    wide = cost.astype(np.float32)
    row = jnp.arange(rows + 1, dtype=np.int32)
    infinite = jnp.full(rows + 1, np.inf, np.float32)

    def diagonal(last: Any, step: Any) -> Any:
        """Computes the costs of the cells (i, step - i) for all rows i; row 0 and column 0 lie before the matrix."""
        before, previous = last
        both, down, along = jnp.roll(before, 1), jnp.roll(previous, 1), previous
        column = step - row
        inside = (row >= 1) & (column >= 1) & (column <= columns)
        move = jnp.where((both < down) & (both < along), 0, jnp.where((down < both) & (down < along), 1, 2))
        best = jnp.where(move == 0, both, jnp.where(move == 1, down, along))
        cell_costs = wide.at[row - 1, column - 1].get(mode="clip", wrap_negative_indices=False)
        return (previous, jnp.where(inside, best + cell_costs, infinite)), move.astype(np.int8)

    steps = jnp.arange(2, rows + columns + 1, dtype=np.int32)
    begin = (infinite.at[0].set(0), infinite)
    _, moves = lax.scan(diagonal, begin, steps)

    def back(cell: Any, _: Any) -> Any:
        i, j = cell
        inside = (i > 0) & (j > 0)
        move = moves[jnp.maximum(i + j - 2, 0), i]
        following = (i - (move != 2).astype(np.int32), j - (move != 1).astype(np.int32))
        next_cell = jax.tree.map(lambda new, old: jnp.where(inside, new, old), following, cell)
        return next_cell, jnp.stack([i - 1, j - 1, inside.astype(np.int32)])

    end = (jnp.asarray(rows, np.int32), jnp.asarray(columns, np.int32))
    _, path_backwards = lax.scan(back, end, None, length=rows + columns - 1)
    length = path_backwards[:, 2].sum(dtype=np.int32)
    index = length - 1 - jnp.arange(size, dtype=np.int32)
    path = path_backwards[jnp.maximum(index, 0), :2].T
    return jnp.where(index >= 0, path, -1), length
