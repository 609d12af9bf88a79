"""JAX's settings that stop a program at its first NaN or infinity."""

from typing import Any, cast

import jax


def checks_numbers() -> bool:
    """Returns True under `jax_debug_nans` or `jax_debug_infs`.

    JAX then runs a program with such a result again, operation by operation, to name the one that made it.

    >>> with jax.debug_nans(True):
    ...     checks_numbers()
    True
    """
    config = cast(Any, jax.config)
    return config.jax_debug_nans or config.jax_debug_infs
