"""What comes of a model that may be damaged: it is refused, it runs, or something gets out that should not.

`work` is the loop of a child process: it writes the number that it is at, so that its parent knows what ended it.
"""

import json
import os
import pickle
import resource
import struct
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from run import _family

from jaxops.errors import JaxopsError, UnsupportedError
from jaxops.onnx import load
from jaxops.openvino import load as load_ir
from jaxops.ops.controlflow import looping

# A value of a model may take so many bytes, the process so many.
VALUE, PROCESS = 1 << 28, 12 << 30
# Larger inputs are not made.
_ELEMENTS = 1 << 20
_SYMBOLIC = 2
_STEPS = 50


class Outcome(NamedTuple):
    """what: "refused" at load, "refused later", "ran", "not called", or what is wrong: "exception", "refused raw"."""

    what: str
    error: BaseException | None = None

    @property
    def wrong(self) -> bool:
        return self.what in ("exception", "refused raw")


@contextmanager
def short_loops() -> Iterator[None]:
    """Inside `with` no Loop runs more than `_STEPS` times: one that asks for 2^40 iterations is right to take them."""
    count = looping._count

    def limited(value: Any) -> Any:
        found = count(value)
        return (
            _STEPS if found is None else jnp.minimum(found, _STEPS) if hasattr(found, "dtype") else min(found, _STEPS)
        )

    with mock.patch.object(looping, "_count", limited):
        yield


def attacked(model: Any, *, calls: bool) -> Outcome:
    """Loads a model, saves it, and calls it on zeros. model: bytes or a path; the text and the weights of an IR."""
    stage = "refused"
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), short_loops():
            warnings.simplefilter("ignore")
            if isinstance(model, tuple):
                loaded = load_ir(model[0], weights=model[1], max_bytes=VALUE)
            else:
                loaded = load(model, max_bytes=VALUE)
            stage = "refused later"
            _saved(loaded, "model.xml" if isinstance(model, tuple) else "model.onnx")
            if not calls:
                return Outcome("not called")
            feeds = {v.name: zeros(v) for v in (*loaded.inputs, *loaded.state.values())}
            if any(x is None for x in feeds.values()):
                return Outcome("not called")
            jax.block_until_ready([x for x in jax.tree.leaves(loaded(feeds)) if isinstance(x, jax.Array)])
    except (JaxopsError, MemoryError) as error:
        return Outcome(stage, error)
    except Exception as error:  # what the whole file looks for
        return Outcome("refused raw" if "RESOURCE_EXHAUSTED" in str(error) else "exception", error)
    return Outcome("ran")


def _saved(loaded: Any, name: str) -> None:
    """Writes the file again: as it was, and with other weights."""
    params = loaded.params
    with tempfile.TemporaryDirectory() as folder:
        loaded.save(f"{folder}/{name}")
        with suppress(UnsupportedError):  # a changed weight for which the file has no place
            loaded.save(f"{folder}/{name}", {key: _changed(np.asarray(x)) for key, x in params.items()})


def _changed(x: np.ndarray) -> np.ndarray:
    """Other values of the same type."""
    return np.zeros_like(x) if np.any(x) else np.ones_like(x)


def zeros(value: Any) -> Any:
    """An input as it is declared; None where it would be large."""
    sizes = [size if isinstance(size, int) else _SYMBOLIC for size in value.shape or ()]
    if np.prod([float(max(size, 1)) for size in sizes]) > _ELEMENTS:
        return None
    if value.dtype is None or value.dtype.kind == "O":
        return np.full(sizes, "a", object)
    found = np.zeros(sizes, value.dtype)
    return {"sequence": [found], "map": {"a": 0.0}}.get(value.kind, found)


def fingerprint(error: BaseException) -> str:
    """Its type, and the line of jaxops that it came through last: findings with equal ones are one class."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/jaxops/" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}" if frames else "nowhere"
    return f"{type(error).__name__} at {where}"


def work(what: str, folder: Path, kind: str | None, seed: int, start: int, stop: int, step: int, calls: int) -> None:
    """Attacks with the mutants start, start + step, …; every `calls`-th one that loads is called.

    Files in folder: `pool`, the models; `at-START`, the number it is at; `found-START`, a line for each finding.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = PROCESS if hard == resource.RLIM_INFINITY else min(PROCESS, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    pool: Sequence[Any] = pickle.loads((folder / "pool").read_bytes())
    os.chdir(place := folder / f"cwd-{start % step}")
    counts: Counter[str] = Counter()
    with (folder / f"at-{start % step}").open("r+b") as at, (folder / f"found-{start % step}").open("a") as found:
        for number in range(start, stop, step):
            os.pwrite(at.fileno(), struct.pack("<q", number), 0)
            given = _family(what).mutant(seed, number, pool, kind)
            model: Any = given.data
            if any("is external" in text for text in given.steps):
                model = place / "model.onnx"
                model.write_bytes(given.data)
            outcome = attacked(model, calls=number // (step * len(_family(what).KINDS)) % calls == 0)
            counts[f"{given.kind} {outcome.what}"] += 1
            if outcome.wrong and outcome.error is not None:
                text = "".join(traceback.format_exception(outcome.error, limit=-6))
                line = [number, given.kind, outcome.what, fingerprint(outcome.error), text, given.steps]
                found.write(json.dumps(line) + "\n")
                found.flush()
            if number // step % 500 == 499:
                jax.clear_caches()
                found.write(json.dumps(counts) + "\n")
                found.flush()
                counts.clear()
        found.write(json.dumps(counts) + "\n")
