"""QAttention beside onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from quantized_peer import agree, close
from whole_numbers import whole_numbers

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError

RNG = np.random.default_rng(12)
whole = whole_numbers(RNG)
f32 = np.float32
HEADS, SIZE, BATCH, LENGTH = 2, 4, 3, 5


def operands(kind=np.int8, columns=False, mask=None, past=0):
    """What the operator takes, in order."""
    width = 3 * HEADS * SIZE
    at = (width,) if columns else ()
    by, bias = RNG.uniform(0.005, 0.01, at).astype(f32), RNG.normal(size=width).astype(f32)
    old = RNG.normal(size=(2, BATCH, HEADS, past, SIZE)).astype(f32) if past else None
    x, w = whole(np.uint8, BATCH, LENGTH, 16), whole(kind, 16, width)
    return [x, w, bias, f32(0.01), by, mask, np.uint8(120), whole(kind, *at), old]


MASKS = {
    "none": None,
    "lengths": np.int32([5, 2, 4]),
    "ends and starts": np.int32([5, 3, 4, 1, 0, 2]),
    "keys": RNG.integers(0, 2, (BATCH, LENGTH)).astype(np.int32),
    "pairs": RNG.integers(0, 2, (BATCH, LENGTH, LENGTH)).astype(np.int32),
    "one": np.ones((BATCH, 1), np.int32),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    kind = np.uint8 if name == "keys" else np.int8
    agree("QAttention", operands(kind, name != "one", MASKS[name]), num_heads=HEADS, tolerance=1e-4)


@pytest.mark.parametrize("past", [0, 3])
def test_past_and_options(past):
    given = operands(past=past)
    agree("QAttention", given, num_heads=HEADS, unidirectional=1, n_outputs=2, tolerance=1e-4)
    given[5] = RNG.integers(0, 2, (BATCH, LENGTH + past)).astype(np.int32)
    options = {"mask_filter_value": -3.0, "scale": 0.3}
    agree("QAttention", given, num_heads=HEADS, n_outputs=2, tolerance=1e-4, **options)


def test_jit_and_export():
    given = operands(mask=np.int32([[1, 1, 0, 1, 1]] * BATCH))

    def fn(x, mask):
        return ms.qattention(x, *given[1:5], mask, *given[6:], num_heads=HEADS)[0]

    x, mask = given[0], given[5]
    wanted = np.asarray(fn(x, mask))
    close(jax.jit(fn)(x, mask), wanted)
    specs = symbolic_args_specs([jnp.asarray(x), jnp.asarray(mask)], ["b, 5, 16", "b, 5"])
    close(export(jax.jit(fn))(*specs).call(x, mask), wanted)


GIVEN = operands()


def called(at, value, **options):
    return ms.qattention(*[value if i == at else v for i, v in enumerate(GIVEN)], **{"num_heads": HEADS, **options})


ERRORS = [
    (lambda: called(1, GIVEN[1][1:]), ShapeError, r"`input` of \(3, 5, 16\) and `weight` of \(15, 24\) must be"),
    (lambda: called(0, GIVEN[0], num_heads=5), ArgumentError, "`num_heads` is 5; 3 · num_heads must divide the 24"),
    (lambda: called(2, GIVEN[2][1:]), ShapeError, r"`bias` of \(23,\) must be \(24,\)"),
    (lambda: called(8, np.zeros((2, 3, 2, 7, 5), f32)), ShapeError, r"`past` of .* must be \(2, 3, 2, P, 4\)"),
    (lambda: called(5, np.ones(4, np.int32)), ShapeError, r"`mask_index` of \(4,\) must be \(3,\), \(6,\)"),
    (lambda: called(5, np.ones(3, f32)), DTypeError, "`mask_index` must be integers, got float32"),
    (lambda: called(0, GIVEN[0], do_rotary=1), UnsupportedError, "`do_rotary` is 1; only 0 is supported"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
