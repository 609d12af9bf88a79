"""A model inside a user's `jit` is one operation, which goes through the passes when JAX lowers it.

JAX lowers a program after all its transformations. So a program that is optimized then needs no derivative and no
batching rule for its kernels. A transformation (`grad`, `vmap`) replaces the operation by the operations inside it,
and transforms these; their named calls are then lowered one by one. Of long attention, it transforms a loop over
blocks, whose gradient computes scores anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import jax

from jaxops.compiler import pipeline
from jaxops.compiler.ir import reads_tracers
from jaxops.compiler.passes.block_attention import has_long_product
from jaxops.compiler.primitives import PROGRAM
from jaxops.jax_internals import Primitive, ad, batching, enable_x64, jaxpr_as_fun, mlir
from jaxops.kernels.kept_scores import TooManyScores, ends_at_scores
from jaxops.kernels.target import backend, this_machine
from jaxops.static import Tracer, is_plainly_traced


def may_be_one_operation(arguments: Any) -> bool:
    """Returns True if all arguments are traced by `jit` alone.

    False if `grad` or `vmap` traces one of them, since that would open the operation at once, or if one is not traced.
    """
    leaves = jax.tree.leaves(arguments)
    return bool(leaves) and all(map(is_plainly_traced, leaves)) and not cast(Any, jax.config).jax_disable_jit


def keeping_few_scores(fn: Callable[..., Any], *arguments: Any) -> Any:
    """Returns `fn(*arguments)`, of which JAX traces a transformation; its gradient keeps no scores of long attention.

    If there are such scores, `fn` is traced a second time, as one operation.
    """
    try:
        with ends_at_scores():
            return fn(*arguments)
    except TooManyScores:
        return as_one_operation(fn, *arguments)


def as_one_operation(fn: Callable[..., Any], *arguments: Any) -> Any:
    """Returns `fn(*arguments)`, computed by one operation of the program that is being traced. What is not traced is a
    constant of it."""
    every, tree = jax.tree.flatten(arguments)
    traced = [k for k, x in enumerate(every) if isinstance(x, Tracer)]
    leaves = [every[k] for k in traced]

    def of_traced(*leaves: Any) -> Any:
        values = list(every)
        for k, value in zip(traced, leaves, strict=True):
            values[k] = value
        return fn(*jax.tree.unflatten(tree, values))

    closed, shapes = jax.make_jaxpr(of_traced, return_shape=True)(*leaves)
    config = cast(Any, jax.config)
    settings = {"precision": config.jax_default_matmul_precision, "x64": config.jax_enable_x64}
    # A constant that JAX traces could be neither differentiated nor lowered inside of the operation.
    is_open = closed.effects or reads_tracers(closed)
    results = jaxpr_as_fun(closed)(*leaves) if is_open else _PROGRAM.bind(*leaves, jaxpr=closed, **settings)
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


_PROGRAM = Primitive(PROGRAM)
_PROGRAM.multiple_results = True
# JAX 0.12 asks whether a primitive must be replaced before lowering, as nonzero must; this one need not.
cast(Any, _PROGRAM).is_high = lambda *_, **__: False


def _function(closed: Any) -> Callable[..., list[Any]]:
    """Returns a closed jaxpr as a function that JAX can transform; its gradient keeps no scores of long attention."""
    target = this_machine()
    if has_long_product(closed.jaxpr, target):
        return pipeline.transformable(closed, target)
    return jaxpr_as_fun(closed)


def _opened(*operands: Any, jaxpr: Any, **settings: Any) -> list[Any]:
    return _function(jaxpr)(*operands)


def _jvp(operands: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, **settings: Any) -> Any:
    moving = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]

    def results(*moved: Any) -> list[Any]:
        values = dict(enumerate(operands)) | dict(zip(moving, moved, strict=True))
        return _function(jaxpr)(*values.values())

    values, along = jax.jvp(results, [operands[k] for k in moving], [tangents[k] for k in moving])
    zeros = [ad.Zero(jax.typeof(y).to_tangent_aval()) for y in values]
    return values, [zero if t.dtype == jax.dtypes.float0 else t for zero, t in zip(zeros, along, strict=True)]


def _mapped(operands: Sequence[Any], axes: Sequence[Any], *, jaxpr: Any, **settings: Any) -> Any:
    results = jax.vmap(_function(jaxpr), tuple(axes))(*operands)
    return results, [0] * len(results)


def _lowered(context: Any, *operands: Any, jaxpr: Any, precision: Any, x64: bool) -> Any:
    module = context.module_context
    with jax.default_matmul_precision(precision), enable_x64(x64):
        alone = getattr(module.axis_context, "num_devices", None) == 1
        fn = jaxpr_as_fun(jaxpr)
        if alone and len(module.platforms) == 1:
            (platform,) = module.platforms
            target = replace(this_machine(specialized=True), platform=backend(platform))
            if platform == "cpu" or has_long_product(jaxpr.jaxpr, target):
                fn = pipeline.optimized(jaxpr, target)
        return mlir.lower_fun(fn, multiple_results=True)(context, *operands)


_PROGRAM.def_impl(_opened)
_PROGRAM.def_abstract_eval(lambda *_, jaxpr, **settings: jaxpr.out_avals)
ad.primitive_jvps[_PROGRAM] = _jvp
batching.primitive_batchers[_PROGRAM] = _mapped
mlir.register_lowering(_PROGRAM, _lowered)
