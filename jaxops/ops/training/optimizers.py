"""One step of stochastic gradient descent, for any number of tensors at once.

Each operator takes the learning rate, the number of earlier steps, and the tensors by kind: first all tensors that are
optimized, then all gradients, then the state that one step passes to the next. 16-bit types are computed in float32.
"""

__all__ = ["adagrad", "adam", "momentum"]

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import one_of
from jaxops.dtypes import accumulation_type, floating, integral
from jaxops.errors import SignatureError, amount, shape_text
from jaxops.shapes.arithmetic import must_agree, must_fit
from jaxops.static import ArrayLike, Sizes, array, jit_if_concrete

Mode = Literal["standard", "nesterov"]


def adagrad(
    r: Any,
    t: Any,
    inputs: Sequence[ArrayLike],
    *,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[jax.Array, ...]:
    """One step of Adagrad: x - r / (1 + t · decay_factor) · g' / (√h' + epsilon).

    r: one float. t: one integer. inputs: n tensors x, n gradients g, n sums h of squared gradients; floats. Each g and
    h has the shape of its x. g' = g + norm_coefficient · x, h' = h + g'².
    Returns n new tensors and n new sums h', in the dtypes of x and h.
    Raises SignatureError for a number of tensors that is not 3n, ShapeError, DTypeError.
    Source: ai.onnx.preview.training Adagrad, version 1.

    >>> [y.tolist() for y in adagrad(1.0, 0, [jnp.ones(1), jnp.ones(1), jnp.zeros(1)], epsilon=0.0)]
    [[0.0], [1.0]]
    """
    kinds = ("tensor", "gradient", "squared gradient")
    return _step(r, t, inputs, kinds, _adagrad, (decay_factor, epsilon, norm_coefficient))


def adam(
    r: Any,
    t: Any,
    inputs: Sequence[ArrayLike],
    *,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[jax.Array, ...]:
    """One step of Adam: (1 - norm_coefficient_post) · (x - r' · v' / (√h' + epsilon)).

    r: one float. t: one integer. inputs: n tensors x, n gradients g, n averages v of gradients, n averages h of squared
    gradients; floats. Each g, v and h has the shape of its x. g' = g + norm_coefficient · x, v' = alpha · v +
    (1 - alpha) · g', h' = beta · h + (1 - beta) · g'², r' = r · √(1 - betaᵗ) / (1 - alphaᵗ) if t > 0, else r.
    Returns n new tensors, n averages v' and n averages h', in the dtypes of x, v and h.
    Raises SignatureError for a number of tensors that is not 4n, ShapeError, DTypeError.
    Source: ai.onnx.preview.training Adam, version 1.

    >>> x, g, zero = jnp.ones(1), jnp.full(1, 4.0), jnp.zeros(1)
    >>> adam(0.5, 1, [x, g, zero, zero])[0].round(3).tolist()
    [0.5]
    """
    kinds = ("tensor", "gradient", "average gradient", "average squared gradient")
    coefficients = alpha, beta, epsilon, norm_coefficient, norm_coefficient_post
    return _step(r, t, inputs, kinds, _adam, coefficients)


def momentum(
    r: Any, t: Any, inputs: Sequence[ArrayLike], *, alpha: float, beta: float, mode: Mode, norm_coefficient: float
) -> tuple[jax.Array, ...]:
    """One step of gradient descent with momentum: x - r · v', or in the mode 'nesterov' x - r · (g' + alpha · v').

    r: one float. t: one integer. inputs: n tensors x, n gradients g, n momenta v; floats. Each g and v has the shape of
    its x. g' = g + norm_coefficient · x, v' = alpha · v + beta · g'; beta counts as 1 while t is 0.
    Returns n new tensors and n new momenta v', in the dtypes of x and v.
    Raises SignatureError for a number of tensors that is not 3n, ArgumentError for another mode, ShapeError,
    DTypeError.
    Source: ai.onnx.preview.training Momentum, version 1.

    >>> given = [jnp.ones(1), jnp.full(1, 2.0), jnp.zeros(1)]
    >>> [y.tolist() for y in momentum(0.25, 0, given, alpha=0.9, beta=1.0, mode="standard", norm_coefficient=0.0)]
    [[0.5], [2.0]]
    """
    how = one_of("mode", mode, Mode)
    rule = _nesterov if how == "nesterov" else _standard
    return _step(r, t, inputs, ("tensor", "gradient", "momentum"), rule, (alpha, beta, norm_coefficient))


def _tensor_count(kinds: Sequence[str], tensors: Sequence[Sizes]) -> int:
    """The number of tensors that are optimized. Raises unless there are as many of each kind, of the same sizes."""
    count, remainder = divmod(len(tensors), len(kinds))
    if remainder or not count:
        raise SignatureError(
            f"got {amount(len(tensors), 'tensor')}; it takes the same number of each kind: {', '.join(kinds)}"
        )
    for i in range(count):
        for kind, sizes in zip(kinds, tensors[i::count], strict=True):
            if sizes != tensors[i]:
                must_agree(
                    f"the {kind} of tensor {i} has the shape {shape_text(sizes)}, but the tensor has "
                    f"{shape_text(tensors[i])}",
                    sizes,
                    tensors[i],
                )
    return count


def _step(
    r: Any,
    t: Any,
    inputs: Sequence[ArrayLike],
    kinds: tuple[str, ...],
    rule: Callable[..., tuple[Any, ...]],
    coefficients: tuple[float, ...],
) -> tuple[jax.Array, ...]:
    _tensor_count(kinds, [array(x).shape for x in inputs])
    (rate,) = floating(r=r)
    tensors = floating(**{f"inputs[{i}]": x for i, x in enumerate(inputs)})
    (count,) = integral(t=t)
    for name, value in (("r", rate), ("t", count)):
        must_fit(name, value.shape, (1,) * value.ndim, reason=", one number")
    return _updated((rate, count, *tensors), rule, len(kinds), coefficients)


@jit_if_concrete
def _updated(
    operands: tuple[Any, ...], rule: Callable[..., tuple[Any, ...]], kinds: int, coefficients: tuple[float, ...]
) -> tuple[Any, ...]:
    rate, count, *tensors = operands
    n = len(tensors) // kinds
    groups = []
    for i in range(n):
        x, g, *state = tensors[i::n]
        work = accumulation_type(*(v.dtype for v in (x, g, *state)))
        wide = (lax.convert_element_type(v, work) for v in (rate.reshape(()), count.reshape(()), x, g, *state))
        after = rule(*wide, *coefficients)
        groups.append([lax.convert_element_type(v, old.dtype) for v, old in zip(after, (x, *state), strict=True)])
    return tuple(group[kind] for kind in range(kinds - 1) for group in groups)


def _adagrad(r: Any, t: Any, x: Any, g: Any, h: Any, decay: float, epsilon: float, norm: float) -> tuple[Any, ...]:
    g = norm * x + g
    h = h + g * g
    return x - r / (1 + t * decay) * g / (jnp.sqrt(h) + epsilon), h


def _adam(
    r: Any, t: Any, x: Any, g: Any, v: Any, h: Any, alpha: float, beta: float, epsilon: float, norm: float, post: float
) -> tuple[Any, ...]:
    g = norm * x + g
    v = alpha * v + (1 - alpha) * g
    h = beta * h + (1 - beta) * g * g
    past = jnp.maximum(t, 1)  # with t = 0, 0 / 0 would enter the gradient
    r = jnp.where(t > 0, r * jnp.sqrt(_decayed(beta, past)) / _decayed(alpha, past), r)
    return (1 - post) * (x - r * v / (jnp.sqrt(h) + epsilon)), v, h


def _decayed(factor: float, count: Any) -> Any:
    """1 - factor ** count, with all digits of a float32 also where the power is close to 1."""
    return -jnp.expm1(count * math.log(factor)) if factor > 0 else 1 - jnp.power(factor, count)


def _standard(r: Any, t: Any, x: Any, g: Any, v: Any, alpha: float, beta: float, norm: float) -> tuple[Any, ...]:
    _, v = _momenta(t, x, g, v, alpha, beta, norm)
    return x - r * v, v


def _nesterov(r: Any, t: Any, x: Any, g: Any, v: Any, alpha: float, beta: float, norm: float) -> tuple[Any, ...]:
    g, v = _momenta(t, x, g, v, alpha, beta, norm)
    return x - r * (g + alpha * v), v


def _momenta(t: Any, x: Any, g: Any, v: Any, alpha: float, beta: float, norm: float) -> tuple[Any, Any]:
    g = norm * x + g
    return g, alpha * v + jnp.where(t > 0, jnp.asarray(beta, v.dtype), jnp.ones_like(t)) * g
