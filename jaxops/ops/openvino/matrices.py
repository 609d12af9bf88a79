"""Matrix products of groups of rows, each with its own matrix, and inverses."""

__all__ = ["grouped_matmul", "inverse"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import accumulation_type, as_traced, floating, integral, unify
from jaxops.errors import SignatureError, shape_text
from jaxops.ops import microsoft
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import Weight, operator
from jaxops.static import ArrayLike, jit_if_concrete


@operator(kind="linear")
def grouped_matmul(mat_a: ArrayLike, mat_b: Weight[ArrayLike], offsets: ArrayLike | None = None) -> jax.Array:
    """Multiplies each group of rows, such as the tokens of an expert, by the transposed matrix of the group.

    mat_a: (T, K), mat_b: (G, N, K), real numbers of one dtype. offsets: (G,), integers, ascending: where each group
    ends among the T rows. Returns (T, N), same dtype: each row times the transposed matrix of its group; rows after the
    last group give zeros. Without offsets, mat_a is (G, M, K), and the result is (G, M, N). 16-bit floats are summed in
    float32.
    Raises ShapeError, SignatureError, DTypeError.
    Source: OpenVINO GroupedMatMul-17, in the form that the library has since 2026.4; its page has mat_b as (G, K, N).

    >>> x, w = jnp.ones((3, 2)), jnp.arange(4.0).reshape(2, 1, 2)
    >>> grouped_matmul(x, w, jnp.array([1, 3])).tolist()
    [[1.0], [5.0], [5.0]]
    """
    a, b = (as_traced(v) for v in unify((mat_a, mat_b), ("mat_a ", "mat_b ")))
    require("real numbers", a)
    (ends,) = integral(offsets=offsets)
    must_fit("mat_a", a.shape, ("T", "K"), ("G", "M", "K"))
    if (ends is None) != (a.ndim == 3):
        needs = "must be given" if ends is None else "must not be given"
        raise SignatureError(f"`offsets` {needs} for `mat_a` of {shape_text(a.shape)}")
    if ends is None:
        must_fit("mat_b", b.shape, (a.shape[0], "N", a.shape[2]))
    else:
        must_fit("mat_b", b.shape, ("G", "N", a.shape[1]))
        must_fit("offsets", ends.shape, (b.shape[0],))
    return _grouped_matmul((a, b, ends))


@jit_if_concrete
def _grouped_matmul(operands: tuple[Any, Any, Any]) -> Any:
    a, b, ends = operands
    dtype, sizes = a.dtype, (*a.shape[:-1], b.shape[1])
    bounded_like(sizes, a)
    work = accumulation_type(dtype)
    a, b = a.astype(work), b.astype(work)
    if ends is None:
        y = _product(a, b, (((2,), (2,)), ((0,), (0,))))
    else:
        ends, place = ends.astype(np.int32), lax.iota(np.int32, a.shape[0])[None]
        starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
        belongs = (place < ends[:, None]) & (place >= starts[:, None])

        def add(total: Any, group: Any) -> tuple[Any, None]:
            matrix, belongs = group
            return jnp.where(belongs[:, None], _product(a, matrix, (((1,), (1,)), ((), ()))), total), None

        y = lax.scan(add, jnp.zeros(sizes, work), (b, belongs))[0]
    return assert_sizes(y.astype(dtype), sizes, dtype)


def _product(a: Any, b: Any, axes: Any) -> Any:
    return lax.dot_general(a, b, axes, precision=lax.Precision.HIGHEST)


@operator(precision="float32")
def inverse(data: ArrayLike, *, adjoint: bool = False) -> jax.Array:
    """Returns the inverses of square matrices.

    data: (…, n, n), floats. Returns an array like data; 16-bit types are computed in float32. adjoint: True for the
    transposes of the inverses.
    Raises ShapeError, DTypeError. Source: OpenVINO Inverse-14.

    >>> inverse(jnp.array([[1.0, 2.0], [0.0, 1.0]]), adjoint=True).tolist()
    [[1.0, 0.0], [-2.0, 1.0]]
    """
    (x,) = floating(data=data)
    y = microsoft.inverse(x)
    return jnp.swapaxes(y, -1, -2) if flag("adjoint", adjoint) else y
