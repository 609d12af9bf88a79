"""What a call of a model costs beside `jax.jit` of its pure function, called with the same parameters.

    python tests/benchmarks/calls.py [--rounds 200] [--calls 50] [PATH …]

Microseconds of processor time, the least over many short runs in which the contestants take turns, as other work on the
machine disturbs both. Inputs are JAX arrays, then NumPy arrays.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from examples import machine

import jaxops.onnx

ROOT = Path(__file__).parents[2]
PATHS = [ROOT / "notebooks/digits.onnx", *sorted((ROOT / "tests/models").glob("[bg]*.dynamo.onnx"))]
TARGET = 2
SIZES = {"batch": 1, "sequence": 4, "past_sequence": 2, "total_sequence": 6}


def inputs(model: Any) -> list[np.ndarray]:
    """Ones of the shapes that the model declares."""
    return [np.ones([d if isinstance(d, int) else SIZES.get(d, 2) for d in v.shape], v.dtype) for v in model.inputs]


def least(contestants: Sequence[Callable[[], Any]], rounds: int, calls: int) -> list[float]:
    """Seconds of processor time a call of each, the least over `rounds` runs of `calls` calls."""
    best = [float("inf")] * len(contestants)
    jax.block_until_ready([call() for call in contestants])
    for _ in range(rounds):
        for i, call in enumerate(contestants):
            start = time.process_time()
            for _ in range(calls):
                jax.block_until_ready(call())
            best[i] = min(best[i], (time.process_time() - start) / calls)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=PATHS)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    print(f"{machine()}; target: at most {TARGET} times a bare call")
    print(f"{'':<24}{'inputs':<8}{'bare µs':>10}{'model µs':>10}{'ratio':>8}")
    for path in options.paths:
        model = jaxops.onnx.load(path)
        bare, params, arrays = jax.jit(model.apply), model.params, inputs(model)
        for kind, values in (("JAX", [jnp.asarray(x) for x in arrays]), ("NumPy", arrays)):
            contestants = partial(bare, params, *values), partial(model, *values)
            alone, ours = least(contestants, options.rounds, options.calls)
            note = "" if ours <= TARGET * alone else "   over target"
            print(f"{Path(path).name:<24}{kind:<8}{alone * 1e6:>10.1f}{ours * 1e6:>10.1f}{ours / alone:>8.2f}{note}")


if __name__ == "__main__":
    main()
