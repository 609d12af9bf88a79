"""What jaxops costs on top of `lax`: eager dispatch and tracing, as ratios; `jnp` beside them.

    python tests/benchmarks/dispatch.py [--repeats 400] [--calls 50]

Dispatch: one call on a concrete array, against a `jax.jit` of the same `lax` call, compiled before. Trace: making
the jaxpr of that call, against making that of the `lax` call. Each figure is the least of many short runs; the
contestants take turns, so that a busy machine hits all of them.
"""

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from examples import machine
from jax import lax

import jaxops as jo

TARGET = 1.25


class Row(NamedTuple):
    """One operation, written with `lax`, with jaxops and with `jax.numpy`."""

    name: str
    bare: Callable[..., Any]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]


X = jnp.asarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
ROWS = [
    Row(
        "reshape",
        lambda x: lax.reshape(x, (2, 12)),
        lambda x: jo.reshape(x, (0, -1)),
        lambda x: jnp.reshape(x, (2, -1)),
    ),
    Row(
        "flatten", lambda x: lax.reshape(x, (2, 12)), lambda x: jo.flatten(x, axis=1), lambda x: jnp.reshape(x, (2, 12))
    ),
    Row(
        "variadic_split",
        lambda x: lax.split(x, (1, 3), axis=2),
        lambda x: jo.variadic_split(x, 2, (1, -1)),
        lambda x: jnp.split(x, (1,), axis=2),
    ),
    Row(
        "transpose",
        lambda x: lax.transpose(x, (2, 0, 1)),
        lambda x: jo.transpose(x, perm=(2, 0, 1)),
        lambda x: jnp.transpose(x, (2, 0, 1)),
    ),
    Row(
        "squeeze",
        lambda x: lax.squeeze(x, (0,)),
        lambda x: jo.squeeze(x, (0,)),
        lambda x: jnp.squeeze(x, (0,)),
    ),
    Row(
        "unsqueeze",
        lambda x: lax.expand_dims(x, (0, 4)),
        lambda x: jo.unsqueeze(x, (0, 4)),
        lambda x: jnp.expand_dims(x, (0, 4)),
    ),
]


def least(contestants: list[Callable[[], Any]], repeats: int, calls: int) -> list[float]:
    """Seconds a call of each, the least over `repeats` runs of `calls` calls, taking turns."""
    best = [float("inf")] * len(contestants)
    for _ in range(repeats):
        for i, call in enumerate(contestants):
            start = time.perf_counter()
            for _ in range(calls):
                call()
            best[i] = min(best[i], (time.perf_counter() - start) / calls)
    return best


def dispatch(row: Row, repeats: int, calls: int) -> list[float]:
    x = X[:1] if row.name == "squeeze" else X
    compiled = jax.jit(row.bare)
    contestants = [lambda f=f: f(x) for f in (compiled, row.ours, row.theirs)]
    jax.block_until_ready([call() for call in contestants])
    return least(contestants, repeats, calls)


def tracing(row: Row, repeats: int) -> list[float]:
    x = jax.ShapeDtypeStruct((1, 3, 4) if row.name == "squeeze" else X.shape, X.dtype)
    # A new lambda each time, or JAX finds the trace in its cache.
    contestants = [lambda f=f: jax.make_jaxpr(lambda x: f(x))(x) for f in row[1:]]
    return least(contestants, repeats, 1)


def equations(fn: Callable[..., Any], x: Any) -> int:
    return len(jax.make_jaxpr(fn)(x).jaxpr.eqns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    gc.disable()
    print(f"{machine()}, ratios to the `lax` call (target of jaxops: {TARGET} eagerly)")
    print(f"{'':<16}{'dispatch':^28}{'tracing':^18}{'equations':^12}")
    print(f"{'':<16}{'lax µs':>8}{'jaxops':>10}{'jnp':>10}{'jaxops':>10}{'jnp':>8}{'jaxops - lax':>15}")
    for row in ROWS:
        bare, ours, theirs = dispatch(row, options.repeats, options.calls)
        bare_trace, our_trace, their_trace = tracing(row, options.repeats)
        x = X[:1] if row.name == "squeeze" else X
        more = equations(row.ours, x) - equations(row.bare, x)
        print(
            f"{row.name:<16}{bare * 1e6:>8.1f}{ours / bare:>10.2f}{theirs / bare:>10.2f}"
            f"{our_trace / bare_trace:>10.2f}{their_trace / bare_trace:>8.2f}{more:>15}"
            f"{'' if ours <= TARGET * bare else '   over target'}"
        )


if __name__ == "__main__":
    main()
