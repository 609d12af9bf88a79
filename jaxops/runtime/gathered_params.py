"""Parameters that are kept in parts and gathered where a program computes with them (`jaxops.sharding.fsdp`)."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from jax.sharding import PartitionSpec

from jaxops.meshes import kept_and_used

# Name of a parameter → (how a mesh splits it between calls, how it is split in a program).
Gathers: TypeAlias = Mapping[str, tuple[PartitionSpec, PartitionSpec]]


def gathered(params: Mapping[str, Any], gathers: Gathers) -> Mapping[str, Any]:
    """Returns the parameters as a program that is traced computes with them.

    Without it, the compiler may as well move the activations, which are larger in a step of training.
    """
    whole = {name: kept_and_used(params[name], *specs) for name, specs in gathers.items() if name in params}
    return {**params, **whole}
