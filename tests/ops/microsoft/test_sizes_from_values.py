"""Attention of com.microsoft whose sizes are the values of inputs: they are read where they are at hand."""

import jax
import numpy as np
import onnxruntime
import pytest
from graphs import build, info, node, tensor
from microsoft_peer import DOMAIN
from onnx import TensorProto

import jaxops.onnx
from jaxops.errors import StaticError

RNG = np.random.default_rng(5)
N, K, H = 4, 2, 16
HEADS = {"num_heads": N, "kv_num_heads": K}


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def operands_of(new, past, lengths, total):
    """`new` tokens behind a past of `past` rows, `lengths` tokens of each sample, `total` at most."""
    batch = len(lengths)
    qkv = [floats(batch, new, heads * H) for heads in (N, K, K)]
    cache = [floats(batch, K, past, H), floats(batch, K, past, H)]
    return [*qkv, *cache, np.array(lengths, np.int32) - 1, np.array(total, np.int32)]


GROWN = ["q", "k", "v", "past_k", "past_v", "seqlens_k", "total"]


def agree(found, expected, lengths):
    """The same output, and the same rows of the cache that hold a token."""
    assert [x.shape for x in found] == [x.shape for x in expected]
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=2e-5)
    for b, count in enumerate(lengths):
        for x, y in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_allclose(x[b, :, :count], y[b, :, :count], rtol=2e-5, atol=2e-5)


def with_total(*before, total="total", inputs=()):
    """A model that takes the number of tokens, or makes it by `before`."""
    shapes = [["B", "S", d] for d in (N * H, K * H, K * H)] + [["B", K, "past", H]] * 2
    made = node("GroupQueryAttention", [*GROWN[:6], total], ["y", "present_k", "present_v"], domain=DOMAIN, **HEADS)
    return build(
        *before,
        made,
        inputs=[*map(info, GROWN[:5], shapes), info("seqlens_k", ["B"], TensorProto.INT32), *inputs],
        outputs=[info("y", None), info("present_k", None), info("present_v", None)],
        initializers=[tensor(np.array(1, np.int32), "one"), tensor(np.array([0]), "axes")],
        opsets=(("", 18), (DOMAIN, 1)),
    )


def total_given():
    return with_total(inputs=[info("total", [], TensorProto.INT32)])


def total_cast():
    """Of int64, and with an axis."""
    nodes = node("Squeeze", ["wide"], ["narrow"]), node("Cast", ["narrow"], ["total"], to=TensorProto.INT32)
    return with_total(*nodes, inputs=[info("wide", [1], TensorProto.INT64)])


def total_from_lengths():
    nodes = node("ReduceMax", ["seqlens_k", "axes"], ["most"], keepdims=0), node("Add", ["most", "one"], ["total"])
    return with_total(*nodes)


@pytest.mark.parametrize("make", [total_given, total_cast, total_from_lengths])
def test_the_number_of_tokens_is_an_input(make):
    """The caches grow by it, so it is read where it is at hand, as the shape of a Reshape is."""
    proto = make()
    model, session = jaxops.onnx.load(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    for operands in (operands_of(1, 16, (17, 17), 17), operands_of(3, 16, (19,), 19), operands_of(1, 16, (9, 12), 12)):
        last = {total_given: [operands[6]], total_cast: [np.array([operands[6]], np.int64)], total_from_lengths: []}
        values = [*operands[:6], *last[make]]
        expected = session.run(None, dict(zip([i.name for i in session.get_inputs()], values, strict=True)))
        for found in (model(*values), model.apply(model.params, *values)):
            agree(found, expected, operands[5] + 1)
        known = values[6:] or values[5:]
        closed = jax.jit(lambda *x, known=known: model.apply(model.params, *x, *known))
        agree(closed(*values[: len(values) - len(known)]), expected, operands[5] + 1)
        with pytest.raises(StaticError, match="must be known while tracing"):
            jax.jit(model.apply)(model.params, *values)


@pytest.mark.parametrize("op", ["MultiHeadAttention", "DecoderMaskedMultiHeadAttention"])
def test_scores_of_a_length_that_is_an_input(op):
    """They have as many columns as there are tokens, so the length is read where it is at hand."""
    at = (6, 7, 8) if op == "MultiHeadAttention" else (5, 6, 7)
    names = [f"x{i}" for i in range(9)]
    given = {names[i]: floats(2, 1, 8) for i in range(3)}
    given |= {names[i]: floats(2, 2, 8, 4) for i in at[:2]} | {names[at[2]]: np.array([3], np.int32)}
    shapes = {name: list(value.shape) for name, value in given.items()}
    types = {name: TensorProto.INT32 if value.dtype == np.int32 else TensorProto.FLOAT for name, value in given.items()}
    attributes = {"output_qk": 1, "past_present_share_buffer": 1} if op.startswith("Decoder") else {}
    proto = build(
        node(
            op,
            [n if n in given else "" for n in names[: at[-1] + 1]],
            list("yabs"),
            domain=DOMAIN,
            **attributes,
            num_heads=2,
        ),
        inputs=[info(name, shapes[name], types[name]) for name in given],
        outputs=[info(name, None) for name in "yabs"],
        opsets=(("", 17), (DOMAIN, 1)),
    )
    model, session = jaxops.onnx.load(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    for before in (3, 5):
        given[names[at[-1]]] = np.array([before], np.int32)
        expected = session.run(None, given)
        for found in (model(given), model.apply(model.params, given)):
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    with pytest.raises(StaticError, match="`past_sequence_length` must be known while tracing"):
        jax.jit(model.apply)(model.params, given)
