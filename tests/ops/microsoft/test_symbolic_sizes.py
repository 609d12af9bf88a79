"""Operators of com.microsoft under `jax.export`: sizes that a model names twice, and the same size, are equal."""

import jax
import jax.numpy as jnp
import pytest
from jax.export import SymbolicScope, export, symbolic_shape

from jaxops import microsoft as ms
from jaxops.errors import SizeError


def exported(fn, specs):
    """specs: shapes that share their symbols, such as "b, s, 8"; "i:" before one stands for integers."""
    scope = SymbolicScope()
    shapes = [symbolic_shape(spec.removeprefix("i:"), scope=scope) for spec in specs]
    types = [jnp.int32 if spec.startswith("i:") else jnp.float32 for spec in specs]
    return export(jax.jit(fn))(*map(jax.ShapeDtypeStruct, shapes, types))


def attention(x, w, b, m, past):
    return ms.attention(x, w, b, m, past, num_heads=2)


def cross(q, k, v, m, old_k, old_v):
    return ms.multi_head_attention(q, k, v, None, m, None, old_k, old_v, num_heads=2)


# The first specs use one name for a size; the second ones name it anew in each operand, and what must hold.
ROWS = {
    "attention": (
        attention,
        ["b, s, 8", "8, 24", "24", "i:b, p + s", "2, b, 2, p, 4"],
        ["b, s, 8", "8, 24", "24", "i:b, t", "2, b, 2, p, 4"],
        "t",
    ),
    "multi_head_attention": (
        cross,
        ["b, s, 8", "b, t, 8", "b, t, 8", "i:b, p + t", "b, 2, p, 4", "b, 2, p, 4"],
        ["b, s, 8", "c, t, 8", "c, t, 8", "i:c, p + t", "c, 2, p, 4", "c, 2, p, 4"],
        "c",
    ),
    "rotary_embedding": (
        ms.rotary_embedding,
        ["b, 2, s, 4", "i:b, s", "9, 2", "9, 2"],
        ["b, 2, s, 4", "i:b, t", "9, 2", "9, 2"],
        "t",
    ),
    "skip_layer_normalization": (
        ms.skip_layer_normalization,
        ["b, s, 8", "b, s, 8", "8"],
        ["b, s, 8", "b, t, 8", "8"],
        "t",
    ),
    "embed_layer_normalization": (
        lambda i, seg, w, p, sg, g, b: ms.embed_layer_normalization(i, seg, w, p, sg, g, b)[0],
        ["i:b, s", "i:b, s", "9, 8", "16, 8", "2, 8", "8", "8"],
        ["i:b, s", "i:b, t", "9, 8", "16, 8", "2, 8", "8", "8"],
        "t",
    ),
    "bias_dropout": (
        ms.bias_dropout,
        ["b, s, 8", "8", "b, s, 8"],
        ["b, s, 8", "8", "b, t, 8"],
        "t",
    ),
    "cdist": (ms.cdist, ["m, c", "k, c"], ["m, c", "k, d"], "d"),
}


@pytest.mark.parametrize("name", ROWS)
def test_named_once(name):
    fn, specs, _, _ = ROWS[name]
    assert exported(fn, specs).out_avals


@pytest.mark.parametrize("name", ROWS)
def test_named_twice(name):
    """No ShapeError that says they differ: they may be equal, and the error says so."""
    fn, _, specs, symbol = ROWS[name]
    with pytest.raises(SizeError, match="must be equal") as caught:
        exported(fn, specs)
    assert f"{symbol} == " in caught.value.needs or f" == {symbol}" in caught.value.needs
