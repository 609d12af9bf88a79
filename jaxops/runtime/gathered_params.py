"""Parameters that are kept in parts and gathered where a program computes with them (`jaxops.sharding.fsdp`)."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
from jax.sharding import AxisType, PartitionSpec, get_abstract_mesh, reshard, use_abstract_mesh

from jaxops.static import Tracer

# Name of a parameter → (how a mesh splits it between calls, how it is split in a program).
Gathers: TypeAlias = Mapping[str, tuple[PartitionSpec, PartitionSpec]]


def gathered(params: Mapping[str, Any], gathers: Gathers) -> Mapping[str, Any]:
    """Returns the parameters as a program that is traced computes with them; a gradient is split as the parameter is.

    Without it, the compiler may as well move the activations, which are larger in each step of a training. Parameters
    that are not traced for a mesh with these axes stay as they are.
    """
    return {**params, **{name: _whole(params[name], *specs) for name, specs in gathers.items() if name in params}}


def _whole(value: Any, kept: PartitionSpec, used: PartitionSpec) -> Any:
    if not isinstance(value, Tracer):
        return value
    mesh = get_abstract_mesh()
    mesh = jax.typeof(value).sharding.mesh if mesh.empty else mesh
    names = {name for entry in kept if entry is not None for name in (entry if isinstance(entry, tuple) else (entry,))}
    if mesh.empty or not names.issubset(mesh.axis_names):
        return value
    kinds = {kind for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if name in names}
    with use_abstract_mesh(mesh):
        if kinds == {AxisType.Explicit}:
            return reshard(value, used)
        if kinds == {AxisType.Auto}:
            # The derivative of a constraint is the same constraint: the first one is for the gradient.
            stored = jax.lax.with_sharding_constraint(value, kept)
            return jax.lax.with_sharding_constraint(stored, used)
    return value
