"""Layers whose weights are quantized."""

__all__ = ["dynamic_quantize_lstm", "qembed_layer_normalization"]

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import as_traced, integral
from jaxops.errors import DTypeError, ShapeError, SignatureError, shape_text
from jaxops.kernels.matmul.int8 import matrix_product
from jaxops.kernels.matmul.int8_in_loops import turned, turned_product
from jaxops.ops.common.quantized_numbers import dequantized, scale, with_parameters, with_zero_point
from jaxops.ops.quantization.linear_quantization import dynamic_quantize_linear
from jaxops.ops.recurrent.gate_activations import resolve
from jaxops.ops.recurrent.layers import lstm_step
from jaxops.ops.recurrent.recurrence import Cell, Direction, Step, Weights, directions, layer
from jaxops.shapes.arithmetic import must_fit, sizes_fit
from jaxops.signature import Bias, Traits, Weight, operator
from jaxops.static import ArrayLike, Sizes, jit_if_concrete

TRAITS = Traits(precision="exact")


@operator(kind="recurrent")
def dynamic_quantize_lstm(
    x: ArrayLike,
    w: Weight[ArrayLike],
    r: Weight[ArrayLike],
    b: Bias[ArrayLike] | None,
    sequence_lens: ArrayLike | None,
    initial_h: ArrayLike | None,
    initial_c: ArrayLike | None,
    p: Weight[ArrayLike] | None,
    w_scale: ArrayLike,
    w_zero_point: ArrayLike,
    r_scale: ArrayLike,
    r_zero_point: ArrayLike,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: Direction = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Runs `jaxops.lstm` with quantized weights; x and the hidden state of each step are quantized first, too.

    x: (steps, batch, input), float32. w: (D, input, 4 · hidden). r: (D, hidden, 4 · hidden). int8 or uint8; their
    last two axes are swapped compared to `lstm`. w_scale, w_zero_point, r_scale, r_zero_point: (D,) or (D, 4 · hidden),
    float32 and the type of the weights. `dynamic_quantize_linear` quantizes x, and h of all sequences of a step
    together; in onnxruntime each thread quantizes its part of the batch. The products of integers are exact.
    The rest, the results (Y, Y_h, Y_c) and the exceptions are as in `lstm`.
    Source: com.microsoft DynamicQuantizeLSTM, opset 1, as onnxruntime defines it.

    >>> w, r, one, zero = jnp.zeros((1, 2, 12), jnp.int8), jnp.zeros((1, 3, 12), jnp.int8), jnp.ones(1), jnp.int8([0])
    >>> x, c = jnp.ones((2, 1, 2)), jnp.array([[[4.0, 8, 0]]])
    >>> dynamic_quantize_lstm(x, w, r, None, None, None, c, None, one, zero, one, zero)[2].tolist()
    [[[1.0, 2.0, 0.0]]]
    """
    data = as_traced(x)
    if data.dtype != jnp.float32:
        raise DTypeError(f"`x` is {data.dtype.name}; it must be float32, use jaxops.cast")
    both = directions(direction)
    names = ("Sigmoid", "Tanh", "Tanh") * both if activations is None else activations
    operands: dict[str, Any] = {
        "x": data,
        "w": _matrices("w", w, w_scale, w_zero_point),
        "r": _matrices("r", r, r_scale, r_zero_point),
        "b": b,
        "sequence_lens": sequence_lens,
        "initial_h": initial_h,
        "initial_c": initial_c,
        "p": p,
    }
    functions = resolve(names, 3 * both, activation_alpha, activation_beta)
    attributes: dict[str, Any] = {"clip": clip, "direction": direction, "hidden_size": hidden_size, "layout": 0}
    y, y_h, y_c = layer(_LSTM, flag("input_forget", input_forget), functions, operands, **attributes)
    return y, y_h, y_c


class _Matrices(NamedTuple):
    """Quantized weights of all directions, (D, K, 4 · hidden); scale and zero point are (D, 1, 1 or 4 · hidden)."""

    numbers: jax.Array
    scale: jax.Array
    zero: jax.Array

    @property
    def shape(self) -> Sizes:
        """Of the weights in the layout of `lstm`."""
        directions, k, columns = self.numbers.shape
        return directions, columns, k


def _matrices(operand: str, weights: Any, by: Any, zero: Any) -> _Matrices:
    data, origin = with_zero_point(operand, weights, zero)
    factors = scale(f"{operand}_scale", by), as_traced(origin)
    sizes = (
        _gate_scale_sizes(f"{operand}_{kind}", data.shape, v.shape)
        for kind, v in zip(("scale", "zero_point"), factors, strict=True)
    )
    return _Matrices(data, *(jnp.reshape(v, shape) for v, shape in zip(factors, sizes, strict=True)))


def _gate_scale_sizes(operand: str, weights: Sizes, sizes: Sizes) -> Sizes:
    """Returns the sizes in which one number per direction, or per column, broadcasts to weights (D, …, 4 · hidden)."""
    if len(weights) != 3:
        raise ShapeError(f"weights of {shape_text(weights)} must have three axes, the last one for the gates")
    reason = f", as the weights are {shape_text(weights)}"
    must_fit(operand, sizes, weights[:1], (weights[0], weights[2]), reason=reason)
    return (weights[0], 1, 1 if len(sizes) == 1 else weights[2])


def _inputs(x: jax.Array, w: _Matrices, _: Any) -> jax.Array:
    """Returns the product of x, which is quantized first, and W of one direction."""
    numbers, by, zero = dynamic_quantize_linear(x)
    sums = matrix_product(numbers, w.numbers, zero, w.zero)
    return sums.astype(jnp.float32) * jnp.broadcast_to(by * w.scale, sums.shape)


def _lstm_step(weights: Weights, functions: tuple[Callable[[Any], Any], ...], input_forget: bool) -> Step:
    matrix, factor = weights.r

    def times(h: jax.Array, _: Any) -> jax.Array:
        numbers, by, zero = dynamic_quantize_linear(h)
        sums = turned_product(numbers, zero, matrix)
        return sums.astype(jnp.float32) * jnp.broadcast_to(by * factor, sums.shape)

    return lstm_step(weights, functions, input_forget, times)


_LSTM = Cell(_lstm_step, gates=4, states=2, inputs=_inputs, recurrence=lambda r: (turned(r.numbers, r.zero), r.scale))


def qembed_layer_normalization(
    input_ids: ArrayLike,
    segment_ids: ArrayLike | None,
    word_embedding_quant: ArrayLike,
    position_embedding_quant: ArrayLike,
    segment_embedding: ArrayLike | None,
    gamma_quant: ArrayLike,
    beta_quant: ArrayLike,
    mask: ArrayLike | None,
    word_embedding_scale: ArrayLike,
    position_embedding_scale: ArrayLike,
    segment_embedding_scale: ArrayLike | None,
    gamma_scale: ArrayLike,
    beta_scale: ArrayLike,
    word_embedding_zero_point: ArrayLike,
    position_embedding_zero_point: ArrayLike,
    segment_embedding_zero_point: ArrayLike | None,
    gamma_zero_point: ArrayLike,
    beta_zero_point: ArrayLike,
    *,
    epsilon: float = 1e-12,
) -> tuple[jax.Array, jax.Array]:
    """Adds word, position and segment embeddings, and normalizes over the last axis; all tables are quantized.

    input_ids, segment_ids: (batch, steps), integers. The embeddings: (count, hidden). gamma, beta: (hidden,). int8 or
    uint8, each with a float32 scalar as scale and a scalar zero point. segment_ids, segment_embedding, its scale and
    its zero point: all or none. mask: (batch, steps), integers, or None. An id out of range gives NaN.
    Returns: (batch, steps, hidden), float32, and (batch,), int32: how many 1s the mask has, or 0.
    Raises ShapeError when the shapes do not fit, DTypeError for other types, SignatureError.
    Source: com.microsoft QEmbedLayerNormalization, opset 1, as onnxruntime defines it.

    >>> table, one, ids = jnp.int8([[1, 3], [5, 7]]), jnp.int8([1, 1]), jnp.array([[1, 0]])
    >>> scales, zeros = (1.0, 1.0, None, 1.0, 1.0), (0, 0, None, 0, 0)
    >>> y, _ = qembed_layer_normalization(ids, None, table, table, None, one, one, None, *scales, *zeros)
    >>> y.tolist()
    [[[0.0, 2.0], [0.0, 2.0]]]
    """
    parts = [segment_ids, segment_embedding, segment_embedding_scale, segment_embedding_zero_point]
    if any(v is None for v in parts) and any(v is not None for v in parts):
        raise SignatureError("give `segment_ids`, the segment embedding, its scale and zero point, or none of them")
    tables: dict[str, tuple[Any, ...]] = {
        "word_embedding": (word_embedding_quant, word_embedding_scale, word_embedding_zero_point),
        "position_embedding": (position_embedding_quant, position_embedding_scale, position_embedding_zero_point),
        "gamma": (gamma_quant, gamma_scale, gamma_zero_point),
        "beta": (beta_quant, beta_scale, beta_zero_point),
    }
    if segment_ids is not None:
        tables["segment_embedding"] = (segment_embedding, segment_embedding_scale, segment_embedding_zero_point)
    arrays = {name: with_parameters(name, *operands[:3]) for name, operands in tables.items()}
    ids = {n: v for n, v in (("input_ids", input_ids), ("segment_ids", segment_ids), ("mask", mask)) if v is not None}
    integers = dict(zip(ids, integral(**ids), strict=True))
    names = (*arrays, *integers)
    flat = (*(v for three in arrays.values() for v in three), *integers.values())
    return _embedded(flat, names, float(epsilon))


def _check_embedding_tables(ids: Sizes, hidden: int, operands: dict[str, Sizes]) -> None:
    """Raises ShapeError unless ids are (batch, steps) and each table of embeddings has `hidden` columns."""
    must_fit("input_ids", ids, ("batch", "steps"))
    for operand, sizes in operands.items():
        id_sizes = ids if operand in ("segment_ids", "mask") else None
        expected = shape_text(id_sizes) if id_sizes else f"of {hidden} columns, as the word embedding is"
        problem = f"`{operand}` of {shape_text(sizes)} must be {expected}"
        if not sizes_fit(problem, sizes, *([id_sizes] if id_sizes else [(hidden,), (None, hidden)])):
            raise ShapeError(problem)


@jit_if_concrete
def _embedded(operands: tuple[Any, ...], names: tuple[str, ...], epsilon: float) -> tuple[jax.Array, jax.Array]:
    word, *_ = operands
    count = len(names) - sum(name in ("input_ids", "segment_ids", "mask") for name in names)
    tables = {name: operands[3 * i : 3 * i + 3] for i, name in enumerate(names[:count])}
    ids = dict(zip(names[count:], operands[3 * count :], strict=True))
    shapes = {name: value[0].shape for name, value in tables.items()} | {n: v.shape for n, v in ids.items()}
    tokens = ids["input_ids"]
    _check_embedding_tables(tokens.shape, word.shape[-1], {n: s for n, s in shapes.items() if n != "input_ids"})

    def rows(table: str, indices: jax.Array) -> jax.Array:
        """Returns the embeddings of ids; only these are dequantized."""
        x, by, zero = tables[table]
        valid = lax.expand_dims((indices >= 0) & (indices < x.shape[0]), (indices.ndim,))
        vectors = dequantized(jnp.take(x, jnp.clip(indices, 0, x.shape[0] - 1), 0), by, zero)
        return jnp.where(jnp.broadcast_to(valid, vectors.shape), vectors, jnp.nan)

    total = rows("word_embedding", tokens)
    positions = rows("position_embedding", lax.iota(jnp.int32, tokens.shape[1]))
    total = total + lax.broadcast_in_dim(positions, total.shape, (1, 2))
    if "segment_ids" in ids:
        total = total + rows("segment_embedding", ids["segment_ids"])
    centred = total - jnp.mean(total, -1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(centred * centred, -1, keepdims=True) + jnp.float32(epsilon))
    gamma, beta = (lax.broadcast_in_dim(dequantized(*tables[n]), total.shape, (2,)) for n in ("gamma", "beta"))
    ones = jnp.sum(ids["mask"] == 1, 1, jnp.int32) if "mask" in ids else jnp.zeros(tokens.shape[:1], jnp.int32)
    return centred / deviation * gamma + beta, ones
