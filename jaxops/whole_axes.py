"""Keeps an axis of a value whole on each device of a mesh."""

from typing import Any

import jax
from jax.sharding import PartitionSpec, get_abstract_mesh, use_abstract_mesh

from jaxops.static import Tracer


def whole_along(axis: int, value: Any) -> Any:
    """Returns a value that the compiler does not split along `axis`; how it splits the rest stays its choice.

    Only what is traced for several devices, with Auto axes of a mesh, is a matter of the compiler; other values stay as
    they are. Under `jax.shard_map`, each device has its own part already.
    """
    if not isinstance(value, Tracer) or not value.ndim:
        return value
    mesh = get_abstract_mesh()
    mesh = jax.typeof(value).sharding.mesh if mesh.empty else mesh
    if mesh.empty or mesh.size == 1 or not mesh.are_all_axes_auto:
        return value
    free: list[Any] = [PartitionSpec.UNCONSTRAINED] * value.ndim
    free[axis] = None
    with use_abstract_mesh(mesh):
        return jax.lax.with_sharding_constraint(value, PartitionSpec(*free))
