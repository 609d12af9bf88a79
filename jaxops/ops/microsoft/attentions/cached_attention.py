"""Attention with caches, and masks that add a number to the scores, for the operators of com.microsoft.

Sizes: B samples, N heads of size H (Hv in value), S queries, L new keys, P keys of the past, M rows of a buffer,
T keys that a query may use.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import accumulation_type, as_traced
from jaxops.ops.common.scaled_dot_product import (
    AttentionResult,
    Stage,
    inverse_root,
    key_mask,
    scaled_dot_product_attention,
)
from jaxops.ops.microsoft.attentions.row_caches import only_first
from jaxops.static import Dim, Tracer, is_symbolic


@dataclass(frozen=True)
class Options:
    """The static options of attention.

    masked: the number that a mask of 0 adds to a score. causal: True if no query sees a later key. shared: True if the
    past is a buffer that the new keys are written into. stage: which scores to return.
    """

    masked: float = -10000.0
    causal: bool = False
    shared: bool = False
    stage: Stage | None = None


def scale_of(scale: float | None, size: Dim) -> Any:
    """Returns the attribute `scale`, or 1 / sqrt(size) for None and 0; the latter is traced for a symbolic size."""
    return inverse_root(size) if not scale and is_symbolic(size) else float(scale or 1.0 / np.sqrt(size))


def known_length(value: Any) -> Any:
    """Returns the length of a past: a Python integer if it is static, else a traced int32 scalar."""
    if value is None or isinstance(value, Tracer) or is_symbolic(value):
        return None if value is None else as_traced(value).reshape(()).astype(np.int32)
    return int(np.asarray(value).reshape(()))


def cached(
    q: Any,
    k: Any,
    v: Any,
    past: tuple[Any, Any] | None,
    before: Any,
    beams: Any,
    mask: Any,
    bias: Any,
    scale: float,
    options: Options,
) -> tuple[AttentionResult, Any, Any]:
    """Computes attention of q (B, N, S, H) to the past, followed by k (B, N, L, H) and v (B, N, L, Hv).

    past: keys and values (B, N, P, …), or buffers (B, N, M, …) whose first `before` rows are in use. beams: integers
    (B, M), the sample that each row of the buffer comes from. mask: one of the kinds of `mask_bias`. bias: floats that
    broadcast from (1 or B, 1 or N, S, T). scale: of the scores.
    Returns (the result of `scaled_dot_product_attention`, all keys, all values). The output is NaN if a traced
    `before` leaves no room for the new ones.
    """
    length = q.shape[2]
    visible, fits = None, None
    if past is None:
        offset, keys, values = 0, k, v
        present_k, present_v = k, v
    elif not options.shared:
        offset = past[0].shape[2]
        present_k, present_v = (jnp.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True))
        keys, values = present_k, present_v
    else:
        offset = before
        start = jnp.asarray(before, np.int32)
        zero = jnp.zeros((), np.int32)
        present_k, present_v = (
            lax.dynamic_update_slice(old, new, (zero, zero, start, zero)) for old, new in zip(past, (k, v), strict=True)
        )
        keys, values = present_k, present_v
        if isinstance(before, int):
            keys, values = (x[:, :, : before + k.shape[2]] for x in (keys, values))
        else:
            count = start + jnp.asarray(k.shape[2], np.int32)
            visible = lax.broadcasted_iota(np.int32, (1, 1, 1, keys.shape[2]), 3) < count
            values = only_first(values, count)  # the other rows may hold anything
            fits = (start >= 0) & (count <= jnp.asarray(keys.shape[2], np.int32))
        if beams is not None:
            own_beam = lax.broadcasted_iota(beams.dtype, beams.shape, 0)
            old = lax.broadcasted_iota(np.int32, beams.shape, 1) < start  # new rows come from the beam itself
            rows = jnp.where(old, beams, own_beam)[:, None, : keys.shape[2], None]
            keys, values = (jnp.take_along_axis(x, rows, 0) for x in (keys, values))
    added = mask_bias(mask, q.shape[0], length, keys.shape[2], offset, options.masked)
    if bias is not None:
        bias = of_width(bias, keys.shape[2]).astype(accumulation_type(bias.dtype))
        added = bias if added is None else added + bias
    if options.causal:
        causal = key_mask(length, keys.shape[2], offset=offset, right=0)
        if k.shape[2] != length:
            # The text describes only self-attention. As in onnxruntime, the last query sees every key.
            causal |= lax.broadcasted_iota(np.int32, (length, 1), 0) == length - 1
        visible = causal if visible is None else visible & causal[None, None]
    result = scaled_dot_product_attention(q, keys, values, scale=scale, bias=added, mask=visible, stage=options.stage)
    if fits is not None:
        output = jnp.where(fits, result.output, jnp.asarray(np.nan, result.output.dtype))
        result = result._replace(output=output)
    return result, present_k, present_v


def mask_bias(mask: Any, batch: Any, queries: Any, keys: Any, offset: Any, masked: float) -> Any:
    """Returns the floats that a mask adds to the scores, 0 or `masked`, which broadcast to (B, N, S, T).

    mask: integers. (B,) or (3B + 2,): the first B are the numbers of keys. (2B,): the ends and then the starts of the
    keys. (B, T), (B, S, T): 1 for a key to use, 0 for a masked one. (B, 1, M, M): the same for each pair of a query and
    a key, the first query at `offset`. (B, 1), (1, 1): no mask, as None.
    """
    if mask is None:
        return None
    if mask.ndim == 1:
        positions = lax.broadcasted_iota(mask.dtype, (1, keys), 1)
        used = positions < mask[:batch, None]
        if mask.shape[0] == 2 * batch:
            used &= positions >= mask[batch:, None]
        used = used[:, None, None]
    elif mask.ndim == 2:
        if mask.shape[1] != keys and isinstance(mask.shape[1], int) and mask.shape[1] == 1:
            return None
        used = of_width(mask[:, None, None], keys) > 0
    elif mask.ndim == 3:
        used = of_width(mask[:, None], keys) > 0
    else:
        used = _rows(mask, offset, queries)[..., :keys] > 0
    return jnp.where(used, np.float32(0), np.float32(masked))


def _rows(mask: Any, offset: Any, count: Any) -> Any:
    if isinstance(offset, int):
        return mask[:, :, offset : offset + count]
    return lax.dynamic_slice_in_dim(mask, jnp.asarray(offset, np.int32), count, 2)


def of_width(x: Any, columns: Any) -> Any:
    """Returns x, cropped or padded with zeros to a number of columns; no query may use a padded key."""
    width = x.shape[-1]
    if width == columns:
        return x
    if isinstance(width, int) and isinstance(columns, int) and width > columns:
        return x[..., :columns]
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, columns - width)])
