"""Damaged bytes: bits flipped, lengths changed, pieces cut, dropped, doubled, spliced."""

import random
from collections.abc import Sequence


def flipped(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found), "bits flipped"


def _byte_set(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    """A length, a tag or a number becomes another."""
    at = rng.randrange(len(data) + 1)
    new = rng.choice((b"\0", b"\x7f", b"\xff", b"\x80", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x01"))
    return data[:at] + new + data[at + rng.choice((1, len(new))) :], f"{new!r} at {at}"


def _cut(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    at = rng.randrange(len(data) + 1)
    return data[:at], f"cut at {at}"


def _dropped(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    at, count = rng.randrange(len(data) + 1), rng.choice((1, 2, 8, 50))
    return data[:at] + data[at + count :], f"{count} bytes dropped at {at}"


def _doubled(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    at, count = rng.randrange(len(data) + 1), rng.choice((1, 4, 30, 300))
    return data[: at + count] + data[at:], f"{count} bytes doubled at {at}"


def _spliced(rng: random.Random, data: bytes, pool: Sequence[bytes]) -> tuple[bytes, str]:
    other = rng.choice(pool)
    at, start = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
    return data[:at] + other[start:], f"spliced at {at} with another from {start}"


BYTES = (flipped, flipped, _byte_set, _byte_set, _cut, _dropped, _doubled, _spliced)
