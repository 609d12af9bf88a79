"""Random numbers of OpenVINO's own generators, which are the same to the bit for the same seeds, and random classes.

With both seeds 0 the numbers come from a key, as in `jaxops.random_uniform`. OpenVINO's runtime continues its sequence
of numbers from call to call; here equal arguments give equal numbers, those of its first call.
"""

__all__ = ["multinomial", "random_uniform"]

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from jaxops.attributes import check_not_negative, element_type, flag, integer, ints, one_of
from jaxops.dtypes import SUB_BYTE, as_traced, canonical, floating, is_float
from jaxops.errors import ArgumentError, DTypeError, ShapeError, shape_text
from jaxops.kernels.xla_workarounds import rounded
from jaxops.memory import bounded
from jaxops.ops.common.randomness import mersenne_twister, random_key
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.openvino.suppression import index_type
from jaxops.signature import ElementType, Static, Traits
from jaxops.static import ArrayLike, Dim, Sizes, array, is_static, is_symbolic, jit_if_concrete, tracing

TRAITS = Traits(precision="exact")
Alignment = Literal["tensorflow", "pytorch"]
# Philox: the factors of a round, and the increments of the words of the key per round.
_FACTORS, _STEPS, _ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
_WORD = 0xFFFFFFFF


def random_uniform(
    shape: Static,
    min_val: ArrayLike,
    max_val: ArrayLike,
    *,
    output_type: ElementType,
    global_seed: int = 0,
    op_seed: int = 0,
    alignment: Alignment = "tensorflow",
    rng: Any = None,
) -> jax.Array:
    """Draws numbers of a uniform distribution in [min_val, max_val).

    shape: static, 1-D, the shape of the result. min_val, max_val: one number each, of output_type, a floating-point
    type of 16 bits or more, int32 or int64. global_seed, op_seed: unless both are 0, they determine the
    numbers: those of Philox 4x32-10 with alignment 'tensorflow', those of the Mersenne Twister with 'pytorch', for
    which op_seed has no effect. While x64 is off, float64 is rounded to float32 and may equal max_val. rng: a key,
    needed if both seeds are 0.
    Raises ArgumentError for a missing key, a negative size, or a max_val that is not above min_val; ShapeError,
    DTypeError; StaticError for a traced shape. Source: OpenVINO RandomUniform-8.

    >>> random_uniform((3,), 50, 100, output_type=np.int32, global_seed=80, op_seed=100).tolist()
    [65, 70, 56]
    """
    sizes = ints("shape", shape)
    check_not_negative("shape", sizes)
    kind = element_type("output_type", output_type)
    if kind not in (np.int32, np.int64) and (not is_float(kind) or kind.itemsize < 2 or kind.name in SUB_BYTE):
        raise DTypeError(
            f"`output_type` is {kind.name}; it must be a floating-point type of 16 bits or more, int32 or int64"
        )
    low, high = (_bound(name, value, kind) for name, value in (("min_val", min_val), ("max_val", max_val)))
    if is_static(low) and is_static(high) and not low < high:
        raise ArgumentError(f"`max_val` is {high}; it must be above `min_val`, {low}")
    one_of("alignment", alignment, Alignment)
    bounded(sizes, canonical(kind).itemsize, computed=None if tracing() else True)
    seeds = _seeds(global_seed, op_seed)
    bounds = tuple(as_traced(value) for value in (low, high))
    is_wide = kind == np.int64 and not all(is_static(b) and b <= _WORD for b in (low, high))
    if seeds == (0, 0):
        return _of_key((*bounds, random_key(rng, None)), sizes, kind)
    return _of_seeds(bounds, sizes, kind, seeds, alignment == "pytorch", is_wide, is_static(low) and low == 0)


def multinomial(
    probs: ArrayLike,
    num_samples: Static,
    *,
    convert_type: ElementType,
    with_replacement: bool,
    log_probs: bool,
    global_seed: int = 0,
    op_seed: int = 0,
    rng: Any = None,
) -> jax.Array:
    """Draws classes at random: for each row the first class whose cumulative probability reaches a uniform number.

    probs: (batch, classes), floats: probabilities up to a factor, or their logarithms with log_probs. num_samples:
    static, how many to draw for each row. with_replacement: True if a class may be drawn again; otherwise its
    probability becomes 0. global_seed, op_seed, rng: the numbers are those of `random_uniform` in float64; OpenVINO's
    CPU plugin draws different ones. convert_type: of the result, int32 or int64.
    Returns (batch, num_samples), in [0, classes). Raises ShapeError; DTypeError; ArgumentError if there are more
    samples than classes without replacement, or neither seeds nor a key; StaticError for a traced num_samples.
    Source: OpenVINO Multinomial-13.

    >>> draw = {"convert_type": np.int32, "log_probs": False, "op_seed": 1}
    >>> multinomial(np.float32([[0, 1, 0]]), 3, with_replacement=True, **draw).tolist()
    [[1, 1, 1]]
    """
    (x,) = floating(probs=probs)
    count, kind = integer("num_samples", num_samples, least=0), index_type(convert_type, "convert_type")
    if x.ndim != 2 or (isinstance(x.shape[1], int) and x.shape[1] == 0):
        raise ShapeError(f"`probs` of {shape_text(x.shape)} must be (batch, classes), with at least one class")
    again, logarithms = flag("with_replacement", with_replacement), flag("log_probs", log_probs)
    if not again and isinstance(x.shape[1], int) and isinstance(count, int) and count > x.shape[1]:
        raise ArgumentError(
            f"`num_samples` is {count}, but `probs` of {shape_text(x.shape)} has {x.shape[1]} classes; without "
            "replacement there must be at least as many classes"
        )
    numbers = random_uniform(
        (x.shape[0], count),
        np.array(0.0),
        np.array(1.0),
        output_type=np.float64,
        global_seed=global_seed,
        op_seed=op_seed,
        rng=rng,
    )
    return _classes((as_traced(x), numbers), again, logarithms, kind)


def _bound(name: str, value: Any, kind: np.dtype) -> Any:
    x = array(value)
    if is_symbolic(x) or x.shape not in ((), (1,)):
        raise ShapeError(f"`{name}` must be one number, got {shape_text(x.shape)}")
    return x.reshape(()).astype(kind if is_static(x) else canonical(kind))


def _seeds(global_seed: int, op_seed: int) -> tuple[int, int]:
    """Returns the seeds as 64-bit numbers."""
    pairs = ("global_seed", global_seed), ("op_seed", op_seed)
    first, second = (integer(name, value) % 2**64 for name, value in pairs)
    return first, second


@jit_if_concrete
def _of_key(operands: tuple[Any, Any, Any], sizes: Sizes, kind: np.dtype) -> Any:
    low, high, key = operands
    work = canonical(kind)
    if not is_float(kind):
        return jax.random.randint(key, sizes, low, high, work)
    wide = canonical(np.promote_types(work, np.float32))
    low, high = low.astype(wide), high.astype(wide)
    return (jax.random.uniform(key, sizes, wide) * (high - low) + low).astype(work)


@jit_if_concrete
def _of_seeds(
    bounds: tuple[Any, Any],
    sizes: Sizes,
    kind: np.dtype,
    seeds: tuple[int, int],
    is_twister: bool,
    is_wide: bool,
    from_zero: bool,
) -> Any:
    """is_wide: True if int64 bounds may exceed 32 bits. from_zero: True if the lower bound is known to be 0."""
    low, high = bounds
    count = math.prod(sizes)
    each = 2 if kind.itemsize == 8 and (not is_twister or is_wide or is_float(kind)) else 1
    words = mersenne_twister(seeds[0], each * count) if is_twister else _philox(*seeds, -(-each * count // 4))
    words = words[: each * count].reshape(count, each)
    if is_float(kind):
        y = _scaled(_fractions(words, kind, is_twister), low, high, kind, is_twister, from_zero)
    else:
        y = _in_range(words, low, high, is_twister)
        if is_twister and is_wide and canonical(kind) == kind:
            single = mersenne_twister(seeds[0], count)[:count].reshape(count, 1)
            y = jnp.where(jnp.maximum(low, high) > _WORD, y, _in_range(single, low, high, is_twister))
    return assert_sizes(y.reshape(sizes), sizes, canonical(kind))


def _philox(key: int, counter: int, groups: Dim) -> Any:
    """Returns four words per group by Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3")."""
    group = lax.iota(np.uint32, groups)
    words = group, *(lax.full_like(group, n) for n in (0, counter & _WORD, counter >> 32))
    first, second = key & _WORD, key >> 32
    for _ in range(_ROUNDS):
        (high_0, low_0), (high_1, low_1) = (_product(words[2 * i], factor) for i, factor in enumerate(_FACTORS))
        words = high_1 ^ words[1] ^ np.uint32(first), low_1, high_0 ^ words[3] ^ np.uint32(second), low_0
        first, second = (first + _STEPS[0]) & _WORD, (second + _STEPS[1]) & _WORD
    return jnp.stack(words, axis=1).reshape(-1)


def _product(x: Any, factor: int) -> tuple[Any, Any]:
    """Returns the high and the low word of a product of words. It multiplies halves, since 64 bits need x64."""
    half, low = np.uint32(0xFFFF), np.uint32(factor & 0xFFFF)
    high = np.uint32(factor >> 16)
    middle = (x >> 16) * low + ((x & half) * low >> 16)
    other = (x & half) * high + (middle & half)
    return (x >> 16) * high + (middle >> 16) + (other >> 16), x * np.uint32(factor)


def _fractions(words: Any, kind: np.dtype, is_twister: bool) -> Any:
    """Makes floats in [0, 1) from the low bits of words: the bits of a mantissa, one more for the Mersenne Twister."""
    digits = ml_dtypes.finfo(kind).nmant + is_twister
    if words.shape[1] == 1:
        work = canonical(np.promote_types(canonical(kind), np.float32))
        return (words[:, 0] & np.uint32(2**digits - 1)).astype(work) * work.type(0.5**digits)
    work = canonical(kind)
    high = (words[:, 0] & np.uint32(2 ** (digits - 32) - 1)).astype(work)
    return (high * work.type(2.0**32) + words[:, 1].astype(work)) * work.type(0.5**digits)


def _scaled(x: Any, low: Any, high: Any, kind: np.dtype, is_twister: bool, from_zero: bool) -> Any:
    """Scales fractions to the bounds. TensorFlow's 16-bit numbers are rounded after each step, PyTorch's at the end."""
    bits = ml_dtypes.finfo(kind)
    is_narrow = kind.itemsize == 2

    def step(y: Any) -> Any:
        return lax.reduce_precision(y, bits.nexp, bits.nmant) if is_narrow else y

    low, high = low.astype(x.dtype), high.astype(x.dtype)
    y = x * step(high - low)
    if not from_zero:
        y = (y if is_twister else step(y)) + low if is_narrow else rounded(y) + low
    return y.astype(canonical(kind))


def _in_range(words: Any, low: Any, high: Any, is_twister: bool) -> Any:
    """Returns integers between the bounds: words, or pairs of words, modulo the difference."""
    unsigned = np.dtype(f"uint{8 * low.dtype.itemsize}")
    span = (high - low).astype(unsigned)
    if words.shape[1] == 1:
        return (words[:, 0].astype(unsigned) % span).astype(low.dtype) + low
    top, bottom = (words[:, 0], words[:, 1]) if is_twister else (words[:, 1], words[:, 0])
    if unsigned == np.uint64:
        rest = (top.astype(unsigned) << 32 | bottom.astype(unsigned)) % span
        return rest.astype(low.dtype) + low

    def digit(k: Any, rest: Any) -> Any:
        """Does one step of a long division; the bit that leaves the word belongs to the remainder, too."""
        doubled = rest << 1 | (bottom >> (np.uint32(31) - k.astype(np.uint32)) & 1)
        return jnp.where((rest >> 31 == 1) | (doubled >= span), doubled - span, doubled)

    return lax.fori_loop(0, 32, digit, top % span).astype(low.dtype) + low


@jit_if_concrete
def _classes(operands: tuple[Any, Any], again: bool, logarithms: bool, kind: np.dtype) -> Any:
    x, numbers = operands
    weights = x.astype(numbers.dtype)
    if logarithms:
        weights = jnp.exp(weights - weights.max(1, keepdims=True))
    if again:
        classes = jax.vmap(jnp.searchsorted)(_cumulative(weights), numbers)
        classes = jnp.minimum(classes, x.shape[1] - 1)
    else:

        def draw(weights: Any, numbers: Any) -> tuple[Any, Any]:
            reached = (_cumulative(weights) >= numbers[:, None]) & (weights > 0)
            chosen = jnp.argmax(reached, axis=1)
            return weights.at[jnp.arange(weights.shape[0]), chosen].set(0), chosen

        classes = lax.scan(draw, weights, numbers.T)[1].T
    return assert_sizes(classes.astype(kind), numbers.shape, kind)


def _cumulative(weights: Any) -> Any:
    total = jnp.cumsum(weights, axis=1)
    return total / total[:, -1:]
