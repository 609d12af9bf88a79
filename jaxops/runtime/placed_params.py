"""Parameters on a mesh, as a program that is traced reads them: gradients are split like their parameters.

What `jaxops.sharding.fsdp` keeps in parts is gathered where a program computes with it.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from jax.sharding import NamedSharding, PartitionSpec

from jaxops.meshes import kept_and_used

# Name of a parameter → (how a mesh splits it between calls, how it is split in a program).
Places: TypeAlias = Mapping[str, tuple[NamedSharding, PartitionSpec]]


def placed(params: Mapping[str, Any], places: Places) -> Mapping[str, Any]:
    """Returns the parameters as a program that is traced computes with them.

    Without it, the compiler may as well move the activations, which are larger in a step of training, and split a
    gradient in its own way.
    """
    found = {name: kept_and_used(params[name], *place) for name, place in places.items() if name in params}
    return {**params, **found}
