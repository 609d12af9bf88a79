"""Compiled programs that outlive the process, in JAX's persistent compilation cache."""

import os
from pathlib import Path
from typing import Any, cast

import jax

from jaxops.errors import ArgumentError


def keep_programs(folder: str | os.PathLike[str]) -> None:
    """From now on this process keeps what it compiles in a folder, however small, and looks there first.

    It is the cache of JAX itself, so it holds for all programs of the process. JAX decides what is the same program:
    the operations, the types, the options, the version of XLA and the processor.
    Raises ArgumentError where JAX keeps programs in another folder already: a process has one.
    """
    path = str(Path(folder).expanduser().absolute())
    given = cast(Any, jax.config).jax_compilation_cache_dir
    if given is not None and str(Path(given).absolute()) != path:
        raise ArgumentError(
            f"cache {path!r}: JAX keeps compiled programs in {given!r} already, and a process has one such folder; "
            "give that one, or None"
        )
    jax.config.update("jax_compilation_cache_dir", path)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
