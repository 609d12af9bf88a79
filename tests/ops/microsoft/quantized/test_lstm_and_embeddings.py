"""Layers with quantized weights beside onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import ours
from quantized_peer import agree, close
from whole_numbers import whole_numbers

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError

RNG = np.random.default_rng(9)
whole = whole_numbers(RNG)
f32 = np.float32
KINDS = pytest.mark.parametrize("kind", [np.uint8, np.int8])


def operands(kind, both=1, columns=False, batch=3, steps=5, size=4, hidden=6):
    """x, w, r, and their scales and zero points."""
    at = (both, 4 * hidden) if columns else (both,)
    zero = np.zeros(at, np.int8) if kind is np.int8 else np.full(at, 131, np.uint8)
    scales = [RNG.uniform(0.002, 0.01, at).astype(f32) for _ in range(2)]
    x = RNG.normal(size=(steps, batch, size)).astype(f32)
    return (
        x,
        whole(kind, both, size, 4 * hidden),
        whole(kind, both, hidden, 4 * hidden),
        (scales[0], zero, scales[1], zero),
    )


# A hidden state at a tie of its rounding goes another way once the sums before it differ in the last bit.
NEAR = {"tolerance": 1e-2, "n_outputs": 3}


@KINDS
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_dynamic_quantize_lstm(kind, direction):
    both = 2 if direction == "bidirectional" else 1
    columns = direction != "forward"
    x, w, r, rest = operands(kind, both, columns)
    b, p = (RNG.normal(size=(both, n * 6)).astype(f32) / 4 for n in (8, 3))
    h, c = (RNG.normal(size=(both, 3, 6)).astype(f32) / 2 for _ in range(2))
    lens = np.int32([5, 2, 4])
    given = {"direction": direction, "hidden_size": 6}
    agree("DynamicQuantizeLSTM", (x, w, r, None, None, None, None, None, *rest), **NEAR, **given)
    agree("DynamicQuantizeLSTM", (x, w, r, b, lens, h, c, p, *rest), **NEAR, **given)


def test_options_of_the_lstm():
    x, w, r, rest = operands(np.int8)
    given = (x, w, r, None, None, None, None, None, *rest)
    names = ["HardSigmoid", "Softsign", "Relu"]
    options = {"activations": names, "activation_alpha": [0.3], "activation_beta": [0.4], "input_forget": 1}
    agree("DynamicQuantizeLSTM", given, **NEAR, hidden_size=6, **options)


def test_lstm_in_all_ways():
    x, w, r, rest = operands(np.int8, batch=4, steps=3, size=64, hidden=32)

    def fn(x):
        return ms.dynamic_quantize_lstm(x, w, r, None, None, None, None, None, *rest)[0]

    wanted = np.asarray(fn(x))
    close(jax.jit(fn)(x), wanted, tolerance=2e-3)
    (spec,) = symbolic_args_specs([jnp.asarray(x)], ["3, n, 64"])
    close(export(jax.jit(fn))(spec).call(x), wanted, tolerance=2e-3)


def embedding(kind, segments):
    word, position, segment = whole(kind, 50, 24), whole(kind, 12, 24), whole(kind, 2, 24)
    ids = RNG.integers(0, 50, (3, 7)).astype(np.int32)
    kinds = RNG.integers(0, 2, (3, 7)).astype(np.int32)
    scales = [f32(s) for s in (0.01, 0.02, 0.03, 0.04, 0.05)]
    zeros = [whole(kind) for _ in range(5)]
    given = [ids, kinds, word, position, segment, whole(kind, 24), whole(kind, 24), None, *scales, *zeros]
    if not segments:
        for i in (1, 4, 10, 15):
            given[i] = None
    return given


@KINDS
@pytest.mark.parametrize("segments", [True, False])
def test_embedding(kind, segments):
    given = embedding(kind, segments)
    agree("QEmbedLayerNormalization", given, n_outputs=2, tolerance=1e-4)
    given[7] = RNG.integers(0, 2, (3, 7)).astype(np.int32)
    agree("QEmbedLayerNormalization", given, n_outputs=2, tolerance=1e-4, epsilon=0.1)


def test_embedding_in_all_ways():
    given = embedding(np.uint8, True)

    def fn(ids):
        return ms.qembed_layer_normalization(ids, ids * 0, *given[2:])[0]

    wanted = np.asarray(fn(given[0]))
    close(jax.jit(fn)(given[0]), wanted, tolerance=1e-4)
    (spec,) = symbolic_args_specs([jnp.asarray(given[0])], ["n, 7"])
    close(export(jax.jit(fn))(spec).call(given[0]), wanted, tolerance=1e-4)
    assert np.isnan(fn(given[0] + 50)).all()


X, W, R, REST = operands(np.int8)
NONE = (None,) * 5
EMBEDDING = embedding(np.uint8, True)


def embedded(**changes):
    return ms.qembed_layer_normalization(*[changes.get(f"at{i}", v) for i, v in enumerate(EMBEDDING)])


ERRORS = [
    (lambda: ms.dynamic_quantize_lstm(X.astype("f2"), W, R, *NONE, *REST), DTypeError, "`x` is float16; it must be fl"),
    (
        lambda: ms.dynamic_quantize_lstm(X, W, R, *NONE, REST[0][[0, 0]], *REST[1:]),
        ShapeError,
        r"`w_scale` of \(2,\)",
    ),
    (lambda: ms.dynamic_quantize_lstm(X, W[0], R, *NONE, *REST), ShapeError, "weights of .* must have three axes"),
    (lambda: ms.dynamic_quantize_lstm(X, W, R, *NONE, *REST, direction="up"), ArgumentError, "`direction` is 'up'"),
    (lambda: ms.dynamic_quantize_lstm(X, W, R, *NONE, *REST, hidden_size=9), ShapeError, "dynamic_quantize_lstm: "),
    (lambda: embedded(at1=None), SignatureError, "give `segment_ids`, the segment embedding, its scale and zero point"),
    (lambda: embedded(at0=EMBEDDING[0][0]), ShapeError, r"`input_ids` of \(7,\) must be \(batch, steps\)"),
    (lambda: embedded(at7=EMBEDDING[0][:1]), ShapeError, r"`mask` of \(1, 7\) must be \(3, 7\)"),
    (lambda: embedded(at3=EMBEDDING[3][:, :5]), ShapeError, r"`position_embedding` of \(12, 5\) must be of 24 columns"),
    (lambda: embedded(at7=np.ones((3, 7), f32)), DTypeError, "`mask` must be integers"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_the_outputs_that_a_node_asks_for():
    assert len(ours("DynamicQuantizeLSTM", (X, W, R, *NONE, *REST), n_outputs=1, hidden_size=6)) == 3
