"""The machine that a program is compiled for."""

import functools
import sys
from dataclasses import dataclass
from importlib.metadata import version

import jax

from jaxops.host import cores, processor_features
from jaxops.memory import LIMIT


@dataclass(frozen=True)
class Target:
    """A machine. The choice of a form depends only on the target, on sizes and on dtypes.

    platform: JAX's name, "cpu", "gpu" or "tpu". features: the processor's features as Linux names them, empty if
    unknown; "cuda" for a CUDA GPU. cores: the number of cores that a program may use. specialized: whether JAX will not
    transform the program any more. prepared: whether parameters are prepared once, and may have any layout.
    compiled_here: whether it is a complete program that is compiled with `compiler.xla_options`, under which reductions
    keep NaNs. divides_batches: whether XLA:CPU divides a batch of small products among the cores. packs_whole: whether
    XLA:CPU packs a complete matrix at each call. max_bytes: the largest size of a result.
    partitioned: whether the program may run on several devices, each of which has a part of each array.
    """

    platform: str
    features: frozenset[str] = frozenset()
    cores: int = 1
    specialized: bool = False
    prepared: bool = False
    compiled_here: bool = False
    divides_batches: bool = True
    packs_whole: bool = False
    max_bytes: int = sys.maxsize
    partitioned: bool = False


def this_machine(specialized: bool = False, prepared: bool = False, compiled_here: bool = False) -> Target:
    """Returns the target of programs that run on JAX's default backend."""
    platform, features = jax.default_backend(), processor_features()
    if platform == "gpu" and "cuda" in jax.devices()[0].client.platform_version:
        features |= {"cuda"}
    is_old = _jaxlib() < (0, 11)
    return Target(
        platform, features, cores(), specialized, prepared, compiled_here, not is_old, is_old, max_bytes=LIMIT.get()
    )


def backend(platform: str) -> str:
    """Returns the name of a target's platform for one that JAX lowers for, where GPUs are "cuda" and "rocm"."""
    return "gpu" if platform in ("cuda", "rocm") else platform


@functools.cache
def _jaxlib() -> tuple[int, ...]:
    return tuple(map(int, version("jaxlib").split(".")[:2]))
