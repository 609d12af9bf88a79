"""Runs models under Auto axes on a mesh with Explicit axes, JAX's default; the results get Explicit shardings again.

With Explicit axes, JAX infers the sharding of each result from the operands, and raises an error if it cannot (a
reshape that joins a sharded axis, a gather from one). With Auto axes, the compiler always finds a sharding. So models
run as if the mesh had Auto axes, and `_spec` chooses the shardings of the results only.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, get_abstract_mesh, reshard, use_abstract_mesh

from jaxops.static import Sizes, Tracer, is_concrete

_R = TypeVar("_R")


def under_auto_axes(
    run: Callable[..., _R],
    *arguments: Any,
    like: Any = None,
    splits: Callable[[Sequence[tuple[Any, ...]]], Sequence[tuple[Any, ...]]] | None = None,
) -> _R:
    """Returns `run(*arguments)`, computed with Auto axes in place of the Explicit axes of the mesh, if there are any.

    arguments: pytrees. An axis of a result is sharded like an axis in `like` (by default, in the arguments) of the same
    size at the same position, counted from the left or the right; if there is none, it is replicated. This depends on
    the types of arrays only, so it is the same inside and outside of `jit`. A gradient is sharded like its argument.
    splits: the shardings of the leaves of the arguments → those of the leaves of the result, in place of this rule.
    """
    mesh = _explicit_mesh(arguments)
    if mesh is None:
        return run(*arguments)
    specs = [(x.shape, _spec_of(x)) for x in jax.tree.leaves(arguments if like is None else like) if _on_mesh(x)]
    hidden = set(mesh.explicit_axes)
    with _with_auto_axes(mesh):
        results = run(*jax.tree.map(lambda x: _resharded(x, _without(hidden, x)), arguments))
    with use_abstract_mesh(mesh):
        if splits is None:
            return jax.tree.map(lambda y: _resharded(y, _spec(y.shape, specs)) if _on_mesh(y) else y, results)
        found = iter(splits([_spec_of(x) if _on_mesh(x) else () for x in jax.tree.leaves(arguments)]))
        return jax.tree.map(lambda y: _resharded(y, next(found)), results)


def auto_axes() -> AbstractContextManager[Any]:
    """Makes the Explicit axes of the current mesh, if there are any, Auto axes inside of a `with` statement.

    JAX cannot call an exported program with symbolic sizes and the types of Explicit axes.
    """
    mesh = get_abstract_mesh()
    return _with_auto_axes(mesh) if mesh.explicit_axes else nullcontext()


def any_on_mesh(values: Iterable[Any]) -> bool:
    """Returns True if one of these values is an array on a mesh."""
    return any(map(_on_mesh, values))


def _with_auto_axes(mesh: Any) -> AbstractContextManager[Any]:
    return use_abstract_mesh(mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, AxisType.Auto)))


def _explicit_mesh(values: Any) -> Any:
    """Returns the mesh with Explicit axes: the current mesh, or that of the values; None if there is none."""
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
    if is_concrete(x) and not isinstance(x.sharding, NamedSharding):
        return False  # the usual case; to read the type of an array takes ten times as long
    return isinstance(x, jax.Array) and not jax.typeof(x).sharding.mesh.empty


def _spec_of(x: jax.Array) -> tuple[Any, ...]:
    spec = tuple(jax.typeof(x).sharding.spec)
    return spec + (None,) * (x.ndim - len(spec))


def _axes(entry: Any) -> tuple[str, ...]:
    """Returns the mesh axes in an entry of a PartitionSpec."""
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def _without(hidden: set[str], x: Any) -> tuple[Any, ...]:
    """Returns the sharding in the type of `x` without the axes that became Auto."""
    if not _on_mesh(x):
        return ()
    return tuple(tuple(a for a in _axes(entry) if a not in hidden) or None for entry in _spec_of(x))


def _resharded(x: Any, spec: tuple[Any, ...]) -> Any:
    return reshard(x, PartitionSpec(*spec)) if _on_mesh(x) else x


def _spec(sizes: Sizes, operands: Sequence[tuple[Sizes, tuple[Any, ...]]]) -> tuple[Any, ...]:
    """Returns the sharding of a result of these sizes, as `under_auto_axes` describes it."""
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
