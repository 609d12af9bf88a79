"""Operators of com.microsoft whose number of outputs a node chooses."""

from typing import Any

from jaxops.onnx.registry import version
from jaxops.ops import microsoft
from jaxops.signature import ElementType, Static
from jaxops.static import Array

_DOMAIN = "com.microsoft"


@version("BiasDropout", 1, _DOMAIN)
def bias_dropout_1(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Any = None,
    training_mode: Static = None,
    *,
    seed: int | None = None,
    n_outputs: int,
    rng: Any = None,
) -> Any:
    return microsoft.bias_dropout(
        data, bias, residual, ratio, training_mode, seed=seed, rng=rng, return_mask=n_outputs > 1
    )


@version("LayerNormalization", 1, _DOMAIN)
def layer_normalization_1(
    x: Array,
    scale: Array,
    b: Array | None = None,
    *,
    axis: int,
    epsilon: float,
    stash_type: ElementType,
    n_outputs: int,
) -> Any:
    found = microsoft.layer_normalization(
        x, scale, b, axis=axis, epsilon=epsilon, stash_type=stash_type, return_statistics=True
    )
    return found[:n_outputs]


@version("MultiHeadAttention", 1, _DOMAIN)
def multi_head_attention_1(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Any = None,
    cache_indirection: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
    unidirectional: int,
    n_outputs: int,
) -> Any:
    return microsoft.multi_head_attention(
        query,
        key,
        value,
        bias,
        key_padding_mask,
        attention_bias,
        past_key,
        past_value,
        past_sequence_length,
        cache_indirection,
        num_heads=num_heads,
        mask_filter_value=mask_filter_value,
        scale=scale,
        unidirectional=unidirectional,
        return_scores=n_outputs > 3,
    )


@version("SimplifiedLayerNormalization", 1, _DOMAIN)
def simplified_layer_normalization_1(
    x: Array, scale: Array, *, axis: int, epsilon: float, stash_type: ElementType, n_outputs: int
) -> Any:
    found = microsoft.simplified_layer_normalization(
        x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type, return_statistics=True
    )
    return found[:n_outputs]


@version("SkipLayerNormalization", 1, _DOMAIN)
def skip_layer_normalization_1(
    input: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float,
    n_outputs: int,
) -> Any:
    found = microsoft.skip_layer_normalization(input, skip, gamma, beta, bias, epsilon=epsilon, return_statistics=True)
    return found[:n_outputs]


@version("SkipSimplifiedLayerNormalization", 1, _DOMAIN)
def skip_simplified_layer_normalization_1(
    input: Array, skip: Array, gamma: Array, bias: Array | None = None, *, epsilon: float, n_outputs: int
) -> Any:
    found = microsoft.skip_simplified_layer_normalization(
        input, skip, gamma, bias, epsilon=epsilon, return_statistics=True
    )
    return found[:n_outputs]


@version("SkipGroupNorm", 1, _DOMAIN)
def skip_group_norm_1(
    x: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    activation: int,
    channels_last: int,
    epsilon: float,
    groups: int,
    n_outputs: int,
) -> Any:
    found = microsoft.skip_group_norm(
        x,
        gamma,
        beta,
        skip,
        bias,
        activation=activation,
        channels_last=channels_last,
        epsilon=epsilon,
        groups=groups,
        return_sum=True,
    )
    return found[:n_outputs]


@version("EmbedLayerNormalization", 1, _DOMAIN)
def embed_layer_normalization_1(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float,
    mask_index_type: int | None = None,
    n_outputs: int,
) -> Any:
    found = microsoft.embed_layer_normalization(
        input_ids,
        segment_ids,
        word_embedding,
        position_embedding,
        segment_embedding,
        gamma,
        beta,
        mask,
        position_ids,
        epsilon=epsilon,
        mask_index_type=mask_index_type,
        return_all=True,
    )
    return found[:n_outputs]


@version("MoEGroupRouter", 1, _DOMAIN)
def moe_group_router_1(
    logits: Array,
    expert_bias: Array,
    projection_weight: Array | None = None,
    *,
    top_k: int,
    group_topk: int,
    n_group: int,
    router_sentinel: float,
    topk_group: int,
    n_outputs: int,
) -> Any:
    return microsoft.moe_group_router(
        logits,
        expert_bias,
        projection_weight,
        top_k=top_k,
        group_topk=group_topk,
        n_group=n_group,
        router_sentinel=router_sentinel,
        topk_group=topk_group,
        full_scores=n_outputs > 1,
    )
