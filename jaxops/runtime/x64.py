"""Runs a model that needs 64 bits with x64 on, also as a part of a program with x64 off."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxops.dtypes import as_traced, canonical, is_inexact, stand_in
from jaxops.jax_internals import Primitive, UnexpectedTracerError, batching, enable_x64, jaxpr_as_fun, mlir
from jaxops.kernels.custom_transpose import linear
from jaxops.static import Tracer, tracing

F = TypeVar("F", bound=Callable[..., Any])


class HasSetting(Protocol):
    """An object with an attribute `x64`: whether it runs with x64 on."""

    x64: bool


def under_its_x64(method: F) -> F:
    """Returns the method; it runs with x64 on if `x64` of its object is True."""

    @functools.wraps(method)
    def call(self: HasSetting, /, *args: Any, **named: Any) -> Any:
        with x64_on(self.x64):
            return method(self, *args, **named)

    return cast(F, call)


def x64_on(needed: bool) -> contextlib.AbstractContextManager[Any]:
    """Returns a context that turns x64 on if it is needed, and otherwise changes nothing."""
    return enable_x64(True) if needed else contextlib.nullcontext()


def is_on() -> bool:
    """Returns True if x64 is on here."""
    return canonical(np.int64) == np.int64


def with_x64(fn: F) -> F:
    """Returns the function; it runs with x64 on, whatever the caller's setting. Packages written by `to_python` use it.

    >>> with_x64(lambda x: jax.numpy.asarray(x) * 2)(np.int64(2**40)).dtype
    dtype('int64')
    """

    @functools.wraps(fn)
    def call(*args: Any, **named: Any) -> Any:
        if is_on():
            return fn(*args, **named)
        return in_64_bits(lambda args, named: fn(*args, **named), args, named)

    return cast(F, call)


def portable(params: Any) -> Any:
    """Returns parameters, a pytree, for `copy` and `pickle`. Arrays of 64 bits become those of NumPy, as JAX would cut
    them to 32.
    """
    return jax.tree.map(lambda x: np.asarray(x) if _is_wide(x) else x, params)


def restored(params: Any) -> Any:
    """Returns the parameters again that were passed to `portable`."""
    with enable_x64(True):
        return jax.tree.map(lambda x: as_traced(x) if isinstance(x, np.ndarray) else x, params)


def _is_wide(x: Any) -> bool:
    return isinstance(x, jax.Array) and x.dtype != stand_in(x.dtype)


def in_64_bits(fn: Callable[..., Any], *args: Any) -> Any:
    """Returns `fn(*args)`, computed with x64 on. JAX can differentiate, map and compile this with x64 off.

    JAX transposes a derivative under the setting around `jax.grad`, where it cannot make float64 zeros. So the
    derivative is one linear map with its own transpose, which computes `fn` once more.
    """
    leaves, tree = jax.tree.flatten(args)
    if not any(isinstance(x, Tracer) for x in leaves) and not tracing():
        return _run(fn, *args)
    # Copies: JAX caches the buffers of NumPy arrays that a trace closes over, by identity and for both settings. With
    # the caller's array itself, a later program with x64 off would get the 64-bit buffer.
    values = {k: x.copy() if isinstance(x, np.ndarray) else x for k, x in enumerate(leaves)}
    free = [k for k, x in values.items() if isinstance(x, Tracer) and is_inexact(x.dtype)]
    fixed = [k for k, x in values.items() if isinstance(x, jax.Array) and k not in set(free)]

    def of_arrays(free_arrays: Any, fixed_arrays: Any) -> Any:
        arguments = values | dict(zip((*free, *fixed), (*free_arrays, *fixed_arrays), strict=True))
        return fn(*tree.unflatten(arguments.values()))

    arrays = [values[k] for k in free], [values[k] for k in fixed]
    if not tracing():
        # At once, where sizes may depend on values; JAX refuses tracers that are merely captured.
        with contextlib.suppress(UnexpectedTracerError):
            return _differentiable(of_arrays)(*arrays)
    return _with_captured(of_arrays, *arrays)


def _with_captured(fn: Callable[[Any, Any], Any], free: list[Any], fixed: list[Any]) -> Any:
    """Returns `fn(free, fixed)` in 64 bits, where `fn` may read tracers of a caller, as an operator of his own may.

    They become arguments: a derivative by one that is merely captured would be zero.
    """
    with enable_x64(True):
        program, shapes = jax.make_jaxpr(fn, return_shape=True)(free, fixed)
    captured = [x for x in program.consts if isinstance(x, Tracer)]

    def of_all(free_arrays: Any, fixed_arrays: Any) -> Any:
        given, own = (iter(arrays[len(part) :]) for arrays, part in ((free_arrays, free), (fixed_arrays, fixed)))
        consts = [
            x if not isinstance(x, Tracer) else next(given if is_inexact(x.dtype) else own) for x in program.consts
        ]
        arguments = *free_arrays[: len(free)], *fixed_arrays[: len(fixed)]
        return jax.tree.structure(shapes).unflatten(jaxpr_as_fun(program.replace(consts=consts))(*arguments))

    more = [x for x in captured if is_inexact(x.dtype)], [x for x in captured if not is_inexact(x.dtype)]
    return _differentiable(of_all)([*free, *more[0]], [*fixed, *more[1]])


def _differentiable(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns `fn(free, fixed)` in 64 bits, as a function whose derivative by `free` is one linear map."""
    differentiable = jax.custom_jvp(functools.partial(_run, fn))

    def moving(outputs: Any) -> list[Any]:
        return [y for y in jax.tree.leaves(outputs) if is_inexact(y.dtype)]

    def by(moved: Sequence[int], primals: Any) -> tuple[Callable[[Any], list[Any]], list[Any]]:
        """Returns the differentiable results as a function of `free[k]` for k in `moved`, and these values."""
        free, fixed = primals

        def of(values: Any) -> list[Any]:
            values_by_position = dict(enumerate(free)) | dict(zip(moved, values, strict=True))
            return moving(fn(list(values_by_position.values()), fixed))

        return of, [free[k] for k in moved]

    def there(moved: Sequence[int], primals: Any, direction: Any) -> Any:
        of, values = by(moved, primals)
        return jax.jvp(of, (values,), (direction,))[1]

    def back(moved: Sequence[int], primals: Any, cotangents: Any) -> Any:
        of, values = by(moved, primals)
        return jax.vjp(of, values)[1](cotangents)[0]

    def derivative(primals: Any, tangents: Any) -> Any:
        outputs, tree = jax.tree.flatten(differentiable(*primals))
        # Only for arguments with tangents: a gradient of the inputs, besides the parameters, would take as long again.
        directions = {k: t for k, t in enumerate(tangents[0]) if not isinstance(t, SymbolicZero)}
        moved = tuple(directions)
        forward, transposed = (functools.partial(in_64_bits, functools.partial(f, moved)) for f in (there, back))
        along = iter(linear(forward, transposed, primals, list(directions.values())))
        tangents_out = [next(along) if is_inexact(y.dtype) else np.zeros(y.shape, jax.dtypes.float0) for y in outputs]
        return tree.unflatten(outputs), tree.unflatten(tangents_out)

    differentiable.defjvp(derivative, symbolic_zeros=True)
    return differentiable


def _run(fn: Callable[..., Any], *args: Any) -> Any:
    """Returns `fn(*args)`, traced and lowered with x64 on."""
    with enable_x64(True):
        if not tracing():
            return fn(*args)
        program, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    return jax.tree.structure(shapes).unflatten(_program.bind(*jax.tree.leaves(args), program=program))


_program = Primitive("in_64_bits")
_program.multiple_results = True
cast(Any, _program).is_high = lambda *_, **__: False  # as for `compiler.part_of_program`


def _lowered(context: Any, *operands: Any, program: Any) -> Any:
    with enable_x64(True):
        return mlir.lower_fun(jaxpr_as_fun(program), multiple_results=True)(context, *operands)


def _mapped(operands: Any, axes: Any, *, program: Any) -> Any:
    with enable_x64(True):
        mapped = jax.vmap(jaxpr_as_fun(program), tuple(axes))
        results = _program.bind(*operands, program=jax.make_jaxpr(mapped)(*operands))
    return results, [0] * len(results)


_program.def_abstract_eval(lambda *_, program: program.out_avals)
batching.primitive_batchers[_program] = _mapped
mlir.register_lowering(_program, _lowered)
