"""A model of 64 bits in a program of 32: it runs with x64 on, whatever holds around it."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

import jax
import numpy as np

from jaxops.dtypes import as_traced, canonical, is_float, stand_in
from jaxops.ops.linear_maps import linear
from jaxops.static import Tracer, enable_x64

F = TypeVar("F", bound=Callable[..., Any])


class HasSetting(Protocol):
    """What says whether it runs with x64 on."""

    x64: bool


def under_its_x64(method: F) -> F:
    """A method that runs with x64 on where its object says so."""

    @functools.wraps(method)
    def call(self: HasSetting, /, *args: Any, **named: Any) -> Any:
        if not self.x64 or is_on():
            return method(self, *args, **named)
        with enable_x64(True):
            return method(self, *args, **named)

    return cast(F, call)


def is_on() -> bool:
    """Whether x64 is on here."""
    return canonical(np.int64) == np.int64


def portable(params: Mapping[str, jax.Array]) -> dict[str, Any]:
    """Parameters for `copy` and `pickle`: those of 64 bits as NumPy arrays, which JAX would cut where x64 is off."""
    return {name: np.asarray(x) if x.dtype != stand_in(x.dtype) else x for name, x in params.items()}


def restored(params: Mapping[str, Any]) -> dict[str, jax.Array]:
    """What `portable` was given."""
    with enable_x64(True):
        return {name: as_traced(x) for name, x in params.items()}


def differentiable(fn: Callable[..., Any], *args: Any) -> Any:
    """`fn(*args)`, here where x64 is on, so that JAX can differentiate it where x64 is off.

    JAX transposes a program under the setting that holds around `jax.grad`, without which float64 has no zeros. So the
    derivative is one linear map, whose transpose is made with x64 on; it computes `fn` once more.
    """
    found, tree = jax.tree.flatten(args)
    # JAX remembers NumPy arrays that a trace closes over, by identity and whatever the setting: it would take the
    # buffer of 64 bits where the caller gives the same array to a program of 32.
    leaves = [as_traced(x) if isinstance(x, np.ndarray) else x for x in found]
    traced = [k for k, x in enumerate(leaves) if isinstance(x, Tracer)]
    free, rest = ([k for k in traced if _moves(leaves[k]) is moves] for moves in (True, False))
    if not free:
        return fn(*args)

    def of_traced(free_leaves: Any, others: Any) -> Any:
        given = dict(zip((*free, *rest), (*free_leaves, *others), strict=True))
        with enable_x64(True):
            return fn(*tree.unflatten([given.get(k, x) for k, x in enumerate(leaves)]))

    return _with_linear_derivative(of_traced)([leaves[k] for k in free], [leaves[k] for k in rest])


def _with_linear_derivative(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`fn(free, others)`, whose derivative by `free` is one linear map."""
    whole = jax.custom_jvp(fn)

    def there(primals: Any, direction: Any) -> Any:
        free, others = primals
        with enable_x64(True):
            return jax.jvp(lambda free: moving(fn(free, others)), (free,), (direction,))[1]

    def back(primals: Any, cotangents: Any) -> Any:
        free, others = primals
        with enable_x64(True):
            return jax.vjp(lambda free: moving(fn(free, others)), free)[1](cotangents)[0]

    @whole.defjvp
    def derivative(primals: Any, tangents: Any) -> Any:
        outputs, tree = jax.tree.flatten(whole(*primals))
        with enable_x64(True):
            along = iter(linear(there, back, primals, tangents[0]))
        found = [next(along) if _moves(y) else np.zeros(y.shape, jax.dtypes.float0) for y in outputs]
        return tree.unflatten(outputs), tree.unflatten(found)

    def moving(outputs: Any) -> list[Any]:
        return [y for y in jax.tree.leaves(outputs) if _moves(y)]

    return whole


def _moves(x: Any) -> bool:
    return is_float(x.dtype) or x.dtype.kind == "c"
