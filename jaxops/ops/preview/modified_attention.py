"""Attention whose scores and probabilities pass through functions that the caller gives."""

__all__ = ["flex_attention"]

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp  # noqa: F401 - the doctest uses it
import numpy as np

from jaxops.attributes import float_type
from jaxops.dtypes import as_traced, floats_of_one_type
from jaxops.errors import DTypeError, ShapeError, SignatureError, describe
from jaxops.ops.common.scaled_dot_product import inverse_root, scaled_products, weighted_sums
from jaxops.ops.math.softmax_like import softmax
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.nn import dot_product_attention as sizes_of
from jaxops.signature import ElementType, Subgraph, Traits
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(kind="attention")

Modifier: TypeAlias = Annotated[Callable[[Any], Sequence[Any]], Subgraph(modifies=True)]


def flex_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    prob_mod: Modifier | None = None,
    scale: float | None = None,
    score_mod: Modifier | None = None,
    softmax_precision: ElementType | None = None,
) -> jax.Array:
    """prob_mod(softmax(score_mod(scale · q · kᵀ))) · v for each head: attention with two functions of your own.

    q: (B, Nq, S, H). k: (B, Nkv, T, H). v: (B, Nkv, T, Hv). Floats of one dtype, of 8 bits or more; Nq is a multiple
    of Nkv: query head i uses head i // (Nq / Nkv) of k and v. scale: None is 1 / sqrt(H).
    score_mod, prob_mod: functions of one array (B, Nq, S, T) that return a sequence of one array of the same shape and
    dtype; None changes nothing. softmax_precision: the dtype of that array; None is float64 for float64, else float32.
    Returns (B, Nq, S, Hv) in the dtype of q. If all scores of a query are -inf, its softmax and its result are NaN.
    Raises ShapeError, DTypeError, SignatureError for a modifier that does not return one array.
    Source: ONNX FlexAttention of ai.onnx.preview, version 1.

    >>> ones = jnp.ones((1, 2, 3, 4))
    >>> flex_attention(ones, ones, ones, prob_mod=lambda p: [2 * p])[0, 0, 0].tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    queries, keys, values = floats_of_one_type(q=q, k=k, v=v)
    for name, x in (("q", queries), ("k", keys), ("v", values)):
        must_fit(name, x.shape, ("batch", "heads", "sequence", "head_size"))
    sizes_of.scores(queries.shape, keys.shape, values.shape)
    chosen = (
        (np.float64 if queries.dtype == np.float64 else np.float32) if softmax_precision is None else softmax_precision
    )
    dtype = float_type("softmax_precision", chosen)
    factor = inverse_root(queries.shape[3]) if scale is None else float(scale)
    scores = _modified("score_mod", score_mod, _scores((queries, keys), factor, dtype))
    return _output((_modified("prob_mod", prob_mod, softmax(scores)), values))


@jit_if_concrete
def _scores(operands: tuple[Any, Any], scale: float, dtype: Any) -> Any:
    return scaled_products(*operands, scale).astype(dtype)


@jit_if_concrete
def _output(operands: tuple[Any, Any]) -> Any:
    return weighted_sums(*operands).astype(operands[1].dtype)


def _modified(name: str, modifier: Any, x: Any) -> Any:
    """`x`, or the result of the modifier for it."""
    if modifier is None:
        return x
    results = modifier(x)
    if not isinstance(results, Sequence) or len(results) != 1:
        raise SignatureError(f"`{name}` must return a sequence of one array, got {describe(results)}")
    result = as_traced(results[0])
    for same, kind in ((result.shape == x.shape, ShapeError), (result.dtype == x.dtype, DTypeError)):
        if not same:
            raise kind(f"`{name}` must return an array like its input {describe(x)}, got {describe(result)}")
    return result
