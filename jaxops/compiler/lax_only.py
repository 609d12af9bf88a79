"""Functions without primitives of our own, for tools that read jaxprs."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxops.compiler.ir import interpret
from jaxops.compiler.primitives import called_jaxpr
from jaxops.kernels.custom_transpose import linear_p
from jaxops.kernels.named_call import plain_jaxpr


def lax_only(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `fn` as a function whose jaxpr has only primitives of `jax.lax`, in loops and branches too.

    Each primitive of jaxops is replaced by its plain form, which runs on any platform. `jit` and `custom_jvp` inside
    `fn` are inlined. So `jax2onnx.to_onnx(lax_only(fn), [x])` writes a loaded model with a new head to
    ONNX again.

    >>> [str(eqn.primitive) for eqn in jax.make_jaxpr(lax_only(lambda x: x * 2))(1.0).eqns]
    ['mul']
    """

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args, **kwargs)
        results = _evaluated(closed, jax.tree.leaves((args, kwargs)))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run


def _evaluated(program: Any, operands: Sequence[Any]) -> list[Any]:
    return interpret(program, operands, _results)


def _results(eqn: Any, operands: Sequence[Any]) -> Sequence[Any]:
    with jax.named_scope(str(eqn.source_info.name_stack)):
        if eqn.primitive is linear_p:
            return lax_only(functools.partial(linear_p.impl, **eqn.params))(*operands)
        inner = plain_jaxpr(eqn) or called_jaxpr(eqn)
        if inner is not None:
            return _evaluated(inner, operands)
        results = eqn.primitive.bind(*operands, **{name: _written_out(value) for name, value in eqn.params.items()})
        return results if eqn.primitive.multiple_results else [results]


def _written_out(value: Any) -> Any:
    """A parameter of an equation, such as the body of a loop."""
    if type(value) in (tuple, list):
        return type(value)(map(_written_out, value))
    if hasattr(value, "jaxpr") and hasattr(value, "consts"):
        return jax.make_jaxpr(lambda *operands: _evaluated(value, operands))(*value.in_avals)
    return value
