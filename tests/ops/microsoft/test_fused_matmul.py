"""FusedMatMul against NumPy and onnxruntime."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax.export import export, symbolic_args_specs
from onnx import helper

import jaxops
from jaxops.errors import ArgumentError, DTypeError, ShapeError
from jaxops.microsoft import fused_matmul

RNG = np.random.default_rng(5)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def laid_out(rows, columns, batch, swapped, batched):
    """The shape of an operand whose matrices are (rows, columns)."""
    first, last = (columns, rows) if swapped else (rows, columns)
    return (first, *batch, last) if batched else (*batch, first, last)


def formula(a, b, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    def arranged(x, swapped, batched):
        x = np.moveaxis(x, 0, -2) if batched else x
        return np.swapaxes(x, -1, -2) if swapped and x.ndim > 1 else x

    return alpha * (arranged(a, transA, transBatchA) @ arranged(b, transB, transBatchB))


def runtime(a, b, **attributes):
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in (("a", a), ("b", b))
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})[0]


NAMES = ("transA", "transB", "transBatchA", "transBatchB")
FLAGS = list(itertools.product((0, 1), repeat=4))


@pytest.mark.grid
@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("batch", [(2,), (2, 5)], ids=str)
def test_transposes(batch, flags):
    a, b = f32(*laid_out(3, 4, batch, flags[0], flags[2])), f32(*laid_out(4, 6, batch, flags[1], flags[3]))
    attributes = dict(zip(NAMES, flags, strict=True), alpha=0.5)
    expected = formula(a, b, **attributes)
    assert expected.shape == (*batch, 3, 6)
    for found in (
        fused_matmul(a, b, **attributes),
        fused_matmul(jnp.asarray(a), jnp.asarray(b), **attributes),
        jax.jit(lambda a, b: fused_matmul(a, b, **attributes))(a, b),
        runtime(a, b, **attributes),
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "attributes"),
    [
        ((4,), (4, 3), {"transA": 1}),
        ((3, 4), (4,), {"transB": 1}),
        ((4,), (4,), {"transA": 1, "transB": 1}),
        ((2, 3, 4), (5, 4), {"transB": 1}),
        ((3, 2, 4), (1, 4, 5), {"transBatchA": 1}),
        ((2, 3, 0), (2, 0, 4), {"alpha": 2.0}),
    ],
)
def test_single_axes_and_broadcasting(a, b, attributes):
    a, b = f32(*a), f32(*b)
    found = fused_matmul(a, b, **attributes)
    np.testing.assert_allclose(found, formula(a, b, **attributes), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found, runtime(a, b, **attributes), rtol=1e-5, atol=1e-6)


def test_a_transposed_matrix_times_a_single_axis():
    a, b = f32(4, 3), f32(4)  # onnxruntime 1.31 reads `a` as a matrix of (3, 4) instead
    np.testing.assert_allclose(fused_matmul(a, b, transA=1), a.T @ b, rtol=1e-5, atol=1e-6)


def test_batches_broadcast_after_they_are_transposed():
    a, b = f32(3, 2, 4), f32(6, 2, 4, 5)  # onnxruntime wants as many axes of both
    found = fused_matmul(a, b, transBatchA=1)
    np.testing.assert_allclose(found, formula(a, b, transBatchA=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32, np.float64])
def test_element_types(dtype):
    with jax.enable_x64(True):
        a, b = np.full((1, 4096), 1 / 16).astype(dtype), np.ones((4096, 1), dtype)
        found = fused_matmul(a, b, alpha=0.25)
    assert found.dtype == dtype
    assert np.asarray(found) == 64


def test_vmap_gradient_and_symbolic_sizes():
    attributes = {"alpha": 0.5, "transA": 1, "transB": 1, "transBatchB": 1}
    a, b = f32(2, 4, 3), f32(6, 2, 4)

    def fn(a, b):
        return fused_matmul(a, b, **attributes)

    stacked = [np.stack([x, 2 * x]) for x in (a, b)]
    expected = np.stack([formula(x, y, **attributes) for x, y in zip(*stacked, strict=True)])
    np.testing.assert_allclose(jax.vmap(fn)(*stacked), expected, rtol=1e-5, atol=1e-5)
    weights = f32(2, 3, 6)
    da, db = jax.grad(lambda a, b: (fn(a, b) * weights).sum(), (0, 1))(a, b)
    np.testing.assert_allclose(da, 0.5 * np.einsum("bmn,nbk->bkm", weights, b), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(db, 0.5 * np.einsum("bmn,bkm->nbk", weights, a), rtol=1e-4, atol=1e-5)
    specs = symbolic_args_specs([jnp.asarray(a), jnp.asarray(b)], ["b, k, m", "n, b, k"])
    made = export(jax.jit(fn))(*specs)
    np.testing.assert_allclose(made.call(jnp.asarray(a), jnp.asarray(b)), expected[0], rtol=1e-5, atol=1e-5)


def test_the_module_of_the_domain():
    assert jaxops.microsoft.fused_matmul is fused_matmul
    assert not hasattr(jaxops, "fused_matmul")


A, B = f32(3, 4), f32(4, 5)
ERRORS = [
    (lambda: fused_matmul(A, B, transB=1), ShapeError, r"fused_matmul: a of \(3, 4\) and b of \(5, 4\) do not fit"),
    (lambda: fused_matmul(A, B, transBatchA=1), ShapeError, r"`a` of \(3, 4\) has no batch axes .* at least 3 axes"),
    (lambda: fused_matmul(f32(2, 3, 4), f32(5, 4, 3)), ShapeError, r"fused_matmul: shapes \(2,\) and \(5,\) do not"),
    (lambda: fused_matmul(A, f32()), ShapeError, "fused_matmul: `b` is a scalar"),
    (lambda: fused_matmul(A, B.astype(np.float16)), DTypeError, "fused_matmul: operands must have one element type"),
    (lambda: fused_matmul(A.astype(int), B.astype(int)), DTypeError, "fused_matmul: operands must be floating-point"),
    (lambda: fused_matmul(A, B, transA=2), ArgumentError, "fused_matmul: `transA` is 2; it must be 0 or 1"),
    (lambda: fused_matmul(A, B, transBatchB=2), ArgumentError, "`transBatchB` is 2"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
