"""Routers of mixtures of experts that choose groups of experts first."""

__all__ = ["moe_group_router"]

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import accumulation_type, floating, floats_of_one_type
from jaxops.errors import ArgumentError, ShapeError, SizeError, shape_text
from jaxops.kernels.matmul.dot import dot
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.ops.math.ranking import top_k
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import SecondOutput
from jaxops.static import ArrayLike, Dim, Sizes, jit_if_concrete


def moe_group_router(
    logits: ArrayLike,
    expert_bias: ArrayLike,
    projection_weight: ArrayLike | None = None,
    *,
    top_k: int,
    group_topk: int = 2,
    n_group: int = 1,
    router_sentinel: float = -10000.0,
    topk_group: int = 1,
    full_scores: SecondOutput = False,
) -> Any:
    """Returns the logarithms of the weights of a token's top_k experts, and router_sentinel for the remaining ones.

    logits: (…, E), floats. expert_bias: (E,). The weight of an expert is s = sigmoid(logits), its score s +
    expert_bias. The E experts form n_group groups of the same size. The topk_group groups with the largest sums of
    their group_topk best scores are chosen, then the top_k experts with the best scores in them, or all if they have
    fewer. Among equal scores the first one is better; a NaN counts as infinity. A weight below 1e-20 counts as 1e-20.
    full_scores: also returns the scores and the weights, (T, E) in the dtype of expert_bias; n_group must be 1 then.
    projection_weight: (E, W), of the dtype of logits, which are then activations (T, W): their product, in float32,
    takes the place of logits. It needs full_scores.
    Returns (T, E) in the dtype of logits, where T is the product of the first axes; with full_scores three arrays.
    Raises ShapeError, ArgumentError, DTypeError. Source: com.microsoft MoEGroupRouter, opset 1; a node has either
    the first output or the other two.

    >>> moe_group_router(jnp.array([[0.0, 9.0, 0.0, 8.0]]), jnp.zeros(4), top_k=1, n_group=2).round(3).tolist()
    [[-10000.0, -0.0, -10000.0, -10000.0]]
    """
    counts = {"n_group": n_group, "topk_group": topk_group, "group_topk": group_topk, "top_k": top_k}
    counts = {name: integer(name, value, least=1) for name, value in counts.items()}
    if full_scores and counts["n_group"] != 1:
        raise ArgumentError(f"`n_group` is {counts['n_group']}; the full scores need 1, a single group")
    if projection_weight is not None and not full_scores:
        raise ArgumentError("`projection_weight` needs the full scores, outputs 1 and 2")
    operands = floats_of_one_type(logits=logits, projection_weight=projection_weight)
    (bias,) = floating(expert_bias=expert_bias)
    results = _routed((*operands, bias), tuple(counts.items()), float(router_sentinel))
    return results if full_scores else results[0]


def _score_sizes(logits: Sizes, bias: Sizes, projection: Sizes | None) -> tuple[Dim, int]:
    """Returns (tokens, experts) for logits (…, E), or for activations (T, W) with a projection (E, W)."""
    if projection is not None:
        must_fit("logits", logits, ("T", "W"), reason=" if `projection_weight` is given")
        must_fit("projection_weight", projection, ("E", logits[1]), reason=f" for `logits` of {shape_text(logits)}")
    if len(logits) < 2:
        raise ShapeError(f"`logits` of {shape_text(logits)} must have at least 2 axes, (…, experts)")
    experts = logits[-1] if projection is None else projection[0]
    must_fit("expert_bias", bias, (experts,), reason=", a number for each expert")
    if not isinstance(experts, int):
        problem = f"the number of experts is the symbolic size {experts}; it must be a number"
        raise SizeError(problem, experts, fix=8)
    return math.prod(logits[:-1]), experts


def _check_choice(experts: int, **counts: int) -> None:
    """Raises ArgumentError unless n_group, topk_group and top_k fit the number of experts."""
    groups = counts["n_group"]
    if experts % groups or counts["topk_group"] > groups or counts["top_k"] > experts:
        raise ArgumentError(
            f"`n_group` {groups} must divide the {experts} experts, `topk_group` {counts['topk_group']} must not "
            f"exceed it, nor `top_k` {counts['top_k']} the experts"
        )


@jit_if_concrete
def _routed(operands: tuple[Any, ...], named: tuple[tuple[str, int], ...], sentinel: float) -> tuple[Any, Any, Any]:
    (logits, projection, bias), counts = operands, dict(named)
    projected = None if projection is None else projection.shape
    tokens, experts = _score_sizes(logits.shape, bias.shape, projected)
    _check_choice(experts, **counts)
    work = accumulation_type(logits.dtype, bias.dtype)
    x = logits.astype(work)
    if projection is not None:
        x = dot(x, projection.astype(work), (((1,), (1,)), ((), ())), work)
    weights = lax.logistic(x.reshape(tokens, experts))
    scores = weights + broadcast_to(bias.astype(work), weights.shape)

    groups = counts["n_group"]
    size = experts // groups
    best, _ = top_k(scores.reshape(tokens, groups, size), min(counts["group_topk"], size))
    chosen = jnp.sort(top_k(best.sum(2), counts["topk_group"])[1], axis=1)
    members = jnp.repeat(chosen * size, size, axis=1)
    members = members + lax.broadcasted_iota(members.dtype, members.shape, 1) % size
    among = jnp.take_along_axis(scores, members, 1)
    picked = jnp.take_along_axis(members, top_k(among, min(counts["top_k"], among.shape[1]))[1], 1)

    logs = jnp.log(jnp.maximum(jnp.take_along_axis(weights, picked, 1), np.asarray(1e-20, work)))
    rows = lax.broadcasted_iota(picked.dtype, picked.shape, 0)
    empty = jnp.full((tokens, experts), sentinel, work)
    routed = empty.at[rows, picked].set(logs, unique_indices=True)
    return routed.astype(logits.dtype), scores.astype(bias.dtype), weights.astype(bias.dtype)
