"""Calls of the differentiable operators of com.microsoft, added to the table of `gradient_cases`."""

from typing import Any

import numpy as np
from gradient_cases import b, case, f, i, n, p, u


def add(names: str, *inputs: Any, **attributes: Any) -> None:
    """Adds a case for each of these operators of com.microsoft."""
    case(" ".join(f"com.microsoft.{name}" for name in names.split()), *inputs, **attributes)


def i32(*values: Any) -> np.ndarray:
    return i(*values).astype(np.int32)


# Elementwise.
add("Gelu QuickGelu FastGelu ScaledSiLU", f(2, 3))
add("SwiGLU", f(2, 4))
add("SwiGLU", f(2, 3), f(2, 3), limit=0.5, activation_beta=1.0)
add("BiasGelu FastGelu", f(2, 4), f(4))
add("BiasSplitGelu", f(1, 2, 6), f(6))
add("BiasAdd", f(1, 2, 4), f(4), f(1, 2, 4))
add("BiasDropout", f(2, 4), f(4), f(2, 4))
add("BiasSoftmax", f(2, 2, 3), f(2, 3), axis=1, is_inner_broadcast=1)
add("GatedAdd", f(3, 4), f(3, 4), f(3, 1))
add("Affine", f(1, 2, 3), alpha=2.0, beta=0.5)
add("Scale", f(2, 3), scale=0.5)
add("ParametricSoftplus ScaledTanh", f(2, 3), alpha=2.0, beta=0.5)
add("ImageScaler", f(1, 3, 2, 2), bias=(1.0, -2.0, 0.5), scale=0.5)
add("ComplexMul ComplexMulConj", f(2, 3, 2), f(3, 2))
add("LinearAttentionGate", f(1, 3, 4), f(4), f(4))

# Movement.
add("Crop", f(1, 1, 4, 5), border=(1, 0, 2, 1))
add("DynamicSlice", f(3, 4), i(1, 0), i(3, -1))
add("ExpandDims", f(2, 3), np.array(1, np.int32))
add("GatherND", f(3, 4), i32([2, 0], [2, 0], [1, 3]))
for how in ("constant", "reflect", "edge", "wrap"):
    add("Pad", f(3, 4), i(1, 0, 2, 1), mode=how)
add("Trilu", f(3, 4), n(1))
add("UnfoldTensor", f(2, 5), dim=-1, size=3, step=2)
add("TorchEmbedding", f(4, 3), i([1, 3], [1, 0]))
add("RemovePadding", f(2, 3, 2), i32(2, 3), outputs=4)
add("RestorePadding", f(4, 2), i32([0, 1, 3], [4, 2, 5]))
add("NGramRepeatBlock", i([1, 2, 3]), f(1, 4), ngram_size=2)

# Products.
add("FusedMatMul", f(2, 3, 2), f(2, 3, 4), transA=1, alpha=0.5)
add("TransposeMatMul", f(3, 2), f(4, 3), transA=1, transB=1)
add("FusedMatMulActivation", f(3, 4), f(4, 2), activation="Softmax", activation_axis=0)
add("FusedGemm", f(2, 3), f(3, 2), f(2), activation="Celu", activation_alpha=0.3, alpha=0.5)
add("GemmFastGelu", f(2, 3), f(3, 4), f(4))
add("SparseToDenseMatMul", f(3, 2), f(3, 4), transA=1, alpha=0.5)
add("Inverse", np.eye(3) * 3 + np.arange(9.0).reshape(3, 3) / 9)
add("CDist", f(3, 2), f(4, 2), metric="euclidean")
add("CDist", f(3, 2), f(4, 2))
add("Rfft", f(2, 4), signal_ndim=1)
add("Irfft", f(2, 3, 2), signal_ndim=1)

# Layers.
add("FusedConv", f(1, 2, 4, 4), f(2, 2, 2, 2), f(2), f(1, 2, 3, 3), activation="Sigmoid")
add("NhwcConv", f(1, 4, 4, 2), f(3, 2, 2, 2), f(3))
add("NhwcFusedConv", f(1, 4, 4, 2), f(3, 2, 2, 2), f(3), f(1, 3, 3, 3), activation="Tanh")
add("ConvTransposeWithDynamicPads", f(1, 2, 3, 3), f(2, 1, 2, 2), i(1, 0, 0, 1), f(1))
add("MaxpoolWithMask", f(1, 1, 5), i32([[1, 0, 1, 1, 1]]), kernel_shape=(2,))
add("CausalConvWithState", f(1, 2, 4), f(2, 1, 3), f(2), f(1, 2, 2), activation="silu", outputs=2)
add("VarlenCausalConvWithState", f(4, 2), f(2, 1, 3), i32(0, 1, 4), f(2), f(2, 2, 2), activation="silu", outputs=2)
add(
    "GatedDeltaNet",
    f(3, 1, 2),
    f(3, 1, 2),
    f(3, 2, 2),
    i32(0, 1, 3),
    f(3, 2),
    u(3, 2),
    f(2, 2, 2, 2),
    f(2),
    f(2),
    gate_activation="softplus",
    beta_activation="sigmoid",
    qk_l2_norm=1,
    outputs=2,
    narrow=True,
)
add(
    "AttnLSTM",
    u(2, 1, 2),
    u(1, 8, 5),
    u(1, 8, 2),
    u(1, 16),
    None,
    u(1, 1, 2),
    u(1, 1, 2),
    u(1, 6),
    u(1, 2, 2),
    u(1, 2, 2),
    u(1, 2),
    u(1, 3, 2),
    None,
    u(1, 4, 3),
    outputs=3,
)
add("WordConvEmbedding", i32([1, 2, 0], [3, 1, 2]), f(2, 1, 2, 3), f(2), f(4, 3))
add("GridSample", f(1, 1, 3, 4), f(1, 2, 2, 2), mode="bilinear", padding_mode="border")
add("CropAndResize", f(1, 2, 4, 5), np.array([[0.11, 0.12, 0.83, 0.94]]), i32(0), i32(2, 3))
add("LayerNormalization", f(2, 4), f(4), f(4), outputs=3)
add("SimplifiedLayerNormalization", f(2, 4), f(4), outputs=2)
add("SkipLayerNormalization", f(1, 2, 4), f(1, 2, 4), f(4), f(4), f(4), outputs=4)
add("SkipSimplifiedLayerNormalization", f(1, 2, 4), f(2, 4), f(4), f(4), outputs=4)
add("EmbedLayerNormalization", i32([1, 0]), i32([0, 1]), f(3, 4), f(2, 4), f(2, 4), f(4), f(4), outputs=3)
add("BranchwiseRMSNorm", f(1, 2, 4), epsilon=0.01)
add("HyperConnectionPreMix", f(1, 2, 3, 2), f(1, 2, 3), reduction_scale=0.5)
add("HyperConnectionPreMix", f(2, 6), f(2, 6), num_branches=3)
add("HyperConnectionPostMix", f(1, 2, 3, 2), f(1, 2, 2), f(1, 2, 3), f(1, 2, 3, 3))
add("MoEGroupRouter", f(3, 6), f(6), top_k=2, n_group=2)
add("EngramGate", f(1, 2, 2, 3), f(1, 2, 2, 3), f(1, 2, 3), f(2, 3), f(2, 3), f(2, 3), outputs=2)
add("GatedRMSNorm", f(1, 2, 8), f(4), f(1, 2, 8), epsilon=0.01)
add("GroupNorm", f(1, 2, 2, 4), f(4), f(4), groups=2, activation=1)
add("SkipGroupNorm", f(1, 2, 2, 4), f(4), f(4), f(1, 2, 2, 4), f(4), groups=2, activation=0, outputs=2)

# Attention.
add("Attention", f(1, 2, 4), f(4, 12), f(12), i32([1, 0]), num_heads=2, outputs=2)
add("Attention", f(1, 3, 4), f(4, 12), f(12), unidirectional=1, num_heads=2)
add("MultiHeadAttention", f(1, 2, 4), f(1, 3, 4), f(1, 3, 4), f(12), num_heads=2, outputs=3)
add("DecoderMaskedMultiHeadAttention", f(1, 1, 4), f(1, 3, 4), f(1, 3, 4), num_heads=2)
add(
    "DecoderAttention",
    f(2, 1, 4),
    f(3, 1, 4),
    f(4, 4),
    f(4, 8),
    f(12),
    None,
    None,
    None,
    b(False)[0],
    b(False)[0],
    b(False)[0],
    b(False)[0],
    num_heads=2,
)
add("PackedAttention", f(3, 4), f(4, 12), f(12), i32([0, 1, 3], [4, 5, 2])[:, :2], i32(0, 2, 3), num_heads=2)
add("PackedMultiHeadAttention", f(3, 2, 3, 2), None, None, None, i32([0, 1], [2, 3]), i32(0, 2, 3), num_heads=2)
add(
    "GroupQueryAttention",
    f(1, 2, 8),
    f(1, 2, 4),
    f(1, 2, 4),
    None,
    None,
    i32(1),
    np.array(2, np.int32),
    num_heads=2,
    kv_num_heads=1,
    outputs=3,
)
add(
    "LinearAttention",
    f(1, 3, 4),
    f(1, 3, 4),
    f(1, 3, 4),
    q_num_heads=2,
    kv_num_heads=2,
    update_rule="linear",
    outputs=2,
)
add(
    "SparseAttention",
    f(1, 2, 8),
    f(1, 2, 4),
    f(1, 2, 4),
    f(1, 1, 4, 4),
    f(1, 1, 4, 4),
    i32([0, 1, 3]),
    i32([0, 0, 1]),
    i32(3),
    i32(3),
    num_heads=2,
    kv_num_heads=1,
    sparse_block_size=2,
    outputs=3,
)
add("RotaryEmbedding", f(1, 2, 3, 4), i32([0, 2, 4]), f(5, 2), f(5, 2))
add(
    "MRotaryEmbedding",
    f(1, 2, 8),
    i32([[0, 1]], [[2, 1]], [[0, 3]]),
    f(5, 2),
    f(5, 2),
    num_heads=2,
    mrope_section=(1, 1, 0),
)
add("RelativePositionBias", f(4, 3), n(5), n(5), is_bidirectional=1, max_distance=8)
add("GatedRelativePositionBias", f(1, 2, 6), f(6), f(1, 2, 2, 2), f(3, 8), f(8), f(1, 2, 1, 1), num_heads=2)
add("MoE", f(3, 4), f(3, 2), f(2, 6, 4), f(2, 6), f(2, 4, 6), f(2, 4), activation_type="gelu", k=1, narrow=True)

# Quantization, by scales and by what is not quantized.
CODES = np.arange(12, dtype=np.uint8).reshape(3, 4)
add("DequantizeLinear", CODES, p(), np.array(3, np.uint8))
add(
    "MatMulNBits",
    f(2, 16),
    np.arange(24, dtype=np.uint8).reshape(3, 1, 8),
    p(3),
    K=16,
    N=3,
    bits=4,
    block_size=16,
    narrow=True,
)
add("MatMulBnb4", f(2, 16), np.arange(24, dtype=np.uint8), p(3), K=16, N=3, block_size=16, quant_type=1, narrow=True)
BLOCKS = np.array([0, 0, 128, 63, 8, *range(16), 0, 0, 0, 63, 7, *range(100, 116)], np.uint8)  # of the scales 1 and 0.5
add("MatMulFpQ4", f(2, 32), BLOCKS, i(32, 2), narrow=True)
add("MatMulIntegerToFloat", CODES, CODES.T, p(), p(), narrow=True)
add(
    "GatherBlockQuantized",
    np.arange(48, dtype=np.uint8).reshape(3, 16),
    i(2, 0),
    p(3, 1),
    block_size=16,
    bits=8,
    narrow=True,
)
