"""Rules that place each parameter on a mesh."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax  # noqa: F401 - the doctest uses it
from jax.sharding import NamedSharding, PartitionSpec, get_mesh

from jaxops.errors import ArgumentError, ShapeError, amount
from jaxops.graph.nodes import Graph, Tensor
from jaxops.graph.parameter_roles import ADAPTER, BIAS, FUSED, SINGLE, TABLE, Role, parameter_roles
from jaxops.graph.weight_operands import EXPERTS, FILTER, FIRST, LAST

# A parameter of less than this part of all bytes is not worth a collective of its own.
_SMALL = 0.01


class Parameter(NamedTuple):
    """A parameter that a rule places."""

    name: str
    shape: tuple[int, ...]
    bytes: int
    role: Role


class Placement(NamedTuple):
    """The place of a parameter on a mesh, and why it is there.

    gathered: its place in a program that gathers it. in_parts: the place of each of its parts, where weights are
    prepared; None for a weight that stays in one.
    """

    sharding: NamedSharding
    reason: str
    gathered: PartitionSpec | None = None
    in_parts: NamedSharding | None = None

    @property
    def used(self) -> PartitionSpec:
        """The place with which a program computes."""
        return self.sharding.spec if self.gathered is None else self.gathered


@runtime_checkable
class GraphRule(Protocol):
    """A rule that places all parameters of a model together, by their roles in the graph."""

    def place(self, parameters: Sequence[Parameter]) -> dict[str, Placement]:
        """Returns the place of each parameter by name."""
        ...


# A rule of the caller: (name, module path or '', shape) → how the mesh splits the parameter.
ShapeRule: TypeAlias = Callable[[str, str, tuple[int, ...]], PartitionSpec | NamedSharding]
Rule: TypeAlias = ShapeRule | GraphRule


def data_parallel(name: str, path: str, shape: tuple[int, ...]) -> PartitionSpec:
    """A rule that gives each device all parameters. Split the inputs along the batch.

    >>> data_parallel("w", "", (4, 8))
    P()
    """
    return PartitionSpec()


@dataclass(frozen=True)
class _TensorParallel:
    axis: str
    mesh: Any = None

    def place(self, parameters: Sequence[Parameter]) -> dict[str, Placement]:
        mesh, devices = _on("tensor_parallel", self.axis, self.mesh)
        least = _SMALL * sum(p.bytes for p in parameters)
        chosen: dict[str, tuple[int | None, str]] = {}
        by_name = {p.name: p for p in parameters}
        for parameter in sorted(parameters, key=lambda p: bool(p.role.of)):
            weight = by_name.get(parameter.role.of)
            if weight is None:
                chosen[parameter.name] = _split_axis(parameter, devices, parameter.bytes < least)
            else:
                chosen[parameter.name] = _axis_like(parameter, weight, chosen[weight.name][0], devices)
        if devices > 1 and parameters and all(axis is None for axis, _ in chosen.values()):
            raise ArgumentError(
                f"tensor_parallel: {devices} devices along '{self.axis}' can split no parameter of the model evenly by "
                "its role; jaxops.sharding.fsdp splits along any axis, and data_parallel splits none"
            )
        has_parts = any(_axis_of_parts(p) is not None and p.role.kind == FUSED for p in parameters)

        def placement(parameter: Parameter) -> Placement:
            axis, reason = chosen[parameter.name]
            spec = _spec(parameter.shape, {axis: self.axis})
            of_parts = _axis_of_parts(parameter) if has_parts else None
            in_parts = None if of_parts is None else NamedSharding(mesh, _spec(parameter.shape, {of_parts: self.axis}))
            return Placement(NamedSharding(mesh, spec), reason, in_parts=in_parts)

        return {parameter.name: placement(parameter) for parameter in parameters}


@dataclass(frozen=True)
class _Fsdp:
    axis: str
    rule: Rule | None = None
    mesh: Any = None

    def place(self, parameters: Sequence[Parameter]) -> dict[str, Placement]:
        mesh, devices = _on("fsdp", self.axis, self.mesh)
        before = {p.name: Placement(NamedSharding(mesh, PartitionSpec()), "") for p in parameters}
        if self.rule is not None:
            before = _placed_by(self.rule, parameters, {})
        placed = {}
        for parameter in parameters:
            used, reason, *_ = before[parameter.name]
            spec = used.spec
            taken = {k: entry for k, entry in enumerate(spec) if entry is not None}
            free = [k for k, d in enumerate(parameter.shape) if k not in taken and d and d % devices == 0]
            largest = max(free, key=lambda k: parameter.shape[k], default=None)
            own = f"no free axis that {devices} divides" if largest is None else "its largest axis; gathered when used"
            spec = _spec(parameter.shape, {**taken, largest: self.axis})
            reason = f"{reason}; {own}" if reason else own
            placed[parameter.name] = Placement(NamedSharding(mesh, spec), reason, used.spec)
        if devices > 1 and parameters and all(self.axis not in _names(p.sharding.spec) for p in placed.values()):
            raise ArgumentError(f"fsdp: {devices} devices along '{self.axis}' can split no parameter evenly")
        return placed


def tensor_parallel(axis: str, mesh: Any = None) -> GraphRule:
    """Returns a rule that splits weights over the axis `axis` of a mesh, as Megatron-LM does, by their roles.

    A role follows from the graph: who reads a parameter, and what becomes of the result. Of a pair of products (such as
    queries, keys and values on the one hand, and the product behind the attention on the other) the first weight is
    split by the features that it makes, and the last one by those that it contracts, so that one sum over the devices
    is enough for both. A table is split by its rows, or by its features if its rows do not divide. Experts are divided
    among the devices, and filters of a convolution are split by output channels. These stay whole on each device:
    vectors, small tables, and keys and values of fewer heads than devices. So does a weight that makes queries, keys
    and values at once, in `model.params` and `model.apply`; `model(x)` and `model.specialize` read it in parts, each
    split by heads, wherever the model cuts the product and nothing reads it in one. Scales and zero points of quantized
    weights follow their weights, and so do adapters: the matrix with the features that are split is split, and the
    other one is whole. `explain` tells what became of each.

    mesh: the mesh of the parameters; by default the current one (`jax.set_mesh`).
    Loading raises ArgumentError for a mesh without that axis, and if no weight can be split.

    >>> import jaxops.onnx
    >>> rule = tensor_parallel("model", jax.make_mesh((1,), ("model",)))
    >>> model = jaxops.onnx.load("notebooks/digits.onnx", sharding=rule)
    >>> model.params["hidden.weight"].sharding.spec, model.params["classes.weight"].sharding.spec
    (P('model', None), P(None, 'model'))
    """
    return _TensorParallel(axis, mesh)


def fsdp(axis: str, rule: Rule | None = None, mesh: Any = None) -> GraphRule:
    """Returns a rule that splits each parameter along its largest axis that the devices along `axis` divide.

    The batch is split over the same axis of the mesh. So each device keeps a part of the parameters, of their gradients
    and of an optimizer's state, and the compiler gathers a parameter where it is used. No weight is read in parts.

    rule: another rule, whose placement comes first: `fsdp("data", tensor_parallel("model"))` splits a second axis of
    each weight. mesh: the mesh of the parameters; by default the current one (`jax.set_mesh`).
    Loading raises ArgumentError for a mesh without that axis, and if no parameter can be split.

    >>> import jaxops.onnx
    >>> rule = fsdp("data", mesh=jax.make_mesh((1,), ("data",)))
    >>> jaxops.onnx.load("notebooks/digits.onnx", sharding=rule).params["hidden.weight"].sharding.spec
    P(None, 'data')
    """
    return _Fsdp(axis, rule, mesh)


def placements(
    tensors: Mapping[str, Tensor], paths: Mapping[str, str], graph: Graph, rule: Rule
) -> dict[str, Placement]:
    """The place of each parameter by a rule. paths: name → module path, for parameters that have one. graph: prepared.

    Raises ArgumentError if the rule returns anything but a PartitionSpec or NamedSharding, or if no mesh is set;
    ShapeError for a sharding that does not fit the shape.
    """
    roles = parameter_roles(graph, {name: tensor.shape for name, tensor in tensors.items()})
    parameters = [
        Parameter(name, tensor.shape, math.prod(tensor.shape) * tensor.dtype.itemsize, roles[name])
        for name, tensor in tensors.items()
    ]
    return _placed_by(rule, parameters, paths)


def _placed_by(rule: Rule, parameters: Sequence[Parameter], paths: Mapping[str, str]) -> dict[str, Placement]:
    if isinstance(rule, GraphRule):
        return rule.place(parameters)
    if not callable(rule):
        raise ArgumentError(
            f"`sharding` is {rule!r:.80}; it must be a rule of jaxops.sharding, such as tensor_parallel('model'), or a "
            "function of name, module path and shape"
        )
    placed = {}
    for name, shape, _, _ in parameters:
        spec = rule(name, paths.get(name, ""), shape)
        if isinstance(spec, PartitionSpec):
            spec = NamedSharding(_current(None), spec)
        if not isinstance(spec, NamedSharding):
            raise ArgumentError(f"sharding: the rule gives {spec!r} for '{name}'; it must give a PartitionSpec")
        _check(name, shape, spec)
        placed[name] = Placement(spec, "all on each device" if rule is data_parallel else "by a rule of the caller")
    return placed


def _split_axis(parameter: Parameter, devices: int, is_small: bool) -> tuple[int | None, str]:
    """Returns the axis along which tensor parallelism splits a parameter, None for none, and the reason."""
    shape, role = parameter.shape, parameter.role
    if role.kind == TABLE:
        if is_small:
            return None, "a small table: a lookup in a split one is a sum over the devices"
        ways = ((role.by_output, "by row"), (role.by_input, f"by feature, as {devices} does not divide its rows"))
    elif role.kind == FIRST:
        if 0 < role.heads < devices:
            return None, f"{amount(role.heads, 'head')} for {devices} devices"
        ways = ((role.by_output, "first of a pair, by what it makes"), (role.by_input, "by what it contracts"))
    elif role.kind == SINGLE:
        ways = ((role.by_output, "by what it makes, which is gathered"), (role.by_input, "by what it contracts"))
    elif role.kind == LAST:
        ways = ((role.by_input, "last of a pair, by what it contracts"), (role.by_output, "by what it makes"))
    elif role.kind in (EXPERTS, FILTER):
        ways = ((role.by_output, "by expert" if role.kind == EXPERTS else "by output channel"),)
    elif role.kind == FUSED:
        return None, "makes several operands side by side: model(x) and `specialize` split each of them"
    else:
        return None, "read as a whole"
    for axis, reason in ways:
        if axis is not None and shape[axis] and shape[axis] % devices == 0:
            return axis, reason
        if is_small and role.kind != LAST:
            return None, f"small, and {devices} does not divide what it makes"
    return None, f"{devices} divides none of its axes"


def _axis_like(parameter: Parameter, weight: Parameter, split: int | None, devices: int) -> tuple[int | None, str]:
    """Returns the axis of a scale, a zero point or an adapter of a weight that is split along `split`."""
    if split is None:
        return None, f"whole, as '{weight.name}' is"
    axis = parameter.role.by_output if split == weight.role.by_output else parameter.role.by_input
    if axis is None and parameter.role.kind == ADAPTER:
        return None, "whole, as the other matrix of the adapter is split"
    if axis is None or parameter.shape[axis] % devices:
        return None, f"whole, as it does not divide along the axis of '{weight.name}' that is split"
    return axis, f"as '{weight.name}'"


def _axis_of_parts(parameter: Parameter) -> int | None:
    """Returns the axis along which a weight that makes several operands, or a bias of one, may have parts."""
    if parameter.role.kind == FUSED:
        return parameter.role.by_output
    return 0 if parameter.role.kind == BIAS and len(parameter.shape) == 1 else None


def _spec(shape: tuple[int, ...], entries: Mapping[int | None, Any]) -> PartitionSpec:
    if all(entries.get(k) is None for k in range(len(shape))):
        return PartitionSpec()
    return PartitionSpec(*(entries.get(k) for k in range(len(shape))))


def _names(spec: PartitionSpec) -> set[str]:
    return {name for entry in spec if entry is not None for name in (entry if isinstance(entry, tuple) else (entry,))}


def _on(rule: str, axis: str, mesh: Any) -> tuple[Any, int]:
    """Returns the mesh of a rule, and its number of devices along an axis."""
    mesh = _current(mesh)
    if axis not in mesh.shape:
        raise ArgumentError(f"{rule}: the mesh has no axis '{axis}'; it has {', '.join(mesh.axis_names)}")
    return mesh, mesh.shape[axis]


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
