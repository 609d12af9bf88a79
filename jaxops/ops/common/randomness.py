"""Functions that the operators on random numbers share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.errors import ArgumentError
from jaxops.static import Dim

# The generator MT19937: the number of words of its state, and the distance between two words that make a new one.
_WORDS, _APART = 624, 397


class MissingKeyError(ArgumentError):
    """Random numbers without a key or a seed."""


def random_key(rng: Any, seed: float | None) -> Any:
    """The random key of an operator: `rng`, or a key seeded with the bits of the attribute `seed`, a float32.

    Raises MissingKeyError if both are None.
    """
    if rng is not None:
        return rng
    if seed is None:
        raise MissingKeyError(
            "it needs a random key; pass `rng`, such as jax.random.key(0), or a number `seed` where the "
            "operator itself is called"
        )
    return jax.random.key(np.float32(seed).view(np.uint32))


def not_below(seed: int, share: Any, count: Dim) -> jax.Array:
    """Draws `count` numbers in [0, 1), those of NumPy's `RandomState(seed)`, and compares each with `share`: True if at
    least that.

    The numbers are drawn when the program runs, so they are not constants of the program, and their count may be
    symbolic. share: a float32 scalar in [0, 1), traced.
    """
    words = mersenne_twister(seed, 2 * count)[: 2 * count].reshape(count, 2)
    # NumPy makes a float64 from 27 bits of the first word and 26 of the second; the two parts are compared separately.
    high, low = words[:, 0] >> 5, words[:, 1] >> 6
    scaled = share * np.float32(2**27)
    high_part = jnp.floor(scaled)
    low_part = jnp.ceil((scaled - high_part) * np.float32(2**26))
    high_part, low_part = high_part.astype(np.uint32), low_part.astype(np.uint32)
    return (high > high_part) | ((high == high_part) & (low >= low_part))


def mersenne_twister(seed: int, count: Dim) -> Any:
    """At least `count` words of MT19937, seeded as NumPy seeds it with the lowest 32 bits of `seed`."""
    state = np.random.RandomState(seed % 2**32).get_state(legacy=False)["state"]["key"]
    turns = lax.iota(np.int32, -(-count // _WORDS))  # scan takes no symbolic `length`, but operands of symbolic size
    _, blocks = lax.scan(lambda key, _: (_twist(key),) * 2, jnp.asarray(state), turns)
    y = blocks.reshape(-1)
    y ^= y >> 11
    y ^= (y << 7) & np.uint32(0x9D2C5680)
    y ^= (y << 15) & np.uint32(0xEFC60000)
    return y ^ (y >> 18)


def _twist(key: Any) -> Any:
    """The next state. Each new word is an input of the one 227 places later, so the state is made in three parts."""
    ahead = jnp.concatenate([key[1:], key[:1]])
    gap = _WORDS - _APART
    first = key[_APART:] ^ _mixed(key[:gap], ahead[:gap])
    second = first ^ _mixed(key[gap : 2 * gap], ahead[gap : 2 * gap])
    third = second[: _APART - gap - 1] ^ _mixed(key[2 * gap : -1], ahead[2 * gap : -1])
    last = second[_APART - gap - 1 : _APART - gap] ^ _mixed(key[-1:], first[:1])
    return jnp.concatenate([first, second, third, last])


def _mixed(upper: Any, lower: Any) -> Any:
    y = (upper & np.uint32(0x80000000)) | (lower & np.uint32(0x7FFFFFFF))
    return (y >> 1) ^ jnp.where(y & 1 == 1, np.uint32(0x9908B0DF), np.uint32(0))
