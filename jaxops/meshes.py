"""Several devices, as the type of an array that is traced says: its mesh, and axes that stay whole on each device."""

from contextlib import nullcontext
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, get_abstract_mesh, use_abstract_mesh

from jaxops.static import Tracer


class OfDevices(dict[str, Any]):
    """A dictionary about devices of this process. A copy by `pickle` is empty, as another process has other devices."""

    def __reduce__(self) -> Any:
        return OfDevices, ()

    def __deepcopy__(self, memo: Any) -> "OfDevices":
        return self


def mesh_of(value: Any) -> Any:
    """Returns the mesh of several devices that a value is traced for; None for any other value."""
    if not isinstance(value, Tracer):
        return None
    mesh = get_abstract_mesh()
    mesh = jax.typeof(value).sharding.mesh if mesh.empty else mesh
    return None if mesh.empty or mesh.size == 1 else mesh


def whole_along(axis: int, value: Any) -> Any:
    """Returns a value that the compiler does not split along `axis`; how it splits the rest stays its choice.

    Only what is traced with Auto axes of a mesh is a matter of the compiler; other values stay as they are. Under
    `jax.shard_map`, each device has its own part already.
    """
    mesh = mesh_of(value)
    if mesh is None or not value.ndim or not mesh.are_all_axes_auto:
        return value
    free: list[Any] = [PartitionSpec.UNCONSTRAINED] * value.ndim
    free[axis] = None
    with use_abstract_mesh(mesh):
        return jax.lax.with_sharding_constraint(value, PartitionSpec(*free))


def kept_and_used(value: Any, kept: NamedSharding, used: PartitionSpec) -> Any:
    """Returns a value that is split as in `kept`, split as in `used`; its gradient is split as in `kept`.

    It stays as it is if it is not traced for a mesh with these axes, of these sizes.
    """
    mesh, kind = _mesh_like(kept, value)
    with use_abstract_mesh(mesh) if kind else nullcontext():
        if kind == AxisType.Explicit and kept.spec != used:
            return jax.sharding.reshard(value, used)
        if kind == AxisType.Auto:
            # The derivative of a constraint is the same constraint: the first one is for the gradient.
            value = jax.lax.with_sharding_constraint(value, kept.spec)
            return value if kept.spec == used else jax.lax.with_sharding_constraint(value, used)
    return value


def moved_to(kept: NamedSharding, value: Any) -> Any:
    """Returns a result of a program on a mesh, split as in `kept`; on another mesh it stays as it is."""
    if isinstance(value, jax.Array) and not isinstance(value, Tracer):
        is_there = isinstance(value.sharding, NamedSharding) and value.sharding.mesh == kept.mesh
        return jax.device_put(value, kept) if is_there else value
    mesh, kind = _mesh_like(kept, value)
    with use_abstract_mesh(mesh) if kind else nullcontext():
        if kind == AxisType.Explicit:
            return jax.sharding.reshard(value, kept.spec)
        return jax.lax.with_sharding_constraint(value, kept.spec) if kind == AxisType.Auto else value


def _mesh_like(kept: NamedSharding, value: Any) -> tuple[Any, AxisType | None]:
    """Returns the mesh that a value is traced for, and the kind of the axes that split `kept`, or of all if none does.

    None for both if the mesh does not have the axes of `kept`, or if they are of several kinds.
    """
    mesh = mesh_of(value)
    if mesh is None or not kept.mesh.shape.items() <= mesh.shape.items():
        return None, None
    split = [entry if isinstance(entry, tuple) else (entry,) for entry in kept.spec if entry is not None]
    names = {name for entry in split for name in entry} or set(mesh.axis_names)
    kinds = {kind for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if name in names}
    return (mesh, *kinds) if len(kinds) == 1 else (None, None)
