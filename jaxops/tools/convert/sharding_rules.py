"""Rules that place each parameter on a mesh."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax  # noqa: F401 - the doctest uses it
from jax.sharding import NamedSharding, PartitionSpec, get_mesh

from jaxops.errors import ArgumentError, ShapeError, amount
from jaxops.graph.nodes import Tensor

# (name, module path or '', shape) → how the mesh splits the parameter.
Rule: TypeAlias = Callable[[str, str, tuple[int, ...]], PartitionSpec | NamedSharding]

# The projection that ends an attention block, as the usual libraries call it.
_LAST = re.compile(r"(^|[._/])(o|out|wo|o_proj|out_proj|c_proj|output|to_out)([._/]|$)", re.IGNORECASE)


def data_parallel(name: str, path: str, shape: tuple[int, ...]) -> PartitionSpec:
    """A rule that gives each device all parameters. Split the inputs along the batch.

    >>> data_parallel("w", "", (4, 8))
    P()
    """
    return PartitionSpec()


def tensor_parallel(axis: str, mesh: Any = None) -> Rule:
    """Returns a rule that splits matrices over the axis `axis` of a mesh, by their shapes, as Megatron-LM does.

    A matrix is split along its longer axis: an embedding by vocabulary, the first of two layers by column and the
    second by row, so that one sum over the devices is enough for both. A square matrix is split by column, or by row if
    its name or path says that it ends an attention block. A filter of a convolution is split by its output channels. If
    the devices cannot split a matrix evenly, it is split along the other axis, or replicated, as vectors are.

    mesh: the mesh of the parameters; by default the current one (`jax.set_mesh`).
    Raises ArgumentError for a mesh without that axis.

    >>> rule = tensor_parallel("model", jax.make_mesh((1,), ("model",)))
    >>> rule("up", "", (4, 16)).spec, rule("down", "", (16, 4)).spec, rule("bias", "", (16,)).spec
    (P(None, 'model'), P('model', None), P())
    """

    def rule(name: str, path: str, shape: tuple[int, ...]) -> NamedSharding:
        on = _current(mesh)
        if axis not in on.shape:
            raise ArgumentError(f"tensor_parallel: the mesh has no axis '{axis}'; it has {', '.join(on.axis_names)}")
        split = next((k for k in _preferred(name, path, shape) if shape[k] % on.shape[axis] == 0), None)
        spec = () if split is None else tuple(axis if k == split else None for k in range(len(shape)))
        return NamedSharding(on, PartitionSpec(*spec))

    return rule


def _preferred(name: str, path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes along which a parameter may be split, the best one first."""
    if len(shape) != 2:
        return (0,) if len(shape) > 2 else ()
    by_row = shape[0] > shape[1] or (shape[0] == shape[1] and bool(_LAST.search(path) or _LAST.search(name)))
    return (0, 1) if by_row else (1, 0)


def shardings(tensors: Mapping[str, Tensor], paths: Mapping[str, str], rule: Rule) -> dict[str, NamedSharding]:
    """The sharding of each parameter by a rule. paths: name → module path, for parameters that have one.

    Raises ArgumentError if the rule returns anything but a PartitionSpec or NamedSharding, or if no mesh is set;
    ShapeError for a sharding that does not fit the shape.
    """
    placed = {}
    for name, tensor in tensors.items():
        spec = rule(name, paths.get(name, ""), tensor.shape)
        if isinstance(spec, PartitionSpec):
            spec = NamedSharding(_current(None), spec)
        if not isinstance(spec, NamedSharding):
            raise ArgumentError(f"sharding: the rule gives {spec!r} for '{name}'; it must give a PartitionSpec")
        _check(name, tensor.shape, spec)
        placed[name] = spec
    return placed


def _current(mesh: Any) -> Any:
    mesh = get_mesh() if mesh is None else mesh
    if mesh.empty:
        raise ArgumentError(
            "sharding: there is no mesh\n  hint    load under `with jax.set_mesh(mesh):`, or let the rule give a "
            "`jax.sharding.NamedSharding`"
        )
    return mesh


def _check(name: str, shape: tuple[int, ...], sharding: NamedSharding) -> None:
    spec = sharding.spec
    if len(spec) > len(shape):
        axes = amount(len(spec), "axis", "axes")
        raise ShapeError(f"sharding: '{name}' has shape {shape}, but the rule gives {spec} for {axes}")
    for axis, entry in enumerate(spec):
        names = () if entry is None else entry if isinstance(entry, tuple) else (entry,)
        parts = math.prod(sharding.mesh.shape[n] for n in names)
        if shape[axis] % parts:
            raise ShapeError(
                f"sharding: '{name}' has shape {shape}; {spec} splits axis {axis} into {parts} parts, which do not "
                f"divide {shape[axis]}"
            )
