"""Steps of the optimizers against their pseudo code in float64 and the reference evaluator of the standard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError
from jaxops.onnx import load

RNG = np.random.default_rng(4)
KINDS = {"Adagrad": 3, "Adam": 4, "Momentum": 3}
FUNCTIONS = {"Adagrad": jo.training.adagrad, "Adam": jo.training.adam, "Momentum": jo.training.momentum}
PLAIN = {"alpha": 0.9, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.0}
CASES = [
    ("Adagrad", {}),
    ("Adagrad", {"decay_factor": 0.1, "epsilon": 0.5, "norm_coefficient": 0.25}),
    ("Adam", {}),
    ("Adam", {"alpha": 0.5, "beta": 0.25, "epsilon": 0.5, "norm_coefficient": 0.25, "norm_coefficient_post": 0.1}),
    ("Adam", {"alpha": 0.0, "beta": 0.0}),
    ("Momentum", PLAIN),
    ("Momentum", {**PLAIN, "mode": "nesterov", "norm_coefficient": 0.25}),
]
CASE = pytest.mark.parametrize(("op", "attributes"), CASES, ids=[f"{op}-{i}" for i, (op, _) in enumerate(CASES)])


def tensors(op, shapes, dtype=np.float32):
    """All tensors, all gradients, then the state, which is not negative."""
    return [np.abs(RNG.normal(size=s)).astype(dtype) + dtype(0.1) for _ in range(KINDS[op]) for s in shapes]


def written_out(op, r, t, given, attributes):
    """The pseudo code of the standard."""
    n = len(given) // KINDS[op]
    a = {"decay_factor": 0.0, "epsilon": 1e-6, "norm_coefficient": 0.0, "norm_coefficient_post": 0.0}
    a |= {"alpha": 0.9, "beta": 0.999} | attributes
    found = []
    for i in range(n):
        x, g, *state = (v.astype(np.float64) for v in given[i::n])
        g = a["norm_coefficient"] * x + g
        if op == "Adagrad":
            h = state[0] + g * g
            found.append((x - r / (1 + t * a["decay_factor"]) * g / (np.sqrt(h) + a["epsilon"]), h))
        elif op == "Adam":
            v = a["alpha"] * state[0] + (1 - a["alpha"]) * g
            h = a["beta"] * state[1] + (1 - a["beta"]) * g * g
            rate = r * np.sqrt(1 - a["beta"] ** t) / (1 - a["alpha"] ** t) if t > 0 else r
            x = x - rate * v / (np.sqrt(h) + a["epsilon"])
            found.append(((1 - a["norm_coefficient_post"]) * x, v, h))
        else:
            v = a["alpha"] * state[0] + (a["beta"] if t > 0 else 1) * g
            found.append((x - r * (g + a["alpha"] * v if a["mode"] == "nesterov" else v), v))
    return [group[k] for k in range(KINDS[op] - 1) for group in found]


def close(found, expected, rtol=1e-6):
    assert len(found) == len(expected)
    for y, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(y, np.float64), want, rtol=rtol, atol=rtol)


def model(op, attributes, shapes):
    names = [f"{kind}{i}" for kind in "xgvh"[: KINDS[op]] for i in range(len(shapes))]
    outputs = [f"new_{kind}{i}" for kind in "xvh"[: KINDS[op] - 1] for i in range(len(shapes))]
    inputs = [info("r", []), info("t", [], TensorProto.INT64)]
    inputs += [info(name, s) for name, s in zip(names, [*shapes] * KINDS[op], strict=True)]
    step = node(op, ["r", "t", *names], outputs, domain="ai.onnx.preview.training", **attributes)
    opsets = (("", 18), ("ai.onnx.preview.training", 1))
    return build(step, inputs=inputs, outputs=[info(name, None) for name in outputs], opsets=opsets)


@CASE
def test_steps(op, attributes):
    shapes, rate = [(2, 3), (), (700,)], np.float32(0.3)
    given = tensors(op, shapes)
    step = FUNCTIONS[op]
    proto = model(op, attributes, shapes)
    loaded, reference = load(proto), ReferenceEvaluator(proto)
    for t in (0, 1, 5):
        expected = written_out(op, 0.3, t, given, attributes)
        close(step(rate, t, given, **attributes), expected)
        found = loaded(rate, np.int64(t), *given)
        close(found, expected, 2e-5)  # a model has its attributes in float32
        assert [y.dtype for y in found] == [np.float32] * len(expected)
        names = [value.name for value in loaded.inputs]
        close(found, reference.run(None, dict(zip(names, [rate, np.int64(t), *given], strict=True))), 2e-5)
    with pytest.raises(AssertionError):
        close(found, written_out(op, 0.31, 5, given, attributes))


@CASE
def test_types(op, attributes, x64):
    given = tensors(op, [(4,)], np.float64)
    close(FUNCTIONS[op](np.float64(0.3), 3, given, **attributes), written_out(op, 0.3, 3, given, attributes), 1e-12)
    given = [given[0].astype(np.float32), *given[1:]]  # each keeps its own type
    found = FUNCTIONS[op](np.float32(0.3), 3, given, **attributes)
    assert [y.dtype for y in found] == [np.float32] + [np.float64] * (KINDS[op] - 2)
    half = tensors(op, [(4,)], np.float16)
    found = FUNCTIONS[op](np.float32(0.3), 3, half, **attributes)
    assert {y.dtype.name for y in found} == {"float16"}
    close(found, written_out(op, 0.3, 3, half, attributes), 1e-2)


def test_the_first_steps_of_adam_with_a_long_memory():
    given = tensors("Adam", [(3,)])
    for t in (1, 2, 30):
        expected = written_out("Adam", 0.01, t, given, {"beta": 0.99999})
        close(jo.training.adam(0.01, t, given, beta=0.99999), expected, 1e-5)


@CASE
def test_gradients_vmap_and_symbolic_sizes(op, attributes, x64):
    x, g, *state = map(jnp.asarray, tensors(op, [(3, 4)], np.float64))

    def fn(r, x, g):
        return FUNCTIONS[op](r, jnp.int64(2), [x, g, *state], **attributes)

    check_grads(fn, (jnp.float64(0.1), x, g), order=1, modes=["rev"])
    for found, want in zip(jax.vmap(fn, (0, None, None))(jnp.array([0.1, 0.2]), x, g), fn(0.2, x, g), strict=True):
        np.testing.assert_allclose(found[1], want, rtol=1e-6)

    def symbolic(x):
        return FUNCTIONS[op](0.1, jnp.int64(2), [x] * KINDS[op], **attributes)

    if attributes in ({}, PLAIN):
        (spec,) = symbolic_args_specs([x], ["b, 4"])
        close(export(jax.jit(symbolic))(spec).call(x), symbolic(x), 1e-6)


X = np.ones(3, np.float32)
BAD = [
    (lambda: jo.training.adam(0.1, 0, [X] * 3), SignatureError, "adam: got 3 tensors; .* average squared"),
    (lambda: jo.training.adagrad(0.1, 0, []), SignatureError, "adagrad: got 0 tensors; it takes the same num"),
    (lambda: jo.training.adagrad(0.1, 0, [X, X[:2], X]), ShapeError, r"gradient of tensor 0 has the shape \(2,\), but"),
    (lambda: jo.training.adagrad(0.1, 0.5, [X] * 3), DTypeError, "adagrad: `t` must be integers, got float32"),
    (lambda: jo.training.adagrad(1, 0, [X] * 3), DTypeError, "adagrad: `r` must be floating-point, got int"),
    (lambda: jo.training.adagrad(X, 0, [X] * 3), ShapeError, r"adagrad: `r` of \(3,\) must be \(1,\), one number"),
    (lambda: jo.training.adam(0.1, 0, [X, X > 0, X, X]), DTypeError, r"adam: `inputs\[1\]` must be floating-point"),
    (lambda: jo.training.momentum(0.1, 0, [X] * 3, **{**PLAIN, "mode": "n"}), ArgumentError, "`mode` is 'n'; it must"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "match"), BAD, ids=[m for *_, m in BAD])
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
