"""Quantized operators on each element, beside onnxruntime; QLinearAdd and its kin agree to the last bit here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import ours
from quantized_peer import agree, close
from whole_numbers import whole_numbers

from jaxops import microsoft as ms
from jaxops.errors import AxisError, DTypeError, ShapeError, SignatureError

RNG = np.random.default_rng(3)
whole = whole_numbers(RNG)
KINDS = pytest.mark.parametrize("kind", [np.uint8, np.int8])
f32 = np.float32


@KINDS
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_sum_and_product(op, kind):
    a, b = whole(kind, 40, 64), whole(kind, 64)
    for scales in ((0.02, 0.03, 0.025), (0.5, 0.5, 0.25), (0.1, 1e-4, 0.2)):
        x, y, z = (f32(s) for s in scales)
        given = (a, x, whole(kind), b, y, whole(kind), z * f32(60 if op == "QLinearMul" else 1), whole(kind))
        # In a tie a fused multiplication and addition may decide otherwise.
        agree(op, given, steps=1)
        assert (np.asarray(ours(op, given)[0]) != agree(op, given, steps=1)).mean() < 0.01


@KINDS
def test_without_zero_points(kind):
    a, b, zero = whole(kind, 5), whole(kind, 2, 5), kind(0)
    for op in (ms.qlinear_add, ms.qlinear_mul):
        found = op(a, 0.5, None, b, 0.25, None, 8.0)
        close(found, np.asarray(op(a, 0.5, zero, b, 0.25, zero, 8.0, zero)))


@KINDS
def test_functions(kind):
    x, low = whole(kind, 40, 64), kind(np.iinfo(kind).min)
    agree("QLinearSigmoid", (x, f32(0.03), whole(kind), f32(1 / 256), low))
    agree("QLinearLeakyRelu", (x, f32(0.03), whole(kind), f32(0.02), whole(kind)), alpha=0.2)
    agree("QLinearLeakyRelu", (x, f32(0.03), whole(kind), f32(0.02), whole(kind)))


@KINDS
@pytest.mark.parametrize("opset", [12, 13])
def test_softmax(kind, opset):
    low = kind(np.iinfo(kind).min)
    for axis, by in ((1, 1 / 256), (-1, 0.0035)):
        agree("QLinearSoftmax", (whole(kind, 4, 6, 10), f32(0.1), whole(kind), f32(by), low), opset=opset, axis=axis)
    given = (whole(kind, 4, 6), f32(0.1), None, f32(1 / 256), low)
    agree("QLinearSoftmax", given, opset=opset)
    assert ours("QLinearSoftmax", (whole(kind, 0, 6), *given[1:]), opset=opset)[0].shape == (0, 6)


def test_softmax_of_one_certain_class_saturates():
    # onnxruntime wraps 128 around to -128.
    x = np.int8([[100, -128]])
    assert ms.qlinear_softmax(x, 1.0, 0, 1 / 256, -128, opset=13).tolist() == [[127, -128]]


@KINDS
def test_where_and_concat(kind):
    x, y = whole(kind, 40, 64), whole(kind, 64)
    chosen = RNG.integers(0, 2, (40, 1)).astype(bool)
    agree("QLinearWhere", (chosen, x, f32(0.03), whole(kind), y, f32(0.02), whole(kind), f32(0.04), whole(kind)))
    zero = whole(kind)
    given = (f32(0.03), zero, x, f32(0.02), whole(kind), whole(kind, 3, 64), f32(0.05), whole(kind), x, f32(0.03), zero)
    agree("QLinearConcat", given, axis=0)
    agree("QLinearConcat", (f32(0.03), zero, x, f32(0.02), whole(kind), x, f32(0.05), whole(kind)), axis=-1)


@KINDS
def test_mul_integer(kind):  # it has no kernel on a CPU
    a, b, zeros = whole(kind, 7, 5), whole(kind, 5), (whole(kind), whole(kind))
    wanted = (a.astype(np.int32) - zeros[0]) * (b.astype(np.int32) - zeros[1])
    close(ms.mul_integer(a, zeros[0], b, zeros[1]), wanted.astype(np.int32))
    close(ms.mul_integer(a, None, b), a.astype(np.int32) * b)


def test_jit_vmap_and_export():
    a, b, zero = whole(np.uint8, 6, 1000), whole(np.uint8, 1000), np.uint8(7)

    def fn(a):
        y = ms.qlinear_add(a, f32(0.1), zero, b, f32(0.2), zero, f32(0.25), zero)
        y = ms.qlinear_concat(f32(0.5), zero, [y, f32(0.25), zero, a, f32(0.1), zero], axis=-1)
        y = ms.qlinear_leaky_relu(y, f32(0.5), zero, f32(0.4), zero)
        return ms.qlinear_softmax(y, f32(0.05), zero, f32(1 / 2048), np.uint8(0), opset=13)

    wanted = np.asarray(fn(a))
    close(jax.jit(fn)(a), wanted, steps=1)
    (spec,) = symbolic_args_specs([jnp.asarray(a)], ["n, 1000"])
    close(export(jax.jit(fn))(spec).call(jnp.asarray(a)), wanted, steps=1)
    with jax.enable_x64(True):
        close(fn(a), wanted, steps=1)


def test_a_wrong_zero_point_is_caught():
    a = whole(np.uint8, 40)
    with pytest.raises(AssertionError, match="of 40 differ, by up to"):
        close(ms.qlinear_add(a, 1.0, 1, a, 1.0, 0, 4.0), np.asarray(ms.qlinear_add(a, 1.0, 9, a, 1.0, 0, 4.0)))


X, S, Z = np.uint8([[1, 2], [3, 4]]), f32(1), np.uint8(0)
ERRORS = [
    (
        lambda: ms.qlinear_add(X, S, Z, X[:, :1].T[:, :0], S, Z, S),
        ShapeError,
        r"qlinear_add: shapes \(2, 2\) and",
    ),
    (
        lambda: ms.qlinear_add(X, S, Z, X.view("i1"), S, np.int8(0), S),
        DTypeError,
        "`a` and `b` must have one e",
    ),
    (
        lambda: ms.qlinear_add(X, S, Z, X, S, Z, S, np.int8(0)),
        DTypeError,
        "`c_zero_point` is int8; it must be uint8",
    ),
    (
        lambda: ms.qlinear_mul(X.astype("i4"), S, None, X, S, Z, S),
        DTypeError,
        "`a` is int32; it must be of type int8",
    ),
    (lambda: ms.qlinear_mul(X, np.ones(2, "f4"), Z, X, S, Z, S), ShapeError, r"`a_scale` of \(2,\) must be a scalar"),
    (
        lambda: ms.qlinear_sigmoid(X, S, np.int8(0), S),
        DTypeError,
        "`x_zero_point` is int8; it must be uint8, as",
    ),
    (lambda: ms.qlinear_softmax(X, S, Z, S, Z, opset=13, axis=2), AxisError, "qlinear_softmax: `axis` is 2"),
    (lambda: ms.qlinear_where(X, X, S, Z, X, S, Z, S, Z), DTypeError, "`condition` is uint8; it must be bool"),
    (
        lambda: ms.qlinear_concat(S, Z, [X, S], axis=0),
        SignatureError,
        "got 2 inputs; each array comes with",
    ),
    (
        lambda: ms.qlinear_concat(S, Z, [X.view("i1"), S, np.int8(0)], axis=0),
        DTypeError,
        r"`inputs\[0\]` is int8",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
