"""Normalizations, Softmax and Dropout: values from NumPy formulas, every version, errors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs, symbolic_shape
from onnx import TensorProto, helper

from jaxops import ops
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, SignatureError, StaticError
from jaxops.ops import dropout, hardmax, log_softmax, softmax

pytestmark = pytest.mark.optimized
RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def standard(x: np.ndarray, axes: tuple[int, ...], epsilon: float = 1e-5) -> np.ndarray:
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def column(v: np.ndarray, rank: int) -> np.ndarray:
    return v.astype(np.float64).reshape((1, -1) + (1,) * (rank - 2))


def lrn_by_hand(x: np.ndarray, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> np.ndarray:
    y, count = np.empty(x.shape), x.shape[1]
    for c in range(count):
        low, high = max(0, c - (size - 1) // 2), min(count - 1, c + -(-(size - 1) // 2))
        total = (x[:, low : high + 1].astype(np.float64) ** 2).sum(1)
        y[:, c] = x[:, c] / (bias + alpha / size * total) ** beta
    return y


def soft(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    powers = np.exp(x.astype(np.float64))
    return powers / powers.sum(axes, keepdims=True)


@dataclass
class Case:
    name: str
    fn: Callable[..., Any]
    inputs: list[np.ndarray]
    expected: np.ndarray
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


X, S, B, M, V = f32(2, 4, 3, 5), f32(4), f32(4), f32(4), np.abs(f32(4)) + 0.1
G = standard(X.reshape(2, 2, -1), (2,)).reshape(X.shape)
NORM2 = np.sqrt((X.astype(np.float64) ** 2).sum(1, keepdims=True))
CASES = [
    Case(
        "batch/4d",
        ops.batch_normalization,
        [X, S, B, M, V],
        column(S, 4) * (X - column(M, 4)) / np.sqrt(column(V, 4) + 1e-3) + column(B, 4),
        {"epsilon": 1e-3},
    ),
    Case(
        "batch/vector",
        ops.batch_normalization,
        [X[0, 0, 0], S[:1], B[:1], M[:1], V[:1]],
        S[0] * (X[0, 0, 0] - M[0]) / np.sqrt(V[0] + 1e-5) + B[0],
    ),
    Case("batch/empty", ops.batch_normalization, [X[:0], S, B, M, V], np.zeros((0, 4, 3, 5)), {"epsilon": 1e-3}),
    Case(
        "batch/training",
        lambda *a, **k: ops.batch_normalization(*a, **k)[0],
        [X, S, B, M, V],
        standard(X, (0, 2, 3)) * column(S, 4) + column(B, 4),
        {"training_mode": 1},
    ),
    Case("lrn/odd", ops.lrn, [X], lrn_by_hand(X, 3, 2.0), {"size": 3, "alpha": 2.0}),
    Case("lrn/even", ops.lrn, [X], lrn_by_hand(X, 4, 2.0, 0.5), {"size": 4, "alpha": 2.0, "beta": 0.5}),
    Case("lrn/one", ops.lrn, [X], lrn_by_hand(X, 1, 2.0, 1.0), {"size": 1, "alpha": 2.0, "beta": 1.0}),
    Case("lrn/power", ops.lrn, [X], lrn_by_hand(X, 2, 2.0, 0.3), {"size": 2, "alpha": 2.0, "beta": 0.3}),
    Case("lrn/wide", ops.lrn, [X], lrn_by_hand(X, 19, 2.0), {"size": 19, "alpha": 2.0}),
    Case(
        "instance",
        ops.instance_normalization,
        [X, S, B],
        standard(X, (2, 3)) * column(S, 4) + column(B, 4),
    ),
    Case(
        "group",
        ops.group_normalization,
        [X, S, B],
        G * column(S, 4) + column(B, 4),
        {"num_groups": 2},
    ),
    Case("layer/no bias", ops.layer_normalization, [X, f32(5) * 0 + 2], standard(X, (3,)) * 2),
    Case(
        "layer/axis",
        ops.layer_normalization,
        [X, X[0, :1], X[1]],
        standard(X, (1, 2, 3)) * X[0, :1] + X[1],
        {"axis": 1},
    ),
    Case(
        "rms",
        ops.rms_normalization,
        [X, X[0, 0]],
        X / np.sqrt((X.astype(np.float64) ** 2).mean((2, 3), keepdims=True) + 1e-5) * X[0, 0],
        {"axis": -2},
    ),
    Case("lp/2", ops.lp_normalization, [X], X / NORM2, {"axis": 1}),
    Case("lp/1", ops.lp_normalization, [X], X / np.abs(X).sum(-1, keepdims=True), {"p": 1}),
    Case("lp/zero", ops.lp_normalization, [X * 0], X * 0),
    Case("mvn", ops.mean_variance_normalization, [X], standard(X, (0, 2, 3), 0)),
    Case("mvn/axis", ops.mean_variance_normalization, [X], standard(X, (1,), 0), {"axes": (-3,)}),
    Case("softmax", softmax, [X], soft(X, (1,)), {"axis": 1}),
    Case("softmax/axes", softmax, [X], soft(X, (1, 2, 3)), {"axes": (1, 2, 3)}),
    Case("softmax/empty axis", softmax, [X[..., :0]], np.zeros((2, 4, 3, 0))),
    Case("softmax/large", softmax, [np.float32([1e4, 1e4 - 1])], soft(np.float32([0, -1]), (0,))),
    Case("log_softmax", log_softmax, [X], np.log(soft(X, (3,)))),
    Case("log_softmax/axes", log_softmax, [X], np.log(soft(X, (0, 2))), {"axes": (2, 0)}),
    Case("hardmax/ties", hardmax, [np.float32([[1, 3, 3], [2, 2, 2]])], np.array([[0, 1, 0], [1, 0, 0]])),
    Case("hardmax/axes", hardmax, [np.float32([[1, 3], [3, 0]])], np.array([[0, 1], [0, 0]]), {"axes": (0, 1)}),
    Case("hardmax/nan", hardmax, [np.float32([1, np.nan, 3])], np.array([0, 1, 0])),
    Case("dropout/inference", dropout, [X], X),
    Case("dropout/nothing", lambda x: dropout(x, 0.0, True, seed=1), [X], X),
]


def eager(case: Case) -> Any:
    return case.fn(*map(jnp.asarray, case.inputs), **case.attributes)


def static(case: Case) -> Any:
    return case.fn(*case.inputs, **case.attributes)


def jitted(case: Case) -> Any:
    return jax.jit(lambda *a: case.fn(*a, **case.attributes))(*case.inputs)


def vmapped(case: Case) -> Any:
    stacked = [np.stack([x, x + 1]) for x in case.inputs]
    return jax.vmap(lambda *a: case.fn(*a, **case.attributes))(*stacked)[0]


def symbolic_batch(case: Case) -> Any:
    first, *rest = case.inputs
    if first.ndim < 4 or first.shape[0] == 0 or any(r.ndim == 4 for r in rest):
        pytest.skip("no batch")
    spec = jax.ShapeDtypeStruct(symbolic_shape("b, _, _, _", like=first.shape), first.dtype)
    fn = export(jax.jit(lambda *a: case.fn(*a, **case.attributes)))(spec, *rest)
    return fn.call(first, *rest)


@pytest.mark.grid
@pytest.mark.parametrize("run", [eager, static, jitted, vmapped, symbolic_batch])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case: Case, run: Callable[[Case], Any]) -> None:
    found = run(case)
    assert found.dtype == np.float32
    assert found.shape == case.expected.shape
    np.testing.assert_allclose(found, case.expected, rtol=2e-5, atol=2e-5)


def test_a_wrong_operator_is_caught() -> None:
    wrong = Case("wrong", lambda x: softmax(x, axis=0), [X], soft(X, (1,)))
    with pytest.raises(AssertionError):
        test_value(wrong, jitted)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_other_types(case: Case, dtype: Any) -> None:
    with jax.enable_x64(dtype == np.float64):
        found = case.fn(*(jnp.asarray(x, dtype) for x in case.inputs), **case.attributes)
        assert found.dtype == dtype
        if case.name != "softmax/large":  # float16 cannot hold 9999
            tolerance = {2: 0.1, 8: 2e-5}[np.dtype(dtype).itemsize]
            np.testing.assert_allclose(
                np.asarray(found).astype(np.float64), case.expected, rtol=tolerance, atol=tolerance
            )


def test_float16_statistics_do_not_overflow() -> None:
    x = jnp.full((1, 2, 300), 300, jnp.float16)
    one = jnp.ones(2, jnp.float16)
    assert jnp.isfinite(ops.lrn(x, size=3)).all()
    assert (ops.lp_normalization(x[0, :, :2]) - 0.7071 < 1e-3).all()
    y, mean, var = ops.batch_normalization(x, one, one, one, one, training_mode=1, momentum=0.0)
    assert (y == 1).all()
    assert (mean == 300).all()
    assert (var == 0).all()


@pytest.mark.parametrize("fn", [ops.lp_normalization, softmax, log_softmax, lambda x: ops.lrn(x, size=2)])
def test_gradient(fn: Callable[..., Any]) -> None:
    x = jnp.asarray(X)
    jax.test_util.check_grads(fn, (x,), order=1, modes=["rev"], atol=2e-2, rtol=2e-2)
    assert jnp.isfinite(jax.grad(lambda x: fn(x).sum())(x * 0)).all()


def test_training_outputs() -> None:
    _, mean, var = ops.batch_normalization(*map(jnp.asarray, (X, S, B, M, V)), training_mode=1, momentum=0.9)
    np.testing.assert_allclose(mean, M * 0.9 + X.mean((0, 2, 3)) * 0.1, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(var, V * 0.9 + X.var((0, 2, 3)) * 0.1, rtol=1e-4, atol=1e-6)
    wider = ops.batch_normalization(X.astype(np.float16), S, B, M, V, training_mode=1)
    assert [v.dtype.name for v in wider] == ["float16", "float32", "float32"]


def test_layer_statistics() -> None:
    _, mean, inverse = ops.layer_normalization(X.astype(np.float16), X[0, 0, 0], axis=2, return_statistics=True)
    assert mean.dtype == inverse.dtype == np.float32
    np.testing.assert_allclose(mean, X.mean((2, 3), keepdims=True), atol=1e-3)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(X.var((2, 3), keepdims=True) + 1e-5), rtol=1e-2)


def test_stash_type() -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(np.float64([1.0, 1.0 + 1e-9]))
        one = jnp.ones(2)
        assert (ops.layer_normalization(x, one, epsilon=0.0, stash_type=np.float64) != 0).all()
        assert ops.rms_normalization(x, one.astype(jnp.float16)).dtype == jnp.float16


def test_dropout_mask() -> None:
    x = jnp.ones((100, 100))
    y, mask = dropout(x, 0.25, True, seed=3, return_mask=True)
    assert mask.dtype == bool
    assert 0.7 < mask.mean() < 0.8
    np.testing.assert_allclose(y, np.asarray(mask) / np.float32(0.75))
    key = jax.random.key(3)
    other, mask = jax.jit(lambda x, ratio: dropout(x, ratio, True, seed=3, rng=key, return_mask=True))(x, 0.25)
    assert 0.7 < mask.mean() < 0.8
    assert (other != y).any()  # `rng` takes precedence
    np.testing.assert_allclose(other, dropout(x, 0.25, True, rng=key))
    assert dropout(X, return_mask=True)[1].all()


def test_a_seed_of_dropout_is_that_of_numpy() -> None:
    sizes = (3, 7, 100)  # more numbers than one state of the generator has
    for seed, ratio in ((0, 0.5), (2**32 - 1, 0.1), (7, 0.999)):
        kept = np.random.RandomState(seed).uniform(size=sizes) >= np.float32(ratio)
        _, mask = dropout(jnp.ones(sizes), ratio, True, seed=seed, return_mask=True)
        np.testing.assert_array_equal(mask, kept)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(mask, np.random.RandomState(8).uniform(size=sizes) >= np.float32(ratio))

    def fn(x: Any, ratio: Any = 0.5) -> Any:
        return dropout(x, ratio, True, seed=5)

    x = jnp.ones((4, 3))
    expected = 2.0 * (np.random.RandomState(5).uniform(size=x.shape) >= 0.5)
    np.testing.assert_array_equal(jax.jit(fn)(x, 0.5), expected)
    (spec,) = symbolic_args_specs([x], ["b, 3"])
    np.testing.assert_array_equal(export(jax.jit(fn))(spec).call(x), expected)
    np.testing.assert_array_equal(jax.vmap(fn)(jnp.stack([x, 3 * x])), np.stack([expected, 3 * expected]))
    np.testing.assert_array_equal(jax.grad(lambda x: fn(x).sum())(x), expected)
    np.testing.assert_array_equal(dropout(x, 0.5, True, seed=5 + 2**32), expected)  # 32 bits of it count
    np.testing.assert_allclose(dropout(x.astype(np.float16), 0.1, True, seed=5).max(), 1 / 0.9, rtol=1e-3)


def group_normalization_18(*inputs: np.ndarray) -> Any:
    return at_opset("GroupNormalization", 18, *inputs, num_groups=2)[0]


def test_group_normalization_with_a_scale_per_group() -> None:
    expected = G * column(np.repeat(S[:2], 2), 4) + column(np.repeat(B[:2], 2), 4)
    np.testing.assert_allclose(group_normalization_18(X, S[:2], B[:2]), expected, rtol=1e-4, atol=1e-5)


def reference(op: str, opset: int, inputs: list[Any], n_outputs: int = 1, **attributes: Any) -> list[np.ndarray]:
    """The same by onnxruntime."""
    names = [f"x{i}" for i in range(len(inputs))]
    outputs = [f"y{i}" for i in range(n_outputs)]
    node = helper.make_node(op, names, outputs, **attributes)
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, kinds[x.dtype], x.shape) for n, x in zip(names, inputs, strict=True)],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip(names, inputs, strict=True))))


VERSIONS = [
    *(("BatchNormalization", n, [X, S, B, M, V], {}) for n in (7, 8, 9, 13, 14, 15)),
    ("BatchNormalization", 7, [X, *(np.abs(f32(4, 3, 5)) for _ in range(4))], {"spatial": 0}),
    *((op, n, [X], {"axis": 2}) for op in ("Softmax", "LogSoftmax", "Hardmax") for n in (7, 11, 12, 13)),
    *(("Dropout", n, [X], {"ratio": 0.4}) for n in (7, 10)),
    *(("Dropout", n, [X], {}) for n in (12, 13)),
    ("LayerNormalization", 17, [X, X[0], X[1]], {"axis": 1}),
]


@pytest.mark.parametrize(("op", "opset", "inputs", "attributes"), VERSIONS, ids=lambda v: str(v)[:20])
def test_versions_agree_with_onnxruntime(op: str, opset: int, inputs: list[Any], attributes: Any) -> None:
    (found, *_), (expected, *_) = at_opset(op, opset, *inputs, **attributes), reference(op, opset, inputs, **attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 6])
def test_batch_normalization_training_before_7(opset: int) -> None:
    inputs = [X, S, B, M, V]
    legacy = {"consumed_inputs": (0,)} if opset == 1 else {}
    (tested,) = at_opset("BatchNormalization", opset, *inputs, is_test=1, **legacy)
    np.testing.assert_allclose(tested, ops.batch_normalization(*inputs), rtol=1e-5)
    y, mean, var, saved_mean, saved_var = at_opset(
        "BatchNormalization", opset, *inputs, n_outputs=5, momentum=0.75, **legacy
    )
    np.testing.assert_allclose(y, standard(X, (0, 2, 3)) * column(S, 4) + column(B, 4), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, M * 0.75 + X.mean((0, 2, 3)) * 0.25, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(var, V * 0.75 + X.var((0, 2, 3)) * 0.25, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(saved_mean, X.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(saved_var, X.var((0, 2, 3)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("opset", [7, 9])
def test_five_outputs_mean_training(opset: int) -> None:
    found = at_opset("BatchNormalization", opset, X, S, B, M, V, n_outputs=5)
    np.testing.assert_allclose(found[3], X.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)


def test_not_spatial_training() -> None:
    parameters = [np.abs(f32(4, 3, 5)) for _ in range(4)]
    y, *rest = at_opset("BatchNormalization", 7, X, *parameters, n_outputs=5, spatial=0)
    np.testing.assert_allclose(y, standard(X, (0,)) * parameters[0] + parameters[1], rtol=1e-3, atol=1e-4)
    assert all(v.shape == (4, 3, 5) for v in rest)


def test_dropout_versions() -> None:
    key = jax.random.key(0)
    for opset in (1, 6):
        y, mask = at_opset("Dropout", opset, X, is_test=1, n_outputs=2)
        assert (y == X).all()
        assert mask.dtype == np.float32
        y, mask = at_opset("Dropout", opset, jnp.asarray(X), ratio=0.5, n_outputs=2, rng=key)
        np.testing.assert_allclose(y, X * mask * 2)
    assert at_opset("Dropout", 7, X, n_outputs=2)[1].dtype == np.float32
    assert at_opset("Dropout", 10, X, n_outputs=2)[1].dtype == bool
    for opset in (12, 13, 22):
        y, mask = at_opset("Dropout", opset, X, np.float32(0.5), np.bool_(True), n_outputs=2, seed=7)
        np.testing.assert_allclose(y, X * np.asarray(mask) * 2)


ERRORS = [
    (lambda: ops.batch_normalization(X, S[:3], B, M, V), ShapeError, r"`scale` has the shape \(3,\).*must be \(4,\)"),
    (lambda: ops.batch_normalization(np.float32(1), S, B, M, V), ShapeError, "is a scalar"),
    (lambda: ops.batch_normalization(X, S, B, M, V, training_mode=2), ArgumentError, "`training_mode` is 2"),
    (lambda: ops.batch_normalization(X.astype(int), S, B, M, V), DTypeError, "`x` must be floating-point, got int32"),
    (lambda: ops.lrn(X, size=0), ArgumentError, "`size` is 0; it must be at least 1"),
    (lambda: ops.lrn(S, size=1), ShapeError, r"x of \(4,\) has no channel axis"),
    (lambda: ops.instance_normalization(S, S, B), ShapeError, "no channel axis"),
    (lambda: ops.group_normalization(X, S, B, num_groups=3), ShapeError, "4 channels of .* divide into 3 groups"),
    (lambda: ops.group_normalization(X, S, B, num_groups=0), ArgumentError, "`num_groups` is 0"),
    (lambda: ops.layer_normalization(X, S), ShapeError, "do not broadcast"),
    (lambda: ops.layer_normalization(X[:1], X), ShapeError, r"`scale` of .* must broadcast to \(1, 4"),
    (lambda: ops.layer_normalization(X, X, axis=4), AxisError, "`axis` is 4"),
    (lambda: ops.rms_normalization(X, X, stash_type=np.int8), DTypeError, "`stash_type` is int8; .* float16, bfloat16"),
    (lambda: ops.layer_normalization(X, X, stash_type=1), DTypeError, "`stash_type` is 1; it must be an element type"),
    (lambda: ops.lp_normalization(X, p=3), ArgumentError, "`p` is 3; it must be one of 1, 2"),
    (lambda: ops.mean_variance_normalization(S), AxisError, "`axes` is 2"),
    (lambda: softmax(X, axis=-5), AxisError, "softmax: `axis` is -5"),
    (lambda: hardmax(X, axes=(1, 1)), AxisError, "names an axis twice"),
    (lambda: log_softmax(np.arange(3)), DTypeError, "log_softmax: `input` must be floating-point, got int32"),
    (lambda: dropout(X, 0.5, True), ArgumentError, "training needs a random key; pass `rng`, such as jax"),
    (lambda: dropout(X, 1.0, True, seed=0), ArgumentError, r"`ratio` is 1; it must be in \[0, 1\)"),
    (lambda: dropout(X, S, True, seed=0), ShapeError, "`ratio` must be one number"),
    (lambda: dropout(X, 0.5, S > 0), ShapeError, "`training_mode` must be one boolean"),
    (lambda: jax.jit(lambda m: dropout(X, 0.5, m))(True), StaticError, "`training_mode` must be known"),
    (
        lambda: at_opset("BatchNormalization", 15, X, S, B, M, V, n_outputs=3),
        SignatureError,
        "3 outputs were asked for",
    ),
    (lambda: at_opset("BatchNormalization", 6, X, S, B, M, V, n_outputs=5, is_test=1), SignatureError, "is only Y"),
    (lambda: group_normalization_18(X, S, B), ShapeError, r"must be \(2,\)"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for _, _, m in ERRORS])
def test_error(call: Callable[[], Any], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        call()
