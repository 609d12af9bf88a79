"""Random nodes of attention, of windows and of quantization by blocks; see `random_nodes`."""

from typing import Any

import numpy as np
from random_nodes import Made, data, maker, one, shape, some


@maker("Attention", (np.float32, np.float32, np.float16))
def attention(rng: Any, dtype: Any) -> Made:
    batch, heads, group, steps, size, value = (int(v) for v in rng.integers(1, 4, 6))
    keys, past = int(rng.integers(1, 6)), int(rng.integers(0, 3)) if rng.uniform() < 0.4 else 0
    q = data(rng, dtype, (batch, heads * group, steps, size))
    k, v = data(rng, dtype, (batch, heads, keys, size)), data(rng, dtype, (batch, heads, keys, value))
    how = some(rng, scale=0.4, softcap=1.5, is_causal=1, qk_matmul_output_mode=int(rng.integers(0, 4)))
    mask = None
    if rng.uniform() < 0.6:
        sizes = one(rng, (steps, keys + past), (batch, 1, steps, keys + past), (1, heads * group, steps, keys + past))
        mask = one(rng, data(rng, np.bool_, sizes), data(rng, dtype, sizes))
        if mask.dtype == bool:
            mask[..., 0] = True  # engines differ where a row attends to nothing
    before = [data(rng, dtype, (batch, heads, past, n)) for n in (size, value)] if past else []
    if rng.uniform() < 0.4:
        q, k, v = (x.swapaxes(1, 2).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        how |= {"q_num_heads": heads * group, "kv_num_heads": heads}
    # The reference caps the scores that it gives as the product; onnxruntime 1.31 shifts no causal mask.
    scores = 0 if "softcap" in how and "is_causal" in how else one(rng, 0, 1)
    return [q, k, v, mask, *before], how, 3 + scores if past else 1


@maker("RotaryEmbedding", (np.float32, np.float16))
def rotary(rng: Any, dtype: Any) -> Made:
    batch, heads, steps, half = (int(v) for v in rng.integers(1, 5, 4))
    turned = int(rng.integers(1, half + 1)) if rng.uniform() < 0.4 else half
    how = some(rng, interleaved=one(rng, 0, 1)) | ({"rotary_embedding_dim": 2 * turned} if turned < half else {})
    x = data(rng, dtype, (batch, heads, steps, 2 * half))
    if rng.uniform() < 0.5 or turned < half:
        x, how = x.swapaxes(1, 2).reshape(batch, steps, -1), how | {"num_heads": heads}
    if rng.uniform() < 0.5:
        return [x, *data(rng, dtype, (2, batch, steps, turned))], how
    return [x, *data(rng, dtype, (2, 9, turned)), rng.integers(0, 9, (batch, steps))], how


@maker("HannWindow HammingWindow BlackmanWindow", (np.int32, np.int64))
def window(rng: Any, dtype: Any) -> Made:
    sizes = np.array(rng.integers(2, 30), dtype)
    return [sizes], some(rng, periodic=one(rng, 0, 1), output_datatype=one(rng, 1, 11))


@maker("QuantizeLinear", (np.float32,))
@maker("DequantizeLinear", (np.uint8, np.int8, np.uint16, np.int16, np.int32))
def linear_quantization(rng: Any, dtype: Any) -> Made:
    sizes = shape(rng, 2, empty=False)
    at, block = int(rng.integers(0, len(sizes))), 0
    layout = one(rng, (), (1,), (sizes[at],), "blocks")
    if layout == "blocks":
        block = int(rng.integers(1, sizes[at] + 1))
        layout = tuple(-(-n // block) if i == at else n for i, n in enumerate(sizes))
    scale = rng.uniform(0.1, 1, layout).astype(np.float32)
    kind = one(rng, np.uint8, np.int8, np.uint16, np.int16) if dtype == np.float32 else dtype
    zero = None if rng.uniform() < 0.3 else data(rng, kind, layout) * (kind != np.int32)
    how = {"axis": at} | ({"block_size": block} if block else {})
    return [data(rng, dtype, sizes) * (9 if dtype == np.float32 else 1), scale, zero], how
