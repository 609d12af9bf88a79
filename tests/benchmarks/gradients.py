"""What the gradient of an operator costs beside the operator: milliseconds a call, and seconds to compile it.

    python tests/benchmarks/gradients.py [NAME …]

float32, one sample, sizes as models have them. Both are compiled and take turns; the best call counts. A ratio of 2 to
5 is what linear algebra gives; what moves data pays for a scatter.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from examples import machine
from rich.console import Console
from rich.table import Table

import jaxops as jo

RNG = np.random.default_rng(0)
ROUNDS = 5
Call = tuple[Callable[..., Any], tuple[Any, ...]]


def f(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def i(top: int, *shape: int) -> jax.Array:
    return jnp.asarray(RNG.integers(0, top, shape))


def conv(x: jax.Array, w: jax.Array, **attributes: Any) -> Call:
    pads = tuple(d // 2 * attributes.get("dilations", (1,))[0] for d in w.shape[2:]) * 2
    return lambda x, w: jo.conv(x, w, pads=pads, **attributes), (x, w)


X, TABLE = f(1, 64, 56, 56), f(300, 1000)
BOXES = jnp.abs(f(100, 4)) * 10
CORNERS = jnp.concatenate([jnp.zeros((30, 1)), jnp.sort(jnp.abs(f(30, 4)) * 20, 1)], 1)
FIRST = np.zeros(100, np.int64)
CALLS: dict[str, Call] = {
    "conv 3x3": conv(X, f(64, 64, 3, 3)),
    "conv 7x7, strides": conv(f(1, 3, 224, 224), f(64, 3, 7, 7), strides=(2, 2)),
    "conv, dilations": conv(X, f(64, 64, 3, 3), dilations=(4, 4)),
    "conv, 32 groups": conv(X, f(64, 2, 3, 3), group=32),
    "conv, depthwise": conv(X, f(64, 1, 3, 3), group=64),
    "conv, depthwise, strides": conv(X, f(64, 1, 5, 5), group=64, strides=(2, 2)),
    "conv of 3 axes": conv(f(1, 16, 16, 32, 32), f(16, 16, 3, 3, 3)),
    "conv_transpose": (
        lambda x, w: jo.conv_transpose(x, w, strides=(2, 2), pads=(1,) * 4),
        (X, f(64, 32, 4, 4)),
    ),
    "max_pool": (lambda x: jo.max_pool(x, kernel_shape=(3, 3), strides=(2, 2), pads=(1,) * 4), (X,)),
    "max_pool 13x13": (lambda x: jo.max_pool(x, kernel_shape=(13, 13), pads=(6,) * 4), (X,)),
    "average_pool": (lambda x: jo.average_pool(x, kernel_shape=(3, 3), pads=(1,) * 4), (X,)),
    "lrn": (lambda x: jo.lrn(x, size=5), (X,)),
    "resize linear": (lambda x: jo.resize(x, sizes=(1, 64, 112, 112), mode="linear"), (X,)),
    "resize cubic": (lambda x: jo.resize(x, sizes=(1, 64, 112, 112), mode="cubic"), (X,)),
    "grid_sample": (lambda x, g: jo.grid_sample(x, g), (X, f(1, 56, 56, 2) / 3)),
    "roi_align": (
        lambda x, r: jo.roi_align(x, r, FIRST, output_height=7, output_width=7, sampling_ratio=2),
        (X, BOXES),
    ),
    "max_roi_pool": (lambda x, r: jo.max_roi_pool(x, r, pooled_shape=(7, 7)), (X, CORNERS)),
    "deform_conv": (
        lambda x, w, o: jo.deform_conv(x, w, o, pads=(1,) * 4),
        (X, f(64, 64, 3, 3), f(1, 18, 56, 56)),
    ),
    "gather of tokens": (lambda x, n: jo.gather(x, n), (f(30000, 256), i(30000, 1, 512))),
    "gather_elements": (lambda x, n: jo.gather_elements(x, n, axis=0), (TABLE, i(300, 300, 1000))),
    "scatter_elements": (lambda x, n, u: jo.scatter_elements(x, n, u), (TABLE, i(300, 300, 1000), TABLE)),
    "scatter_elements, mul": (
        lambda x, n, u: jo.scatter_elements(x, n, u, reduction="mul"),
        (TABLE, i(300, 300, 1000), TABLE),
    ),
    "reduce_prod": (lambda x: jo.reduce_prod(x, (3,)), (X,)),
    "softmax": (lambda x: jo.softmax(x), (X,)),
    "instance_normalization": (lambda x, s, b: jo.instance_normalization(x, s, b), (X, f(64), f(64))),
    "lstm of 200 steps": (
        lambda x, w, r: jo.lstm(x, w, r, hidden_size=128)[0],
        (f(200, 1, 64), f(1, 512, 64), f(1, 512, 128)),
    ),
    "det": (lambda x: jo.det(x), (f(50, 20, 20),)),
    "stft": (lambda x: jo.stft(x, np.array(160), np.hanning(400).astype(np.float32), np.array(400)), (f(1, 16000, 1),)),
}


def gradient(fn: Callable[..., Any], given: tuple[Any, ...]) -> Callable[..., Any]:
    """Of the sum of squares, by all floats."""
    floats = tuple(k for k, x in enumerate(given) if jnp.issubdtype(x.dtype, jnp.floating))
    return jax.grad(lambda *a: (fn(*a) ** 2).sum(), floats)


def main(names: list[str]) -> None:
    table = Table("operator", "ms", "gradient ms", "ratio", "compiled in s", title=machine())
    for name in names or CALLS:
        fn, given = CALLS[name]
        start = time.perf_counter()
        jobs = [jax.jit(job).lower(*given).compile() for job in (fn, gradient(fn, given))]
        seconds, best = time.perf_counter() - start, [float("inf")] * 2
        for _ in range(ROUNDS):
            for k, job in enumerate(jobs):
                start = time.perf_counter()
                jax.block_until_ready(job(*given))
                best[k] = min(best[k], (time.perf_counter() - start) * 1e3)
        table.add_row(name, f"{best[0]:.2f}", f"{best[1]:.2f}", f"{best[1] / best[0]:.1f}", f"{seconds:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
