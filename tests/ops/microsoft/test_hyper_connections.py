"""Hyper-connections beside onnxruntime: grouped and flat streams, gates of every form, narrow types."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare, ours, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(41)
PRE, POST = "HyperConnectionPreMix", "HyperConnectionPostMix"


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("gates", [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 5)], ids=str)
def test_pre_mix_and_post_mix(gates):
    x, output, gate, mix = f32(2, 3, 4, 5), f32(2, 3, 5), f32(*gates), f32(2, 3, 4, 4)
    flat = x.reshape(2, 3, 20)
    agree(PRE, [x, gate], compiled=True, reduction_scale=0.3)
    agree(PRE, [flat, gate], num_branches=4)
    for more in ([], [mix]):
        agree(POST, [x, output, gate, *more], compiled=True)
        agree(POST, [flat, output, gate, *more], num_branches=4)
    agree(PRE, [flat, f32(2, 3, 20)], num_branches=4)


@pytest.mark.parametrize("lead", [(), (7,), (0,), (1, 2, 3)], ids=str)
def test_any_leading_axes_and_nan(lead):
    x, output, gate, mix = f32(*lead, 4, 3), f32(*lead, 3), f32(*lead, 4), f32(*lead, 4, 4)
    if x.size:
        x.flat[1], output.flat[0], gate.flat[2] = np.nan, np.inf, -np.inf
    agree(PRE, [x, gate], compiled=True)
    agree(POST, [x, output, gate], compiled=True)
    agree(POST, [x, output, gate, mix], compiled=True)


def test_narrow_types_and_thousands_of_elements():
    x, output, gate, mix = f32(40, 4, 64), f32(40, 64), f32(40, 4, 64), f32(40, 4, 4)
    agree(POST, [x, output, gate, mix], compiled=True)
    half = [x.astype(np.float16), output.astype(np.float16)]
    for gates in ([gate, mix], [gate.astype(np.float16), mix.astype(np.float16)]):
        compare(ours(PRE, [half[0], gates[0]]), runtime(PRE, [half[0], gates[0]]), 1e-3, 1e-3)
        compare(ours(POST, [*half, *gates]), runtime(POST, [*half, *gates]), 1e-3, 1e-3)
    brain = x.astype(jnp.bfloat16)
    found = ours(PRE, [brain, gate])[0]
    assert found.dtype == jnp.bfloat16
    compare([found.astype(np.float32)], runtime(PRE, [brain, gate]), 1e-2, 1e-2)


def test_gradients_vmap_and_symbolic_sizes():
    def fn(x, output, gate, mix):
        y = ms.hyper_connection_post_mix(x, output, gate, mix)
        return ms.hyper_connection_pre_mix(y, gate, reduction_scale=0.5)

    operands = [f32(2, 3, 4, 5), f32(2, 3, 5), f32(2, 3, 4), f32(2, 3, 4, 4)]
    check_grads(jax.jit(fn), operands, order=1, modes=["rev"], rtol=2e-2, atol=2e-2)
    expected = np.asarray(fn(*operands))
    made = export(jax.jit(fn))(*symbolic_args_specs(operands, ["b, s, 4, h", "b, s, h", "b, s, 4", "b, s, 4, 4"]))
    compare([made.call(*operands)], [expected], 1e-5, 1e-5)
    compare([jax.vmap(fn)(*operands)], [expected], 1e-5, 1e-5)
    flat = jax.jit(lambda x, gate: ms.hyper_connection_pre_mix(x, gate, num_branches=4))
    made = export(flat)(*symbolic_args_specs((operands[0].reshape(2, 3, 20), operands[2]), ["b, s, 4*h", "b, s, 4"]))
    wanted = runtime(PRE, [operands[0], operands[2]])
    compare([made.call(operands[0].reshape(2, 3, 20), operands[2])], wanted, 1e-5, 1e-5)


X, GATE = f32(2, 4, 3), f32(2, 4)
ERRORS = [
    (lambda: ms.hyper_connection_pre_mix(X, GATE, num_branches=-1), ArgumentError, "`num_branches` is -1; it must be"),
    (lambda: ms.hyper_connection_pre_mix(X, GATE, num_branches=2), ShapeError, "does not divide into 2 branches"),
    (lambda: ms.hyper_connection_pre_mix(X[0, 0, 0], GATE, num_branches=2), ShapeError, r"of \(\) must be \(…, C · H"),
    (lambda: ms.hyper_connection_pre_mix(X[0, 0], GATE), ShapeError, r"`streams` of \(3,\) must be \(…, C, H\)"),
    (lambda: ms.hyper_connection_pre_mix(X, GATE[:1]), ShapeError, r"`pre_mix` of \(1, 4\) must be \(2, 4\) or"),
    (lambda: ms.hyper_connection_pre_mix(X, X.reshape(2, 12)), ShapeError, r"`pre_mix` of \(2, 12\) must be \(2, 4\)"),
    (lambda: ms.hyper_connection_post_mix(X, X, GATE), ShapeError, r"`block_output` of \(2, 4, 3\) must be \(2, 3\)"),
    (
        lambda: ms.hyper_connection_post_mix(X, X[:, 0], GATE, GATE),
        ShapeError,
        r"`stream_mix` of \(2, 4\) must be \(2, 4, 4\)",
    ),
    (
        lambda: ms.hyper_connection_post_mix(X, X[:, 0].astype(np.float16), GATE),
        DTypeError,
        "operands must have one element type",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
