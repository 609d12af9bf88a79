"""Parameters of a decoder with the values that depend on them alone, such as packed weights, computed once."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from jaxops.compiler import pipeline
from jaxops.compiler.run.specialized import Specialized
from jaxops.dtypes import as_traced
from jaxops.kernels.target import this_machine
from jaxops.runtime.auto_axes import under_auto_axes
from jaxops.runtime.specialized_pair import are_traced, untransformable
from jaxops.static import tracing


class PreparedParams(NamedTuple):
    """The parameters of a step, and what was computed from them: a pytree.

    values: each by a text that stands for its computation. params: as `model.params`.
    """

    values: dict[str, jax.Array]
    params: dict[str, Any]


# A function of parameters by name and of further pytrees of arrays.
Step = Callable[..., Any]


def prepared(fn: Step, params: Mapping[str, Any], *arguments: Any) -> PreparedParams:
    """Returns the parameters prepared for calls of a function. arguments: the types of the further arguments."""

    def values(params: Mapping[str, Any]) -> dict[str, jax.Array]:
        program, _ = _specialized(fn, *_types((params, *arguments)))
        weights = jax.tree.leaves(params)
        found = program.prepare(weights) if tracing() or are_traced(weights) else program.prepare.cached({}, weights)
        return dict(zip(program.prepare.expressions, found, strict=True))

    arrays = {name: as_traced(x) for name, x in params.items()}
    return PreparedParams(under_auto_axes(values, arrays), arrays)


def run_prepared(fn: Step, prepared: PreparedParams, *arguments: Any) -> Any:
    """Returns `fn(params, *arguments)`, while it is traced. What a call needs that was not prepared is computed."""
    program, tree = _specialized(fn, *_types((prepared.params, *arguments)))
    weights = jax.tree.leaves(prepared.params)
    expressions, values = program.prepare.expressions, prepared.values
    if not values.keys() >= set(expressions):
        values = dict(zip(expressions, program.prepare(weights), strict=True)) | values
    run = untransformable(program.run, "a step with prepared parameters", "step(model.params, …) has none of them")
    return jax.tree.unflatten(
        tree, run([values[e] for e in expressions], [weights[k] for k in program.read], jax.tree.leaves(arguments))
    )


def _specialized(fn: Step, params: Any, *arguments: Any) -> tuple[Specialized, Any]:
    """Returns the program of a function, and the tree of its results."""
    closed, results = jax.make_jaxpr(fn, return_shape=True)(params, *arguments)
    target = this_machine(specialized=True, prepared=True)
    return pipeline.specialize(closed, len(jax.tree.leaves(params)), target), jax.tree.structure(results)


def _types(arrays: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
