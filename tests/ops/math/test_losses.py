"""The losses against their formulas in NumPy, and against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax.export import export, symbolic_args_specs
from onnx import helper

import jaxops as jo
import jaxops.onnx
from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError

RNG = np.random.default_rng(3)
CLASSES = 5
SHAPES = [(4, CLASSES), (3, CLASSES, 2), (2, CLASSES, 3, 2), (2, CLASSES, 1, 3, 2)]
NAMES = {
    "NegativeLogLikelihoodLoss": jo.negative_log_likelihood_loss,
    "SoftmaxCrossEntropyLoss": jo.softmax_cross_entropy_loss,
}


def operands(shape, dtype=np.float32, ignore=None, weighted=False):
    scores = RNG.normal(size=shape).astype(dtype)
    labels = RNG.integers(0, CLASSES, (shape[0], *shape[2:]))
    if ignore is not None:
        labels.flat[::3] = ignore
    return [scores, labels, *([RNG.uniform(0.5, 2, CLASSES).astype(dtype)] if weighted else [])]


def formula(op, scores, labels, weights=None, ignore_index=None, reduction="mean"):
    x = np.moveaxis(scores.astype(np.float64), 1, -1)
    if op == "SoftmaxCrossEntropyLoss":
        x = x - x.max(-1, keepdims=True)
        x = x - np.log(np.exp(x).sum(-1, keepdims=True))
    counts = labels != ignore_index
    safe = np.where(counts, labels, 0)
    factor = np.where(counts, 1.0 if weights is None else weights.astype(np.float64)[safe], 0)
    loss = np.where(counts, -np.take_along_axis(x, safe[..., None], -1)[..., 0], 0) * factor
    return loss if reduction == "none" else loss.sum() / (factor.sum() if reduction == "mean" else 1)


def runtime(op, inputs, opset, outputs=1, **attributes):
    names = ["a", "b", "c"][: len(inputs)]
    node = helper.make_node(op, names, ["y", "z"][:outputs], **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, dict(zip(names, inputs, strict=True)))


def close(found, expected, dtype=np.float32):
    assert found.dtype == dtype
    digits = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1e-2}[np.dtype(dtype).name]
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=digits, atol=digits)


@pytest.mark.grid
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore", [None, 2, -100, 2**40])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("op", NAMES)
def test_formula(op, weighted, ignore, reduction):
    fn = NAMES[op]
    for shape in SHAPES:
        given = operands(shape, ignore=ignore, weighted=weighted)
        attributes = {"reduction": reduction} | ({} if ignore is None else {"ignore_index": ignore})
        expected = formula(op, *given, **attributes)
        close(fn(*given, **attributes), expected)
        if ignore == 2**40:  # with x64 off no traced label holds it
            continue
        traced = [jnp.asarray(x) for x in given]
        close(jax.jit(lambda *xs: fn(*xs, **attributes))(*traced), expected)  # noqa: B023
        close(runtime(op, given, 13, **attributes)[0], expected)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("op", NAMES)
def test_element_types(op, dtype):
    with jax.enable_x64(True):
        given = operands(SHAPES[1], dtype, ignore=-1, weighted=True)
        for labels in (given[1], given[1].astype(np.int8), jnp.asarray(given[1].astype(np.int8))):
            close(NAMES[op](given[0], labels, given[2], ignore_index=-1), formula(op, *given, -1), dtype)


@pytest.mark.parametrize("opset", [12, 13, 22])
def test_versions(opset):
    scores, labels, weights = operands(SHAPES[2], ignore=-1, weighted=True)
    attributes = {"ignore_index": -1, "reduction": "none"}
    op = jaxops.onnx.opset(opset)
    for name in NAMES:
        found = getattr(op, name)(scores, labels, weights, **attributes)
        close(found, formula(name, scores, labels, weights, **attributes))
    loss, log_prob = op.SoftmaxCrossEntropyLoss(scores, labels, n_outputs=2, ignore_index=-1)
    theirs = runtime("SoftmaxCrossEntropyLoss", [scores, labels], min(opset, 13), 2, ignore_index=-1)
    close(loss, theirs[0])
    close(log_prob, theirs[1])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("op", NAMES)
def test_the_mean_over_no_samples_is_nan(op, weighted):
    scores, labels, *weights = operands((2, CLASSES), weighted=weighted)
    ignored = np.full_like(labels, -1)
    assert np.isnan(NAMES[op](scores, ignored, *weights, ignore_index=-1))
    assert np.isnan(runtime(op, [scores, ignored, *weights], 13, ignore_index=-1)[0])
    assert np.isnan(NAMES[op](scores[:0], labels[:0], *weights))
    assert NAMES[op](scores[:0], labels[:0], *weights, reduction="sum") == 0
    grads = jax.grad(lambda x, *w: NAMES[op](x, ignored, *w, ignore_index=-1), range(1 + weighted))(scores, *weights)
    assert all((g == 0).all() for g in grads)


@pytest.mark.parametrize("ignore", [1, -100, 2**31 - 1])
@pytest.mark.parametrize("op", NAMES)
def test_gradient(op, ignore):
    scores, labels, weights = operands(SHAPES[1], ignore=ignore, weighted=True)
    fn = jax.jit(jax.grad(lambda x, w, i: NAMES[op](x, i, w, ignore_index=ignore), (0, 1)))
    found = fn(scores, weights, labels)

    def numeric(position):
        given, step = [scores.astype(np.float64), weights.astype(np.float64)], 1e-6
        out = np.zeros(given[position].shape)
        for at in np.ndindex(out.shape):
            moved = [[x.copy() for x in given] for _ in range(2)]
            moved[0][position][at] += step
            moved[1][position][at] -= step
            high, low = (formula(op, x, labels, w, ignore) for x, w in moved)
            out[at] = (high - low) / (2 * step)
        return out

    for position in (0, 1):
        np.testing.assert_allclose(found[position], numeric(position), atol=1e-5)


def test_an_ignored_sample_leaves_gradients_finite():
    """Its log-probabilities may be infinite, and its label outside of the classes."""
    x = np.array([[-np.inf, -np.inf], [-1.0, -2.0]], np.float32)
    fn = jax.jit(jax.value_and_grad(lambda x, w, i: jo.negative_log_likelihood_loss(x, i, w, ignore_index=-7), (0, 1)))
    value, (dx, dw) = fn(x, np.float32([2, 3]), np.array([-7, 1]))
    assert value == 2
    assert dx.tolist() == [[0, 0], [0, -1]]
    assert dw.tolist() == [0, 0]
    masked = np.array([[0.0, -np.inf, 1.0]], np.float32)
    assert np.isfinite(jax.grad(lambda s: jo.softmax_cross_entropy_loss(s, np.array([0])))(masked)).all()


def test_a_traced_label_outside_of_the_classes_gives_nan():
    x = jnp.zeros((3, 2))
    for outside in (2, -1):
        found = jax.jit(lambda i: jo.negative_log_likelihood_loss(x, i, reduction="none"))(jnp.array([0, outside, 1]))
        assert np.isnan(found).tolist() == [False, True, False]


def test_large_scores_stay_exact():
    assert jo.softmax_cross_entropy_loss(np.float32([[1e4, 0]]), np.array([1])) == 1e4


def test_vmap():
    given = [operands(SHAPES[1], ignore=-1, weighted=True) for _ in range(2)]
    xs = [np.stack(x) for x in zip(*given, strict=True)]
    for op, fn in NAMES.items():
        found = jax.vmap(lambda *x: fn(*x, ignore_index=-1))(*xs)  # noqa: B023
        close(found, [formula(op, *x, -1) for x in given])


def test_symbolic_sizes():
    given = operands(SHAPES[1], ignore=-1, weighted=True)
    specs = symbolic_args_specs([jnp.asarray(x) for x in given], ["n, c, d", "n, d", "c"])
    for op, fn in NAMES.items():
        made = export(jax.jit(lambda *x: fn(*x, ignore_index=-1)))(*specs)  # noqa: B023
        close(made.call(*(jnp.asarray(x) for x in given)), formula(op, *given, -1))


X, Y, W = operands((3, CLASSES), weighted=True)
NLL, SCE = jo.negative_log_likelihood_loss, jo.softmax_cross_entropy_loss
ERRORS = [
    (lambda: NLL(X[0], Y), ShapeError, r"negative_log_likelihood_loss: `input` of \(5,\) must be \(N, C\) or"),
    (lambda: NLL(X, Y[:2]), ShapeError, r"`target` of \(2,\) does not fit `input` of \(3, 5\); it must be \(3,\)"),
    (lambda: SCE(X, Y, W[:2]), ShapeError, r"`weights` of \(2,\) does not fit `scores` of \(3, 5\); .* \(5,\), one w"),
    (lambda: SCE(X, Y.astype(float)), DTypeError, "softmax_cross_entropy_loss: `labels` must be integers, got float64"),
    (lambda: SCE(X.astype(int), Y), DTypeError, "`scores` must be floating-point"),
    (
        lambda: NLL(X, np.array([0, 5, 1])),
        BoundsError,
        r"`target` holds 5 at position \(1,\), outside the 5 classes",
    ),
    (lambda: SCE(X, np.array([0, 1, -1])), BoundsError, "`labels` holds -1 .*; set `ignore_index`"),
    (
        lambda: NLL(X, Y, reduction="max"),
        ArgumentError,
        "`reduction` is 'max'; it must be one of 'mean', 'sum', 'none'",
    ),
    (lambda: SCE(X, Y, ignore_index=0.5), DTypeError, "`ignore_index` must be integers"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
