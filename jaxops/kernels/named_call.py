"""Named calls: each one is a primitive for JAX, with a plain form in `lax`, and perhaps another form for a platform.

The form is chosen when the program is complete:

- In a program that JAX may still transform, the call stays. JAX's transformations are recorded in the call; lowering
  chooses the form for its platform, and traces only that one.
- In a specialized program, after all transformations, `compiler.passes.select_kernels` replaces the call by the form.
  So this form needs no derivative and no batching rule.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
from jax import lax
from jax.sharding import AbstractMesh, get_abstract_mesh, use_abstract_mesh

from jaxops.jax_internals import (
    Primitive,
    ShapedArray,
    ad,
    batching,
    enable_x64,
    jaxpr_as_fun,
    mapped_aval,
    mlir,
    partial_eval,
    unmapped_aval,
)
from jaxops.kernels.target import Target, backend, this_machine
from jaxops.number_checks import checks_numbers
from jaxops.static import Sizes, varying

# A function of arrays that returns a list of arrays.
Form = Callable[..., list[Any]]
Types = list[Any]  # of arrays
_NO_MESH = AbstractMesh((), ())


class Mapped(NamedTuple):
    """The transformation `jax.vmap`. axes: the mapped axis of each operand; None for one that is not mapped."""

    axes: tuple[int | None, ...]
    size: Any

    def __call__(self, form: Form) -> Form:
        return jax.vmap(form, self.axes, axis_size=self.size)

    def before(self, operands: Types) -> Types:
        """Returns the types of the operands before the transformation."""
        pairs = zip(operands, self.axes, strict=True)
        return [x if axis is None else mapped_aval(self.size, axis, x) for x, axis in pairs]

    def after(self, operands: Types, results: Callable[[Types], Types]) -> Types:
        """Returns the types of the results after the transformation. results: types of operands → types of results,
        before the transformation."""
        return [unmapped_aval(self.size, 0, y) for y in results(self.before(operands))]


class Tangent(NamedTuple):
    """The transformation to tangents of the results.

    Its operands: those of the form, then a tangent for each operand that is `moving`.
    """

    moving: tuple[bool, ...]

    def __call__(self, form: Form) -> Form:
        positions = [k for k, moves in enumerate(self.moving) if moves]

        def tangents(*operands: Any) -> list[Any]:
            values = list(operands[: len(self.moving)])

            def results(*moved: Any) -> list[Any]:
                for k, value in zip(positions, moved, strict=True):
                    values[k] = value
                return form(*values)

            return jax.jvp(results, [values[k] for k in positions], list(operands[len(self.moving) :]))[1]

        return tangents

    def before(self, operands: Types) -> Types:
        """As of `Mapped`."""
        return operands[: len(self.moving)]

    def after(self, operands: Types, results: Callable[[Types], Types]) -> Types:
        """As of `Mapped`."""
        return results(self.before(operands))


class Transposed(NamedTuple):
    """The transformation to the transpose by some operands, in which the form is linear.

    Its operands: the remaining operands, then a cotangent for each result. linear: the type of each operand by which it
    is transposed; None for a remaining one.
    """

    linear: tuple[ShapedArray | None, ...]

    def __call__(self, form: Form) -> Form:
        types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.linear if x is not None]
        count = len(self.linear) - len(types)

        def cotangents(*operands: Any) -> list[Any]:
            def results(*moving: Any) -> list[Any]:
                fixed, free = iter(operands[:count]), iter(moving)
                return form(*(next(fixed if type is None else free) for type in self.linear))

            return list(jax.linear_transpose(results, *types)(list(operands[count:])))

        return cotangents

    def before(self, operands: Types) -> Types:
        """As of `Mapped`."""
        fixed = iter(operands)
        return [next(fixed) if type is None else type for type in self.linear]

    def after(self, operands: Types, results: Callable[[Types], Types]) -> Types:
        """As of `Mapped`."""
        return [type for type in self.linear if type is not None]


class Call(NamedTuple):
    """The parameters of a call.

    static: the names and values of keywords. precision, x64: JAX's settings around the call, under which forms are
    traced. transforms: JAX's transformations of the form, in order.
    """

    static: tuple[tuple[str, Any], ...]
    precision: Any
    x64: bool
    transforms: tuple[Mapped | Tangent | Transposed, ...] = ()


def _no_kernel(target: Target, *operands: Any, **static: Any) -> None:
    return None


class NamedCall:
    """A computation with a name.

    plain: a function of arrays and of static, hashable keywords that returns an array. select: a function of a target,
    the types of the operands and the keywords that returns the function to use there, or None for `plain`. Where the
    target is not specialized, JAX must be able to transform that function. elementwise: whether each element of the
    result depends only on the operands' elements at its position; a specialized program keeps such a call as one
    operation. sizes: a function of operands and keywords that returns the shape of the result, whose dtype is that of
    the first operand; for calls whose `plain` takes long to trace. outside: a function of operands and keywords that
    returns the value which windows read outside of the first operand, for a call with a keyword `windows`.
    rows: whether the first operand is (…, K) with any number of independent rows, so that `jax.vmap` over it adds rows.
    mapped: a function of operands and of the axis mapped in each (None for one that is not) that computes what
    `jax.vmap` returns, in place of a transformation of the form; rows of the result are its first axis.
    """

    def __init__(
        self,
        name: str,
        plain: Callable[..., Any],
        select: Callable[..., Any] = _no_kernel,
        *,
        elementwise: bool = False,
        sizes: Callable[..., tuple[Any, ...]] | None = None,
        outside: Callable[..., Any] | None = None,
        rows: bool = False,
        mapped: Callable[..., Any] | None = None,
    ) -> None:
        self.plain, self.select, self.elementwise, self.sizes = plain, select, elementwise, sizes
        self.outside, self.rows, self.mapped = outside, rows, mapped
        self.primitive = primitive = Primitive(name)
        primitive.multiple_results = True
        cast(Any, primitive).named_call = self
        primitive.def_impl(self._run)
        primitive.def_abstract_eval(self._result_types)
        ad.primitive_jvps[primitive] = self._jvp
        ad.primitive_transposes[primitive] = self._transpose
        batching.primitive_batchers[primitive] = self._batch
        mlir.register_lowering(primitive, self._lower)

    @property
    def name(self) -> str:
        """The name of its primitive."""
        return self.primitive.name

    def __call__(self, *operands: Any, **static: Any) -> Any:
        """Returns the result for these operands."""
        config = cast(Any, jax.config)
        call = Call(tuple(sorted(static.items())), config.jax_default_matmul_precision, config.jax_enable_x64)
        return self.primitive.bind(*varying(operands), call=call)[0]

    def jaxpr(self, call: Call, operands: Sequence[Any], target: Target | None = None) -> Any:
        """Returns the closed jaxpr of a call: of its form for a target; of its plain form without a target.

        operands: objects with shapes and dtypes.
        """
        types = tuple((x.shape, x.dtype) for x in operands)
        if target is not None and call.transforms:
            target = replace(target, specialized=False)  # its form can be transformed by JAX
        static = all(isinstance(d, int) for shape, _ in types for d in shape)
        # Symbolic sizes of different scopes cannot be compared.
        return (_jaxpr if static else _jaxpr.__wrapped__)(self, call, types, target)

    def _run(self, *operands: Any, call: Call) -> Any:
        if checks_numbers():  # JAX runs a program with a NaN again, operation by operation
            return jaxpr_as_fun(self.jaxpr(call, operands))(*operands)
        with jax.disable_jit(False):  # otherwise the inner call would come here again
            return _compiled(self, call)(*operands)

    def _result_types(self, *operands: Any, call: Call) -> Any:
        if call.transforms:
            *first, last = call.transforms
            inner = call._replace(transforms=tuple(first))
            return last.after(list(operands), lambda operands: self._result_types(*operands, call=inner))
        if get_abstract_mesh().empty and all(x.sharding.mesh.empty for x in operands):
            if self.sizes is None:
                return self.jaxpr(call, operands).out_avals
            return [ShapedArray(self.sizes(*operands, **dict(call.static)), operands[0].dtype)]
        with _settings(call):  # tracing the plain form gives the shardings, too
            return jax.make_jaxpr(lambda *xs: [self.plain(*xs, **dict(call.static))])(*operands).out_avals

    def _jvp(self, operands: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> Any:
        results = self.primitive.bind(*operands, call=call)
        moving = tuple(type(t) is not ad.Zero for t in tangents)
        if not all(jax.numpy.issubdtype(y.dtype, jax.numpy.inexact) for y in results):
            return results, [ad.Zero(jax.typeof(y).to_tangent_aval()) for y in results]
        along = call._replace(transforms=(*call.transforms, Tangent(moving)))
        moved = (t for t, moves in zip(tangents, moving, strict=True) if moves)
        return results, self.primitive.bind(*operands, *moved, call=along)

    def _transpose(self, cotangents: Sequence[Any], *operands: Any, call: Call) -> list[Any]:
        linear = [x.aval if ad.is_undefined_primal(x) else None for x in operands]
        transposed = Transposed(tuple(linear))
        fixed = (x for x, aval in zip(operands, linear, strict=True) if aval is None)
        call = call._replace(transforms=(*call.transforms, transposed))
        results = iter(self.primitive.bind(*fixed, *map(ad.instantiate_zeros, cotangents), call=call))
        return [None if aval is None else next(results) for aval in linear]

    def _batch(self, operands: Sequence[Any], axes: Sequence[Any], *, call: Call) -> Any:
        if self.rows and not call.transforms and all(axis is None for axis in axes[1:]):
            return self.primitive.bind(jax.numpy.moveaxis(operands[0], axes[0], 0), *operands[1:], call=call), [0]
        if self.mapped is not None and not call.transforms:
            return [self.mapped(operands, axes)], [0]
        size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
        call = call._replace(transforms=(*call.transforms, Mapped(tuple(axes), size)))
        results = self.primitive.bind(*operands, call=call)
        return results, [0] * len(results)

    def _lower(self, context: Any, *operands: Any, call: Call) -> Any:
        # Types without shardings: inside the call, the compiler chooses them.
        types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in context.avals_in]
        module = context.module_context
        partitioned = getattr(module.axis_context, "num_devices", None) != 1
        forms = {p: self.jaxpr(call, types, _lowered_for(p, partitioned)) for p in module.platforms}
        with _settings(call), use_abstract_mesh(_NO_MESH):
            form, *more = forms.values()
            if any(closed is not form for closed in more):
                functions = {platform: jaxpr_as_fun(closed) for platform, closed in forms.items()}
                form = jax.make_jaxpr(functools.partial(lax.platform_dependent, **functions))(*types)
            shapes = [y.shape for y in context.avals_out]
            context = context.replace(avals_in=form.in_avals)
            return mlir.lower_fun(_reshaped(jaxpr_as_fun(form), shapes), multiple_results=True)(context, *operands)


def named_call(equation: Any) -> NamedCall | None:
    """Returns the named call of an equation; None for an equation of another primitive."""
    return getattr(equation.primitive, "named_call", None)


def plain_jaxpr(equation: Any) -> Any:
    """Returns the closed jaxpr of the plain form of a named call's equation; None for another equation."""
    call = named_call(equation)
    return None if call is None else call.jaxpr(equation.params["call"], [v.aval for v in equation.invars])


def _reshaped(form: Form, shapes: Sequence[Sizes]) -> Form:
    """Returns a form whose results have these shapes: the form may compute a symbolic size that the call knows."""
    return lambda *operands: [
        y if y.shape == shape else lax.reshape(y, shape) for y, shape in zip(form(*operands), shapes, strict=True)
    ]


def _lowered_for(platform: str, partitioned: bool) -> Target:
    """Returns the target of a call in a user's own program. JAX transforms no call after it was lowered, so on a GPU it
    is specialized; on a CPU, forms of specialized programs count on passes that have moved transposes before.
    """
    platform = backend(platform)
    return replace(this_machine(), platform=platform, specialized=platform == "gpu", partitioned=partitioned)


@functools.lru_cache(4096)
def _compiled(named: NamedCall, call: Call) -> Any:
    return jax.jit(functools.partial(named.primitive.bind, call=call))


@functools.lru_cache(4096)
def _jaxpr(named: NamedCall, call: Call, types: tuple[tuple[tuple[Any, ...], Any], ...], target: Target | None) -> Any:
    static = dict(call.static)
    operands = [ShapedArray(*type) for type in types]
    form = named.plain
    if target is not None:
        first = functools.reduce(lambda types, transform: transform.before(types), reversed(call.transforms), operands)
        form = named.select(target, *first, **static)
        if form is None:
            return named.jaxpr(call, operands)

    def results(*operands: Any) -> list[Any]:
        return [form(*operands, **static)]

    for transform in call.transforms:
        results = transform(results)
    with _settings(call), use_abstract_mesh(_NO_MESH):
        closed = jax.make_jaxpr(results)(*(jax.ShapeDtypeStruct(*type) for type in types))
    # Removes operations without use: a tangent need not compute the value.
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), True)
    return closed.replace(jaxpr=jaxpr)


@contextlib.contextmanager
def _settings(call: Call) -> Iterator[None]:
    """Restores JAX's settings around the call."""
    with jax.default_matmul_precision(call.precision), enable_x64(call.x64):
        yield
