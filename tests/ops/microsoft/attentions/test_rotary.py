"""Rotary embedding of com.microsoft against onnxruntime and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, ours, runtime

from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from jaxops.microsoft import gemma_rotary_embedding, m_rotary_embedding, rotary_embedding

RNG = np.random.default_rng(6)
POSITIONS = 20


def floats(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def tables(width, dtype=np.float32):
    angles = RNG.uniform(0, 6, (POSITIONS, width))
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def formula(x, cos, sin, interleaved):
    """x (B, N, S, H) with angles (B, S, R / 2), as complex numbers."""
    half = cos.shape[-1]
    turned = x[..., : 2 * half].astype(np.float64)
    first, second = (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    found = (first + 1j * second) * (cos + 1j * sin)[:, None]
    pairs = [found.real, found.imag]
    parts = np.stack(pairs, -1).reshape(turned.shape) if interleaved else np.concatenate(pairs, -1)
    return np.concatenate([parts, x[..., 2 * half :]], -1)


IDS = RNG.integers(0, POSITIONS, (2, 5))
CASES = {
    "3 axes": (floats(2, 5, 24), IDS, 4, {"interleaved": 0}),
    "4 axes": (floats(2, 3, 5, 8), IDS, 4, {"interleaved": 1}),
    "part of a head": (floats(2, 5, 24), IDS, 2, {"num_heads": 3, "rotary_embedding_dim": 4, "interleaved": 1}),
    "part, 4 axes": (floats(2, 3, 5, 8), IDS, 2, {"num_heads": 3, "rotary_embedding_dim": 4}),
    "first position": (floats(2, 5, 24), np.array([3]), 4, {}),
    "ignored": (floats(2, 5, 24), IDS, 4, {"scale": 2.0, "is_packed_batching": 1, "num_heads": 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_rotary_embedding(name):
    x, ids, width, attributes = CASES[name]
    cos, sin = tables(width)
    (found,) = [agree("RotaryEmbedding", [x, ids, cos, sin], compiled=name == "3 axes", **attributes)]
    split = x if x.ndim == 4 else x.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)
    places = ids if ids.ndim == 2 else np.broadcast_to(ids + np.arange(5), (2, 5))
    expected = formula(split, cos[places], sin[places], attributes.get("interleaved", 0))
    expected = expected if x.ndim == 4 else expected.transpose(0, 2, 1, 3).reshape(x.shape)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize(
    ("shape", "sections", "attributes"),
    [
        ((2, 5, 48), (4, 2, 2), {"num_heads": 3, "scale": 0.5}),
        ((2, 3, 5, 16), (2, 2, 2), {"num_heads": 3, "rotary_embedding_dim": 12, "interleaved": 1}),
    ],
)
def test_m_rotary_embedding(shape, sections, attributes, layout):
    ids, width = RNG.integers(0, POSITIONS, (3, 2, 5)), sum(sections)
    x, (cos, sin) = floats(*shape), tables(width)
    attributes = {**attributes, "mrope_section": list(sections), "mrope_layout": layout}
    (found,) = agree("MRotaryEmbedding", [x, ids, cos, sin], **attributes)
    stream = np.repeat([0, 1, 2], sections)
    if layout:
        stream = np.array([i % 3 if i % 3 and i < 3 * sections[i % 3] else 0 for i in range(width)])
    split = x if x.ndim == 4 else x.reshape(2, 5, 3, 16).transpose(0, 2, 1, 3)
    angles = (np.take_along_axis(t[ids], stream[None, None, None], 0)[0] for t in (cos, sin))
    expected = formula(split, *(a * attributes.get("scale", 1) for a in angles), attributes.get("interleaved", 0))
    expected = expected if x.ndim == 4 else expected.transpose(0, 2, 1, 3).reshape(x.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_gemma_rotary_embedding():
    emb, states = floats(2, 5, 8), [floats(2, 3, 5, 8, dtype=np.float16) for _ in range(4)]
    found = ours("GemmaRotaryEmbedding", [emb, *states], 2)  # onnxruntime has no kernel for a CPU
    cos, sin = (fn(emb)[:, None].astype(np.float16).astype(np.float32) for fn in (np.cos, np.sin))
    q, q_rot, k, k_rot = (s.astype(np.float32) for s in states)
    for y, expected in zip(found, (q * cos + q_rot * sin, k * cos + k_rot * sin), strict=True):
        assert y.dtype == np.float16
        np.testing.assert_allclose(y.astype(np.float32), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.optimized
def test_16_bits_and_thousands_of_elements():
    x, ids = floats(2, 4, 50, 32, dtype=np.float16), np.array([7])
    angles = RNG.uniform(0, 6, (80, 16))
    given = [x, ids, np.cos(angles).astype(np.float16), np.sin(angles).astype(np.float16)]
    agree("RotaryEmbedding", given, rtol=2e-3, atol=2e-3, compiled=True)


def test_transformations():
    x, (cos, sin) = floats(2, 3, 8), tables(4)
    ids = jnp.asarray(IDS[:, :3])

    def fn(x):
        return rotary_embedding(x, ids, cos, sin)

    check_grads(fn, (x,), order=1, modes=("rev",), rtol=1e-2)
    stacked = np.stack([x, 2 * x])
    np.testing.assert_allclose(jax.vmap(fn)(stacked), np.stack([fn(x), fn(2 * x)]), rtol=1e-5)
    args = [jnp.asarray(v) for v in (x, ids, cos, sin)]
    specs = symbolic_args_specs(args, ["b, s, h", "b, s", "m, 4", "m, 4"], constraints=["h == 8"])
    made = export(jax.jit(rotary_embedding))(*specs)
    np.testing.assert_allclose(made.call(*args), fn(x), rtol=1e-5)


def test_a_traced_position_that_the_tables_lack_gives_nan():
    x, (cos, sin) = floats(1, 2, 8), tables(4)
    found = jax.jit(lambda ids: rotary_embedding(x, ids, cos, sin))(np.array([[-1, POSITIONS]]))
    assert np.isnan(found).all()


def test_positions_of_a_type_that_does_not_hold_the_size_of_the_tables():
    x, cos, sin = np.ones((1, 1, 20, 2), np.float32), np.arange(300, dtype=np.float32)[:, None], np.zeros((300, 1))
    for first in (np.array([250], np.uint8), jnp.array([250], np.uint8)):
        found = rotary_embedding(x, first, cos, sin.astype(np.float32))
        np.testing.assert_array_equal(found[0, 0, :, 0], np.arange(250, 270))


def test_another_pairing_is_caught():
    x, (cos, sin) = floats(2, 5, 24), tables(4)
    (expected,) = runtime("RotaryEmbedding", [x, IDS, cos, sin])
    assert not np.allclose(rotary_embedding(x, IDS, cos, sin, interleaved=1), expected, atol=1e-3)


X, T2, T4 = floats(2, 5, 24), tables(2), tables(4)
HALF = floats(2, 3, 5, 8, dtype=np.float16)
ERRORS = [
    (lambda: rotary_embedding(X[0], IDS, *T4), ShapeError, r"`input` of \(5, 24\) must be \(B, S, N · H\)"),
    (
        lambda: rotary_embedding(X, IDS[:, :3], *T4),
        ShapeError,
        r"`position_ids` of \(2, 3\) must be \(2, 5\) or \(\) or \(1,\)",
    ),
    (
        lambda: rotary_embedding(X, IDS, T4[0], T2[0]),
        ShapeError,
        r"\(20, 4\) and .*\(20, 2\) must both be \(M, R / 2\)",
    ),
    (
        lambda: rotary_embedding(X, IDS, *T2, rotary_embedding_dim=4),
        ArgumentError,
        "`num_heads` is 0; with .* at least",
    ),
    (lambda: rotary_embedding(X[..., :23], IDS, *T4), ShapeError, "the 23 features of `input` do not make 2 heads"),
    (lambda: rotary_embedding(X, IDS, *T2, rotary_embedding_dim=8, num_heads=3), ShapeError, "rotates 4 .* need 8"),
    (lambda: rotary_embedding(X, IDS.astype(np.float32), *T4), DTypeError, "`position_ids` must be integers"),
    (lambda: rotary_embedding(X, IDS + 20, *T4), BoundsError, "holds .*, but `cos_cache` has positions 0 to 19"),
    (lambda: rotary_embedding(X, IDS, *T4, interleaved=2), ArgumentError, "`interleaved` is 2"),
    (
        lambda: m_rotary_embedding(X, np.stack([IDS] * 3), *T4, num_heads=3, mrope_section=(1, 1, 1)),
        ArgumentError,
        r"`mrope_section` is \(1, 1, 1\); it must be 3 numbers of at least 0 whose sum is 4",
    ),
    (
        lambda: m_rotary_embedding(X, IDS, *T4, num_heads=3, mrope_section=(4, 0, 0)),
        ShapeError,
        r"`position_ids` of \(2, 5\) must be \(3, 2, 5\)$",
    ),
    (
        lambda: gemma_rotary_embedding(floats(2, 5, 8), HALF, HALF, HALF[:, :, 1:], HALF),
        ShapeError,
        r"`k` is float16\[2,3,4,8\]; with `emb` of \(2, 5, 8\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
