"""Gradient, which differentiates a part of the graph around it."""

from collections.abc import Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from jaxops.dtypes import floating
from jaxops.errors import SignatureError, amount
from jaxops.onnx.registry import version
from jaxops.signature import Subgraph
from jaxops.signature_errors import errors_of
from jaxops.static import Array


@version("Gradient", 1, domain="ai.onnx.preview.training")
def gradient_1(
    inputs: Sequence[Array],
    *,
    xs: Sequence[str],
    y: str,
    zs: Sequence[str] = (),
    differentiated: Annotated[Any, Subgraph(first=0)] = None,
) -> tuple[jax.Array, ...]:
    """Returns the derivative of the sum of `y` by each of `xs`. inputs: the values of xs, then of zs.

    differentiated: the graph from xs and zs to y, see `jaxops.onnx.gradient_node`.
    """
    if len(inputs) != len(xs) + len(zs):
        raise SignatureError(
            f"gradient: {amount(len(inputs), 'input')}, but `xs` and `zs` name {amount(len(xs) + len(zs), 'value')}"
        )
    with errors_of("gradient"):
        by = floating(**dict(zip(xs, inputs, strict=False)))
    others = inputs[len(xs) :]

    def target(*values: Any) -> Any:
        (found,) = differentiated(*values, *others)
        with errors_of("gradient"):
            (found,) = floating(**{y: found})
        return jnp.sum(found)

    return jax.grad(target, tuple(range(len(by))))(*by)
