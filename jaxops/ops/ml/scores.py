"""Functions that classifiers and regressors share: inputs as rows, transforms of scores, labels of classes."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints
from jaxops.dtypes import as_traced
from jaxops.errors import SignatureError
from jaxops.kernels.xla_workarounds import largest
from jaxops.opaque import ChosenStrings
from jaxops.ops.common.elementwise import require
from jaxops.shapes.ml.scaling import vector_or_matrix
from jaxops.static import known

PostTransform = Literal["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def rows(x: Any) -> jax.Array:
    """Real numbers as (rows, features); one axis is one row."""
    x = as_traced(x)
    require("real numbers", x)
    return x.reshape(vector_or_matrix(x.shape))


def numbers(name: str, values: Any) -> np.ndarray:
    """A static list of floats as a vector; empty for None."""
    return np.asarray(known(name, () if values is None else values), np.float32).reshape(-1)


def class_labels(**attributes: Any) -> np.ndarray:
    """The labels of the classes: int64, or strings in an object array. `attributes` are the attributes of both
    kinds.
    """
    present = {name: values for name, values in attributes.items() if values is not None and np.size(values)}
    if len(present) != 1:
        problem = "exclude each other" if present else "are both missing"
        raise SignatureError(f"{' and '.join(attributes)} {problem}; give one of them")
    ((name, values),) = present.items()
    if "string" in name:
        return np.asarray(values, object)
    return np.array(ints(name, values), np.int64)


def choose(labels: np.ndarray, positions: jax.Array) -> Any:
    """The labels at traced positions; strings are NumPy strings outside of `jit`, and `ChosenStrings` inside."""
    if labels.dtype == object:
        return ChosenStrings.of(positions, labels)
    return jnp.take(as_traced(labels), positions, mode="clip")


def decided(labels: np.ndarray) -> np.ndarray:
    """The labels of no and of yes, for a classifier that decides by the sign of one score.

    With one label, or with more than two, they are 0 and 1, or "0" and "1", as in onnxruntime.
    """
    if labels.size == 2:
        return labels
    return np.array(["0", "1"], object) if labels.dtype == object else np.array([0, 1])


def transformed(scores: Any, how: PostTransform) -> Any:
    """Scores (rows, targets) after a transform, each row by itself.

    SOFTMAX_ZERO is a softmax of the elements whose magnitude is above 1e-7; all others are multiplied by
    exp(-max) / sum. PROBIT is the inverse of the normal distribution by the approximation that onnxruntime uses, good
    to 2e-3; NaN outside of (0, 1).
    """
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return jax.nn.sigmoid(scores)
    if how == "PROBIT":
        return _probit(scores)
    if scores.shape[-1] == 0:
        return scores
    greatest = largest(lax.stop_gradient(scores), (scores.ndim - 1,))[..., None]
    powers = jnp.exp(scores - jnp.broadcast_to(greatest, scores.shape))
    if how == "SOFTMAX":
        return powers / jnp.broadcast_to(jnp.sum(powers, -1, keepdims=True), scores.shape)
    # Written as in onnxruntime, which divides numbers near zero, too.
    counts = jnp.abs(scores) > jnp.asarray(1e-7, scores.dtype)
    total = jnp.sum(jnp.where(counts, powers, jnp.zeros_like(powers)), -1, keepdims=True)
    near = scores * jnp.broadcast_to(jnp.exp(-greatest), scores.shape)
    return jnp.where(counts, powers, near) / jnp.broadcast_to(total, scores.shape)


def _probit(p: Any) -> Any:
    """sqrt(2) times the inverse error function of 2p - 1, after Winitzki's formula with a = 0.147."""
    x = 2 * p - 1
    log = jnp.log((1 - x) * (1 + x))
    half = 2 / (np.pi * 0.147) + log / 2
    root = jnp.sqrt(lax.square(half) - log / 0.147)
    # root - half, without the cancellation near p = 1/2
    inner = jnp.where(half > 0, -log / 0.147 / (root + jnp.abs(half)), root - half)
    return np.sqrt(2).item() * jnp.sign(x) * jnp.sqrt(inner)


def two_scores(score: Any, how: PostTransform, *, opposite: bool) -> Any:
    """The scores (rows, 2) of no and yes, made from one score (rows,) of yes, as in onnxruntime.

    The standard leaves this open. LOGISTIC gives the logistic of (-score, score). Otherwise the score of no is -score
    if `opposite`, else 1 - score. SOFTMAX is not applied. PROBIT is applied to score first (onnxruntime leaves one of
    the two undefined).
    """
    if how == "LOGISTIC":
        return jnp.stack([jax.nn.sigmoid(-score), jax.nn.sigmoid(score)], 1)
    score = transformed(score, how) if how == "PROBIT" else score
    return jnp.stack([-score if opposite else 1 - score, score], 1)
