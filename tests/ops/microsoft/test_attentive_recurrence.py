"""A recurrent layer that attends to a memory at each step, beside onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(47)
LSTM = "AttnLSTM"
STEPS, BATCH, INPUT, HIDDEN, ROWS, DEPTH, INNER = 5, 3, 4, 6, 7, 2, 3


def f32(*shape):
    return (RNG.normal(size=shape) / 2).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


def operands(both, *, layer=None, optional=False, steps=STEPS):
    """layer: the size that an attention layer makes, None for none. optional: whether the rest is given, too."""
    state = (both, BATCH, HIDDEN)
    more = [f32(both, 8 * HIDDEN), i32(steps, 2, steps - 1), f32(*state), f32(*state), f32(both, 3 * HIDDEN)]
    return [
        f32(steps, BATCH, INPUT),
        f32(both, 4 * HIDDEN, INPUT + (layer or DEPTH)),
        f32(both, 4 * HIDDEN, HIDDEN),
        *(more if optional else [None] * 5),
        f32(both, HIDDEN, INNER),
        f32(both, DEPTH, INNER),
        f32(both, INNER),
        f32(BATCH, ROWS, DEPTH),
        i32(ROWS, 1, 3) if optional else None,
        None if layer is None else f32(both, DEPTH + HIDDEN, layer),
    ]


def check(given, **how):
    while given[-1] is None:
        given = given[:-1]
    agree(LSTM, given, (True, True, True), rtol=1e-4, **how)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layer", [None, 8])
def test_layer(direction, layer):
    both = 2 if direction == "bidirectional" else 1
    how = {"direction": direction, "hidden_size": HIDDEN}
    check(operands(both, layer=layer), **how)
    check(operands(both, layer=layer, optional=True), compiled=True, **how)
    check(operands(both, layer=layer, optional=True), input_forget=1, **how)
    names = ["HardSigmoid", "Softsign", "Relu"] * both
    check(operands(both, layer=layer, optional=True), activations=names, **how)
    check(operands(both, layer=layer, optional=True, steps=60), compiled=True, **how)


def test_padding_is_not_read_and_nan_stays_in_its_sequence():
    given = operands(1, layer=8, optional=True)
    expected = ms.attn_lstm(*given)
    assert np.isfinite(expected[0]).all()
    padded = [x.copy() if isinstance(x, np.ndarray) else x for x in given]
    padded[0][2:, 1], padded[11][1, 1:], padded[11][2, 3:] = np.nan, np.nan, np.inf
    compare(jax.jit(ms.attn_lstm)(*padded), [np.asarray(y) for y in expected], 1e-6, 1e-6)
    slope = jax.grad(lambda m: ms.attn_lstm(*padded[:11], m, *padded[12:])[0].sum())(jnp.asarray(padded[11]))
    assert np.isfinite(slope).all()
    given[11][0, 0, 0] = np.nan
    y = jax.jit(ms.attn_lstm)(*given)[0]  # onnxruntime's activations turn a NaN into a number
    assert np.isnan(y).any((1, 3)).tolist() == [[step > 0, False, False] for step in range(STEPS)]


def test_gradients_vmap_symbolic_sizes_and_doubles():
    given = operands(1, layer=5, optional=True)
    moving = [k for k, x in enumerate(given) if x.dtype == np.float32]

    def fn(*values):
        found = dict(zip(moving, values, strict=False))
        return ms.attn_lstm(*(found.get(k, x) for k, x in enumerate(given)))

    floats = [given[k] for k in moving]
    check_grads(jax.jit(fn), floats, order=1, modes=["rev"], rtol=3e-2, atol=3e-2)
    expected = [np.asarray(y) for y in ms.attn_lstm(*given)]
    mapped = jax.vmap(ms.attn_lstm)(*(jnp.stack([x, x]) for x in given))
    compare([y[1] for y in mapped], expected, 1e-5, 1e-5)
    w, r, b, p, qw, mw, v, aw = ([str(d) for d in given[k].shape] for k in (1, 2, 3, 7, 8, 9, 10, 13))
    fixed = [", ".join(sizes) for sizes in (w, r, b, p, qw, mw, v, aw)]
    specs = ["s, n, 4", *fixed[:3], "n", "1, n, 6", "1, n, 6", *fixed[3:7], "n, t, 2", "n", fixed[7]]
    made = export(jax.jit(ms.attn_lstm))(*symbolic_args_specs(given, specs))
    compare(made.call(*given), expected, 1e-5, 1e-5)
    with jax.enable_x64(True):
        wide = ms.attn_lstm(*(x.astype(np.float64) if x.dtype == np.float32 else x for x in given))
    assert wide[0].dtype == np.float64
    compare([y.astype(np.float32) for y in wide], expected, 1e-4, 1e-5)


GIVEN = dict(zip(("x", "w", "r", "b", "sequence_lens", "initial_h", "initial_c", "p", "qw", "mw", "v", "m",
                  "memory_seq_lens", "aw"), operands(1, layer=8, optional=True), strict=True))  # fmt: skip


def test_memory_lengths_of_a_type_that_does_not_hold_the_number_of_rows():
    given = GIVEN | {"m": f32(BATCH, 300, DEPTH)}
    wide, narrow = (
        ms.attn_lstm(**given | {"memory_seq_lens": np.array([200, 10, 255], kind)}) for kind in (np.int32, np.uint8)
    )
    for found, expected in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(found, expected)


ERRORS = [
    ({"m": None}, ArgumentError, "`m` must be given, for the attention to the memory"),
    ({"clip": 0.0}, ArgumentError, "`clip` is 0.0; it must be above 0, or left out"),
    ({"memory_seq_lens": i32(0, 1, 1)}, ArgumentError, "`memory_seq_lens` holds 0; the memory has 1 to 7 rows"),
    ({"sequence_lens": i32(9, 1, 1)}, ArgumentError, "`sequence_lens` holds 9, but x has 5 steps"),
    ({"memory_seq_lens": i32(1)}, ShapeError, r"`memory_seq_lens` of \(1,\) must be \(3,\); x is \(5, 3, 4\), with 6"),
    ({"w": GIVEN["w"][..., 1:]}, ShapeError, r"`w` of \(1, 24, 11\) must be \(1, 24, 12\)"),
    ({"qw": GIVEN["qw"][:, 1:]}, ShapeError, r"`qw` of \(1, 5, 3\) must be \(1, 6, 3\)"),
    ({"mw": GIVEN["mw"][0]}, ShapeError, r"`mw` of \(2, 3\) must have 3 axes"),
    ({"aw": GIVEN["aw"][:, 1:]}, ShapeError, r"`aw` of \(1, 7, 8\) must be \(1, 8, \*\)"),
    ({"m": GIVEN["m"][1:]}, ShapeError, r"`m` of \(2, 7, 2\) must be \(3, \*, \*\)"),
    ({"hidden_size": 5}, ShapeError, "has 6 hidden neurons, but `hidden_size` is 5"),
    ({"b": GIVEN["b"][:, 1:]}, ShapeError, r"attn_lstm: `b` of \(1, 47\) must be \(1, 48\)"),
    ({"v": GIVEN["v"].astype(np.float16)}, DTypeError, "operands must have one element type"),
    ({"memory_seq_lens": GIVEN["v"][0]}, DTypeError, "`memory_seq_lens` must be integers"),
]


@pytest.mark.parametrize(("changed", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(changed, kind, match):
    with pytest.raises(kind, match=match):
        ms.attn_lstm(**(GIVEN | changed))
