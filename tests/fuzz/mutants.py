"""Damaged models: bytes that are flipped, cut, spliced; messages whose fields are changed, doubled, swapped, dropped.

`mutant(seed, number, pool)` is one of them. The kinds are the rows of the table that `run.py` prints.
"""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import onnx
from google.protobuf.message import DecodeError
from mutated_bytes import BYTES
from mutated_models import STEPS
from mutated_texts import TEXTS

KINDS = ("bytes", "nodes", "sizes", "structure", "texts")


class Mutant(NamedTuple):
    """kind: the row of the table. data: bytes; the text and weights of an IR. steps: what was done to which model."""

    kind: str
    data: Any
    steps: tuple[str, ...]


def mutant(seed: int, number: int, pool: Sequence[bytes], kind: str | None = None) -> Mutant:
    """The mutant of this number, from the models of `pool`."""
    rng = random.Random(f"{seed} {number}")
    kind = kind or KINDS[number % len(KINDS)]
    at = rng.randrange(len(pool))
    steps = [f"model {at} of the pool"]
    if kind == "bytes":
        data = pool[at]
        for _ in range(rng.choice((1, 1, 2, 5))):
            data, step = rng.choice(BYTES)(rng, data, pool)
            steps.append(step)
        return Mutant(kind, data, tuple(steps))
    model = onnx.ModelProto.FromString(pool[at])
    donor = onnx.ModelProto.FromString(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        steps.append(rng.choice({**STEPS, "texts": TEXTS}[kind])(rng, model, donor))
    try:
        return Mutant(kind, model.SerializeToString(), tuple(steps))
    except (ValueError, DecodeError) as error:  # a message that protobuf does not write
        return Mutant(kind, pool[at], (*steps, f"not written: {error}"))
