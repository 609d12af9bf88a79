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
    """A machine: a choice among forms of one computation depends on it, on sizes and on dtypes, and on nothing else.

    platform: as JAX names it: "cpu", "gpu", "tpu". features: what the processor can do, as Linux names it; nothing
    where it is not known. "cuda" is one of a GPU. cores: the number of them that one program may use. specialized:
    whether the program is complete, so that JAX will not transform it. prepared: whether it runs with parameters that
    are prepared once, in any layout. compiled_here: whether it is a whole program of ours, which XLA gets with
    `compiler.xla_options`: under these its reductions keep NaNs. divides_batches: whether XLA:CPU divides a batch of
    small products among the cores. packs_whole: whether it packs a whole matrix at each call. max_bytes: how many a
    result may take.
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


def this_machine(specialized: bool = False, prepared: bool = False, compiled_here: bool = False) -> Target:
    """Returns the target of programs that run on JAX's default backend."""
    platform, features = jax.default_backend(), processor_features()
    if platform == "gpu" and "cuda" in jax.devices()[0].client.platform_version:
        features |= {"cuda"}
    is_old = _jaxlib() < (0, 11)
    return Target(
        platform, features, cores(), specialized, prepared, compiled_here, not is_old, is_old, max_bytes=LIMIT.get()
    )


@functools.cache
def _jaxlib() -> tuple[int, ...]:
    return tuple(map(int, version("jaxlib").split(".")[:2]))
