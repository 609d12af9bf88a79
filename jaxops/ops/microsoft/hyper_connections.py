"""Hyper-connections: several residual streams, mixed before a layer into its input, and after it with its output.

Everything is computed in float32, or in float64 if an operand is.
"""

__all__ = ["hyper_connection_post_mix", "hyper_connection_pre_mix"]

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer
from jaxops.dtypes import accumulation_type, floating, floats_of_one_type
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.kernels.matmul.dot import dot
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.shapes.arithmetic import all_agree, divided, must_fit
from jaxops.static import ArrayLike, Dim, Sizes, jit_if_concrete


class _Streams(NamedTuple):
    """The sizes of streams with an axis of their own, (*lead, count, width)."""

    lead: Sizes
    count: Dim
    width: Dim

    @property
    def grouped(self) -> Sizes:
        return (*self.lead, self.count, self.width)


def _streams(sizes: Sizes, branches: int) -> _Streams:
    """Returns the streams of an operand. branches: `num_branches`, which is 0 if the streams have their own axis."""
    if branches < 0:
        raise ArgumentError(f"`num_branches` is {branches}; it must be positive, or 0 for streams with their own axis")
    if branches:
        if not sizes:
            raise ShapeError("`streams` of () must be (…, C · H)")
        problem = f"the last axis of `streams` {shape_text(sizes)} does not divide into {branches} branches"
        return _Streams(sizes[:-1], branches, divided(problem, sizes[-1], branches))
    if len(sizes) < 2:
        raise ShapeError(f"`streams` of {shape_text(sizes)} must be (…, C, H), or flat with `num_branches`")
    return _Streams(sizes[:-2], sizes[-2], sizes[-1])


def _gate_sizes(operand: str, sizes: Sizes, of: _Streams, *, flat: bool) -> Sizes:
    """Returns the sizes to reshape gates to, (*lead, C, 1) or (*lead, C, H). flat: they may be (*lead, C · H)."""
    single, full = (*of.lead, of.count, 1), of.grouped
    allowed = [(*of.lead, of.count), single, full]
    results = [single, single, full]
    if flat:
        allowed.append((*of.lead, of.count * of.width))
        results.append(full)
    for option, result in zip(allowed, results, strict=True):
        if sizes == option:
            return result
    must_fit(operand, sizes, *allowed)
    return next(r for a, r in zip(allowed, results, strict=True) if len(a) == len(sizes) and all_agree("", sizes, a))


def hyper_connection_pre_mix(
    streams: ArrayLike, pre_mix: ArrayLike, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> jax.Array:
    """Returns reduction_scale times the sum of C streams, each multiplied by its gates.

    streams: (…, C, H), floats, or with num_branches C > 0 (…, C · H). pre_mix: floats of any type, (…, C), (…, C, 1) or
    (…, C, H); for flat streams also (…, C · H). Returns (…, H), in the dtype of streams.
    Raises ShapeError when the shapes do not fit, ArgumentError, DTypeError.
    Source: com.microsoft HyperConnectionPreMix, opset 1.

    >>> hyper_connection_pre_mix(jnp.array([[1.0, 2.0], [10.0, 20.0]]), jnp.array([1.0, 0.5])).tolist()
    [6.0, 12.0]
    """
    operands = floating(streams=streams, pre_mix=pre_mix)
    return _pre_mix(operands, integer("num_branches", num_branches), float(reduction_scale))


@jit_if_concrete
def _pre_mix(operands: tuple[Any, Any], branches: int, scale: float) -> jax.Array:
    x, gates = operands
    sizes = _streams(x.shape, branches)
    shape = _gate_sizes("pre_mix", gates.shape, sizes, flat=branches > 0)
    work = accumulation_type(x.dtype, gates.dtype)
    by_stream = broadcast_to(gates.astype(work).reshape(shape), sizes.grouped)
    y = jnp.sum(x.astype(work).reshape(sizes.grouped) * by_stream, -2)
    return (y * np.asarray(scale, work)).astype(x.dtype)


def hyper_connection_post_mix(
    streams: ArrayLike,
    block_output: ArrayLike,
    post_mix: ArrayLike,
    stream_mix: ArrayLike | None = None,
    *,
    num_branches: int = 0,
) -> jax.Array:
    """Mixes C streams with each other, and adds the output of a layer times the gates of each stream.

    streams: (…, C, H), floats, or with num_branches C > 0 (…, C · H). block_output: (…, H), of the same dtype.
    post_mix: floats of any type, (…, C), (…, C, 1) or (…, C, H). stream_mix: (…, C, C), floats of the type of post_mix:
    stream k becomes the sum over c of stream c times stream_mix[…, c, k]; None leaves the streams as they are.
    Returns an array like streams.
    Raises ShapeError when the shapes do not fit, ArgumentError, DTypeError.
    Source: com.microsoft HyperConnectionPostMix, opset 1.

    >>> hyper_connection_post_mix(jnp.array([[1.0], [2.0]]), jnp.array([10.0]), jnp.array([1.0, 0.5])).tolist()
    [[11.0], [7.0]]
    """
    operands = floats_of_one_type(streams=streams, block_output=block_output)
    mixes = floats_of_one_type(post_mix=post_mix, stream_mix=stream_mix)
    return _post_mix((*operands, *mixes), integer("num_branches", num_branches))


@jit_if_concrete
def _post_mix(operands: tuple[Any, ...], branches: int) -> jax.Array:
    x, output, gates, mix = operands
    sizes = _streams(x.shape, branches)
    must_fit("block_output", output.shape, (*sizes.lead, sizes.width))
    must_fit("stream_mix", None if mix is None else mix.shape, (*sizes.lead, sizes.count, sizes.count))
    shape = _gate_sizes("post_mix", gates.shape, sizes, flat=False)
    work = accumulation_type(x.dtype, gates.dtype)
    y = x.astype(work).reshape(sizes.grouped)
    if mix is not None:
        lead = tuple(range(len(sizes.lead)))
        over = (len(lead),)
        y = dot(mix.astype(work), y, ((over, over), (lead, lead)), work)
    by_stream = broadcast_to(gates.astype(work).reshape(shape), sizes.grouped)
    y = y + by_stream * broadcast_to(output.astype(work)[..., None, :], sizes.grouped)
    return y.reshape(x.shape).astype(x.dtype)
