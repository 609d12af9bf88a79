"""Products of groups, and inverses, against NumPy and against OpenVINO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from openvino_peer import agree

from jaxops.errors import DTypeError, ShapeError, SignatureError
from jaxops.openvino import ops

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=(10, 4)).astype(np.float32), RNG.normal(size=(3, 5, 4)).astype(np.float32)


def test_products_of_groups():
    """OpenVINO itself has the sizes of these, and does not compute them yet."""
    ends = np.array([3, 3, 8])
    expected = np.zeros((10, 5))
    expected[:3], expected[3:8] = A[:3] @ B[0].T, A[3:8] @ B[2].T
    y = jax.jit(ops.grouped_matmul)(A, B, ends)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_array_equal(y[8:], 0)
    batches = RNG.normal(size=(3, 2, 4)).astype(np.float32)
    np.testing.assert_allclose(ops.grouped_matmul(batches, B), batches @ B.transpose(0, 2, 1), atol=1e-5)
    check_grads(lambda a, b: ops.grouped_matmul(a, b, ends), (jnp.asarray(A), jnp.asarray(B)), 1, ["rev"], 1e-2, 1e-2)
    whole = ops.grouped_matmul(A.astype(np.int32) * 3, B.astype(np.int32) * 2, ends)
    assert whole.dtype == np.int32
    half = ops.grouped_matmul(A.astype(np.float16), B.astype(np.float16), ends)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, expected, atol=2e-2)


@pytest.mark.parametrize("adjoint", [True, False])
def test_inverse(adjoint):
    x = RNG.normal(size=(2, 4, 4)).astype(np.float32)
    expected = np.linalg.inv(x.astype(float))
    y = ops.inverse(x, adjoint=adjoint)
    np.testing.assert_allclose(y, expected.transpose(0, 2, 1) if adjoint else expected, rtol=1e-3, atol=1e-3)
    agree(14, "Inverse", [x], {"adjoint": adjoint}, y, atol=1e-3)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (SignatureError, r"`offsets` must be given for `mat_a` of \(10, 4\)", lambda: ops.grouped_matmul(A, B)),
        (SignatureError, "`offsets` must not be given", lambda: ops.grouped_matmul(B, B, [1, 2, 3])),
        (
            ShapeError,
            r"`mat_b` of \(3, 4, 5\) must be \(G, N, 4\)",
            lambda: ops.grouped_matmul(A, B.swapaxes(1, 2), [1] * 3),
        ),
        (ShapeError, r"`offsets` of \(2,\) must be \(3,\)", lambda: ops.grouped_matmul(A, B, [1, 2])),
        (DTypeError, "`data` must be floating-point", lambda: ops.inverse([[1]])),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
