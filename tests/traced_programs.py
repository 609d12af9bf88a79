"""What a traced program computes, as a text that does not depend on the order of its operations."""

import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxops.compiler.primitives import PROGRAM


def digests(fn: Any, *args: Any) -> list[str]:
    """For each array that `fn` gives: a digest of the operations that make it from the JAX arrays in `args`.

    Other leaves of `args` are static. Equal digests mean equal programs, and so equal results, bit for bit.
    """
    leaves, tree = jax.tree.flatten(args)

    def run(arrays: list[jax.Array]) -> list[Any]:
        following = iter(arrays)
        given = tree.unflatten([next(following) if isinstance(x, jax.Array) else x for x in leaves])
        return jax.tree.leaves(fn(*given))

    closed = jax.make_jaxpr(run)([x for x in leaves if isinstance(x, jax.Array)])
    return _outputs(closed.jaxpr, closed.consts)


def _outputs(jaxpr: Any, consts: Any, operands: Sequence[str] | None = None) -> list[str]:
    made = dict(zip(jaxpr.constvars, map(_constant, consts), strict=True))
    operands = [f"input {k}" for k in range(len(jaxpr.invars))] if operands is None else operands
    made |= dict(zip(jaxpr.invars, operands, strict=True))

    def read(v: Any) -> str:
        return _constant(v.val) if hasattr(v, "val") else made[v]

    for equation in jaxpr.eqns:
        if equation.primitive.name == PROGRAM:  # a model in a program of the caller's
            inner = equation.params["jaxpr"]
            results = _outputs(inner.jaxpr, inner.consts, list(map(read, equation.invars)))
            made.update(zip(equation.outvars, results, strict=True))
            continue
        params = [(name, _param(value)) for name, value in sorted(equation.params.items())]
        whole = _digest(equation.primitive.name, params, [read(v) for v in equation.invars])
        made.update((v, f"{whole} {k}") for k, v in enumerate(equation.outvars))
    return [read(v) for v in jaxpr.outvars]


def _param(value: Any) -> Any:
    if hasattr(value, "jaxpr"):
        return _outputs(value.jaxpr, value.consts)
    if isinstance(value, list | tuple):
        return list(map(_param, value))
    return "a function" if callable(value) and not isinstance(value, type) else str(value)  # a rule for derivatives


def _constant(value: Any) -> str:
    array = np.asarray(value)
    return _digest(array.dtype.name, array.shape, array.tobytes())


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
