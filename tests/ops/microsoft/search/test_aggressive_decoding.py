"""Tokens taken over from a source as long as they are what a decoder predicts, beside onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node
from jax.export import export, symbolic_args_specs
from microsoft_peer import agree, compare

import jaxops.onnx
from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(43)
DETECTOR = "BifurcationDetector"


def drawn(source, current, words=3):
    """A source, current tokens, a place in the source and predicted tokens that begin as the source does there."""
    at = int(RNG.integers(0, source + 1))
    tokens = RNG.integers(0, words, source)
    predicted = RNG.integers(0, words, source + 1 - at)
    same = RNG.integers(0, source + 1 - at)
    predicted[:same] = tokens[at : at + same]
    return tokens, RNG.integers(0, words, current), np.array(at), predicted


@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (1, 3), (2, 5)])
def test_tokens_and_place(shortest, longest):
    sizes = {"min_ngram_size": shortest, "max_ngram_size": longest}
    bounded = jax.jit(lambda *v: ms.bifurcation_detector(*v, size=70, **sizes))
    for source, current in [(0, 0), (1, 0), (5, 2), (9, 1), *[(30, 4)] * 6, (3000, 5)]:
        given = drawn(source, current)
        tokens, place = agree(DETECTOR, given, (True, True), **sizes)
        given = [given[0], given[1], given[2].reshape(1), given[3]]
        agree(DETECTOR, given, (True, True), **sizes)
        agree(DETECTOR, given[:3], (True, True), compiled=source == 30, **sizes)
        found = bounded(*given)
        assert found[0].tolist() == [*tokens.tolist(), *[-1] * 70][:70]
        assert found[1].tolist() == [int(place)]


def test_in_a_model_in_a_vmap_and_with_symbolic_sizes():
    formals = [info(name, [None], 7) for name in ("s", "c", "at", "p")]
    detector = node(DETECTOR, ["s", "c", "at", "p"], ["y", "i"], domain="com.microsoft")
    proto = build(
        detector,
        inputs=formals,
        outputs=[info("y", None, 7), info("i", None, 7)],
        opsets=(("", 18), ("com.microsoft", 1)),
    )
    model = jaxops.onnx.load(proto)
    source, current, at, predicted = drawn(12, 3)
    expected = agree(DETECTOR, (source, current, at.reshape(1), predicted), (True, True))
    compare(model(source, current, at.reshape(1), predicted), list(map(np.asarray, expected)), 0, 0)

    def fn(source, current, predicted):
        return ms.bifurcation_detector(source, current, np.array(2), predicted, size=8)

    rows = [RNG.integers(0, 2, (6, n)) for n in (5, 3, 4)]
    wanted = [fn(*row) for row in zip(*rows, strict=True)]
    found = jax.vmap(fn)(*map(jnp.asarray, rows))
    for k in range(2):
        np.testing.assert_array_equal(found[k], np.stack([w[k] for w in wanted]))
    made = export(jax.jit(fn))(*symbolic_args_specs([r[0].astype(np.int32) for r in rows], ["s + 1", "c", "s"]))
    compare(made.call(*(r[0].astype(np.int32) for r in rows)), list(map(np.asarray, wanted[0])), 0, 0)


S, PREDICTED = np.array([1, 2, 3]), np.array([1, 2, 3, 4])


def call(source=S, current=S, at=0, predicted=PREDICTED, **more):
    return ms.bifurcation_detector(source, current, np.asarray(at), predicted, **more)


ERRORS = [
    (lambda: call(min_ngram_size=0), ArgumentError, "`min_ngram_size` is 0 and `max_ngram_size` 3; they must be posit"),
    (lambda: call(min_ngram_size=3, max_ngram_size=2), ArgumentError, "they must be positive, and in order"),
    (lambda: call(S[None]), ShapeError, r"`src_tokens` of \(1, 3\) must have one axis"),
    (lambda: call(at=[0, 1]), ShapeError, r"`prev_suffix_match_idx` of \(2,\) must be one integer"),
    (lambda: call(at=4), ArgumentError, "`prev_suffix_match_idx` is 4; it must be from 0 to 3"),
    (lambda: call(at=-1), ArgumentError, "`prev_suffix_match_idx` is -1; it must be from 0 to 3"),
    (
        lambda: call(at=1),
        ShapeError,
        "`pred_tokens` has 4 tokens; it must have 3, one more than `src_tokens` from 1 on",
    ),
    (lambda: call(S.astype(np.float32)), DTypeError, "`src_tokens` must be integers"),
    (lambda: jax.jit(call)(S), StaticError, r"the number of tokens depends on `pred_tokens`, .*\n.*\n.*give `size`"),
    (lambda: call(size=-1), ArgumentError, "`size` is -1; it must be at least 0"),
]


@pytest.mark.parametrize(("attempt", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(attempt, kind, match):
    with pytest.raises(kind, match=match):
        attempt()
