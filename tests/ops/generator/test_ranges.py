"""Range and EyeLike."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_shape

from jaxops import ops
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SizeError, StaticError


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int32, np.int64])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((3, 9, 3), [3, 6]),
        ((10, 4, -2), [10, 8, 6]),
        ((0, 7, 3), [0, 3, 6]),
        ((0, -1, 1), []),
        ((2, 2, 1), []),
        ((0, 5, -1), []),
    ],
)
def test_range(given: tuple[int, ...], expected: list[int], dtype: Any) -> None:
    found = ops.range(*(np.array(v, dtype) for v in given))
    assert isinstance(found, np.ndarray)
    assert found.dtype == dtype
    assert found.tolist() == expected


def test_range_details() -> None:
    assert ops.range(np.float32(0), np.float32(1), np.float32(0.3)).shape == (4,)
    assert ops.range(2**40, 2**40 + 2, 1).tolist() == [2**40, 2**40 + 1]
    assert ops.range(np.array([0]), np.array([2]), np.array([1])).tolist() == [0, 1]
    assert ops.range(jnp.array(0), jnp.array(3), jnp.array(1)).tolist() == [0, 1, 2]
    # Without float32 in between, 1 + 2048 would stay 2048.
    half = ops.range(np.float16(2048), np.float16(2054), np.float16(1))
    assert half.dtype == np.float16
    assert half.tolist() == np.arange(2048, 2054).astype(np.float16).tolist()
    narrow = ops.range(*(np.array(v, jnp.bfloat16) for v in (0, 3, 1)))
    assert narrow.astype(np.float32).tolist() == [0, 1, 2]


def test_symbolic_range() -> None:
    spec = jax.ShapeDtypeStruct(symbolic_shape("b"), np.float32)

    def count(x: Any, start: int, step: int) -> Any:
        return ops.range(np.int64(start), np.array(2 * x.shape[0], object), np.int64(step))

    for start, step in ((0, 1), (1, 2), (0, 3), (9, 1)):
        run = export(jax.jit(lambda x, a=start, s=step: count(x, a, s)))(spec)
        assert run.call(np.zeros(4, np.float32)).tolist() == list(range(start, 8, step))
        assert run.call(np.zeros(6, np.float32)).tolist() == list(range(start, 12, step))


@pytest.mark.parametrize("k", [-(10**30), -5, -1, 0, 2, 10**30])
def test_eye_like(k: int) -> None:
    for x in (np.ones((3, 4), np.int32), jnp.ones((3, 4), jnp.int32)):
        found = ops.eye_like(x, k=k)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, np.eye(3, 4, k))
        assert ops.eye_like(x, dtype=np.float32).dtype == np.float32


def test_eye_like_elsewhere() -> None:
    spec = jax.ShapeDtypeStruct(symbolic_shape("n, m"), np.float32)
    found = export(jax.jit(lambda x: ops.eye_like(x, dtype=bool, k=1)))(spec).call(np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(found, np.eye(2, 3, 1, bool))
    for opset in (9, 22):
        (found,) = at_opset("EyeLike", opset, np.zeros((2, 2), np.float32), dtype=7)
        assert found.dtype == np.int64


def test_a_symbolic_step_that_may_be_0():
    (n,) = symbolic_shape("n")
    with pytest.raises(SizeError, match="range: the step `delta` must not be 0, but n - 2 may be 0"):
        export(jax.jit(lambda x: ops.range(0, 3, x.shape[0] - 2)))(jax.ShapeDtypeStruct((n,), np.float32))


ERRORS = [
    (lambda: ops.range(0, 3, 0), ArgumentError, "`delta` is 0"),
    (lambda: ops.range(0, [1, 2], 1), ShapeError, "`limit` must be one number"),
    (lambda: ops.range(0, 2.0, 1), DTypeError, "range: operands must have one element type"),
    (lambda: ops.range(0.0, float("inf"), 1.0), ArgumentError, "`start` 0.0, `limit` inf and `delta` 1.0 must be fin"),
    (lambda: jax.jit(lambda n: ops.range(0, n, 1))(3), StaticError, "`limit` must be known while tracing"),
    (
        lambda: ops.range(0, 3, 1, stash_type=np.int8),
        DTypeError,
        "range: `stash_type` is int8; it must be one of float16",
    ),
    (lambda: ops.eye_like(np.zeros((2, 2)), dtype="words"), DTypeError, "eye_like: `dtype` is 'words'; it must be an"),
    (lambda: ops.eye_like(np.zeros(3)), ShapeError, "must be a matrix"),
    (lambda: ops.eye_like(np.zeros((2, 2)), dtype=object), DTypeError, "`dtype` is object; it must be a numeric"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for _, _, m in ERRORS])
def test_error(call: Callable[[], Any], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        call()
