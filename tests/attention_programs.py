"""Attention in many forms, as programs and operands: for passes that cut it into parts."""

import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxops as jo

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def attended(q, k, v, of_scores=lambda scores: scores):
    scores = of_scores(jnp.matmul(q, jnp.swapaxes(k, -1, -2)) * 0.2)
    return jnp.matmul(jo.softmax(scores, axis=-1), v)


def masked(q, k, v, mask):
    return attended(q, k, v, lambda scores: jnp.where(mask, scores, -jnp.inf))


def added(q, k, v, *biases):
    return attended(q, k, v, lambda scores: sum(biases, scores))


def columns(q, k, v):
    """Scores and weights as columns: (…, T, S)."""
    scores = jnp.matmul(k, jnp.swapaxes(q, -1, -2))
    return jnp.matmul(jnp.swapaxes(v, -1, -2), jo.softmax(scores, axis=-2))


def flattened(q, k, v):
    """Batches and heads as one axis between the products and softmax."""
    n, h, s, d = q.shape
    scores = jnp.einsum("nsd,ntd->nst", q.reshape(n * h, s, d), k.reshape(n * h, -1, d))
    weights = jo.softmax(scores.reshape(n, h, s, -1), axis=-1)
    return jnp.einsum("nst,ntd->nsd", weights.reshape(n * h, s, -1), v.reshape(n * h, -1, v.shape[-1])).reshape(
        n, h, s, -1
    )


def divided(q, k, v):
    """The sums of the rows are needed behind the second product."""
    powers = jnp.exp(jnp.matmul(q, jnp.swapaxes(k, -1, -2)))
    total = jnp.sum(powers, -1, keepdims=True)
    return jnp.matmul(powers, v) / total


def with_sink(q, k, v, sink):
    """One more score of each head and query, which takes a part of the weights and no part in the result."""
    scores = jnp.matmul(q, jnp.swapaxes(k, -1, -2))
    weights = jo.softmax(lax.concatenate([scores, sink], scores.ndim - 1), axis=-1)
    return jnp.matmul(lax.slice_in_dim(lax.pad(weights, 0.0, [(0, 0, 0)] * 3 + [(1, 0, 0)]), 1, -1, axis=-1), v)


def read_from(q, k, v, start):
    """A slice of the scores that begins where an input says."""
    return attended(q, k, v[..., :20, :], lambda scores: lax.dynamic_slice_in_dim(scores, start, 20, -1))


def heads_last(q, k, v):
    """The axis of heads moves behind the others before the second product."""
    weights = jo.softmax(lax.transpose(jnp.matmul(q, jnp.swapaxes(k, -1, -2)), (1, 2, 0)), axis=1)
    return lax.dot_general(weights, v, (((1,), (1,)), ((2,), (0,))))


def turned(q, k, v):
    """Keys of two axes, in another order than that of the scores: (N, T1, T2, D) as (N, T2, T1, D)."""
    keys = jnp.swapaxes(k.reshape(*k.shape[:-2], 3, -1, k.shape[-1]), -2, -3)
    scores = lax.dot_general(q, keys, (((2,), (3,)), ((0,), (0,))))
    return jnp.matmul(jo.softmax(scores.reshape(*scores.shape[:2], -1), axis=-1), v)


def heads(*shape, keys=None):
    """q, k and v of (…, S, D)."""
    rest = shape[:-2]
    return array(*shape), array(*rest, keys or shape[-2], shape[-1]), array(*rest, keys or shape[-2], shape[-1] + 1)


CASES = {
    "one batch axis": (attended, heads(6, 33, 8)),
    "one example": (attended, heads(1, 6, 33, 8, keys=41)),
    "more examples than heads": (attended, heads(5, 3, 33, 8)),
    "causal": (masked, (*heads(1, 6, 33, 8), np.tri(33, dtype=bool))),
    "mask by example": (masked, (*heads(4, 3, 33, 8), RNG.random((4, 1, 1, 33)) < 0.9)),
    "bias by head": (added, (*heads(1, 6, 33, 8), array(1, 6, 1, 33), array(1, 1, 33, 1), array(1, 6, 33, 33))),
    "bias that broadcasts": (added, (*heads(1, 6, 33, 8), array(1, 1, 33, 33), array(1, 1, 1, 33), np.float32(2))),
    "keys of two axes": (turned, heads(6, 33, 8)),
    "columns": (columns, heads(1, 6, 33, 8)),
    "flattened": (flattened, heads(2, 3, 33, 8)),
    "operator": (lambda q, k, v: jo.attention(q, k, v, is_causal=1)[0], heads(2, 4, 33, 8)),
    "heads last": (heads_last, heads(6, 33, 8)),
    "attention sink": (with_sink, (*heads(1, 6, 33, 8), array(1, 6, 33, 1))),
    "some of the keys": (read_from, (*heads(1, 6, 33, 8), np.int32(7))),
    "scores by themselves": (
        lambda q, k, v: (lambda scores: jnp.matmul(scores, scores) @ v)(jnp.matmul(q, k) / 33),
        (array(6, 33, 33), array(6, 33, 33), array(6, 33, 8)),
    ),
    "division afterwards": (divided, heads(1, 6, 33, 8)),
    "integers": (
        lambda q, k, v: lax.batch_matmul(jnp.sign(lax.batch_matmul(q, k)), v),
        tuple(RNG.integers(-9, 9, (6, 33, 33)).astype(np.int32) for _ in range(3)),
    ),
    "barrier": (
        lambda q, k, v: jnp.matmul(lax.optimization_barrier(jnp.matmul(q, k).astype(jnp.bfloat16)), v),
        (array(6, 33, 33), array(6, 33, 33), array(6, 33, 33).astype(jnp.bfloat16)),
    ),
}
