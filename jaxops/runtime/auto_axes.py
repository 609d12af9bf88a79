"""Meshes with Explicit axes, JAX's default: models run under Auto axes, and their results come back.

Under Explicit axes every operation must say how its result is sharded, and JAX refuses those that cannot (a reshape
that joins a sharded axis, a gather from one). The compiler always finds a way. So what runs here sees Auto axes, as if
the mesh had been made with them, and only the results need a sharding, which `_spec` says.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, get_abstract_mesh, reshard, use_abstract_mesh

from jaxops.static import Sizes, Tracer

_R = TypeVar("_R")


def under_auto_axes(run: Callable[..., _R], *arguments: Any, like: Any = None) -> _R:
    """`run(*arguments)`, where the Explicit axes of the mesh, if it has any, are Auto.

    arguments: pytrees. Each axis of a result gets the sharding of an axis in `like` (by default in the arguments) that
    has its size and its position, counted from the left or the right; every other axis is replicated. The types of
    arrays say this, so it is the same inside `jit` and outside. Gradients get the sharding of what they belong to.
    """
    mesh = _explicit_mesh(arguments)
    if mesh is None:
        return run(*arguments)
    specs = [(x.shape, _spec_of(x)) for x in jax.tree.leaves(arguments if like is None else like) if _on_mesh(x)]
    hidden = set(mesh.explicit_axes)
    with use_abstract_mesh(mesh.update_axis_types(dict.fromkeys(hidden, AxisType.Auto))):
        results = run(*jax.tree.map(lambda x: _resharded(x, _without(hidden, x)), arguments))
    with use_abstract_mesh(mesh):
        return jax.tree.map(lambda y: _resharded(y, _spec(y.shape, specs)) if _on_mesh(y) else y, results)


def is_on_mesh(values: Any) -> bool:
    """Tells whether a mesh is set, or one of these arrays is on one."""
    return bool(get_abstract_mesh().axis_names) or any(map(_on_mesh, jax.tree.leaves(values)))


def _explicit_mesh(values: Any) -> Any:
    """The mesh with Explicit axes under which these values are: the current one, else theirs; None without one."""
    current = get_abstract_mesh()
    if current.axis_names and not current.explicit_axes:
        return None
    for x in jax.tree.leaves(values):
        if not isinstance(x, jax.Array):
            continue
        if current.axis_names:
            return current
        if isinstance(x, Tracer) or isinstance(x.sharding, NamedSharding):
            mesh = jax.typeof(x).sharding.mesh
            if mesh.explicit_axes:
                return mesh
    return None


def _on_mesh(x: Any) -> bool:
    return isinstance(x, jax.Array) and not jax.typeof(x).sharding.mesh.empty


def _spec_of(x: jax.Array) -> tuple[Any, ...]:
    spec = tuple(jax.typeof(x).sharding.spec)
    return spec + (None,) * (x.ndim - len(spec))


def _axes(entry: Any) -> tuple[str, ...]:
    """The mesh axes in an entry of a PartitionSpec."""
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def _without(hidden: set[str], x: Any) -> tuple[Any, ...]:
    """The sharding that stays in the type of `x`, once these axes are Auto."""
    if not _on_mesh(x):
        return ()
    return tuple(tuple(a for a in _axes(entry) if a not in hidden) or None for entry in _spec_of(x))


def _resharded(x: Any, spec: tuple[Any, ...]) -> Any:
    return reshard(x, PartitionSpec(*spec)) if _on_mesh(x) else x


def _spec(sizes: Sizes, operands: Sequence[tuple[Sizes, tuple[Any, ...]]]) -> tuple[Any, ...]:
    """The sharding of a result of these sizes."""
    if 0 in sizes:  # JAX 0.10 cannot read a sharded array without elements
        return ()
    spec_of_result, used = [], set()
    for axis, size in enumerate(sizes):
        entries = (
            spec[k]
            for shape, spec in operands
            for k in (axis, axis - len(sizes) + len(shape))
            if 0 <= k < len(shape) and shape[k] == size and spec[k] is not None
        )
        entry = next((e for e in entries if used.isdisjoint(_axes(e))), None)
        used.update(_axes(entry))
        spec_of_result.append(entry)
    return tuple(spec_of_result)
