"""Products of uint8 and int8 without the conversion that JAX adds.

A processor with AVX512-VNNI, but no AMX, has an instruction for uint8 times int8 summed in int32, and none for two
int8. StableHLO and XLA:CPU have the product; `lax.dot_general` converts both operands to int32 before it, which takes
many times as long.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.jax_internals import Primitive, ir, mlir, stablehlo
from jaxops.kernels.target import Target


def data_type(target: Target) -> Any:
    """Returns the type of 8-bit data that the target multiplies fastest with int8 weights. It is uint8 in specialized
    programs only, since the product of uint8 and int8 has no derivative."""
    has = target.features
    mixes = target.platform == "cpu" and target.specialized and "avx512_vnni" in has and "amx_int8" not in has
    return jnp.uint8 if mixes else jnp.int8


def mixed_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the product of uint8 (…, K) and int8 (K, N) in int32: (…, N)."""
    return _MIXED.bind(a, lax.transpose(b, (1, 0)))


_MIXED = Primitive("mixed_product")  # of (…, K) and (N, K)


@_MIXED.def_abstract_eval
def _sizes(a: Any, b: Any) -> Any:
    return a.update(shape=(*a.shape[:-1], b.shape[0]), dtype=np.dtype(np.int32))


def _lowered(context: Any, a: Any, b: Any) -> list[Any]:
    (result,) = context.avals_out
    numbers = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=[],
        rhs_batching_dimensions=[],
        lhs_contracting_dimensions=[len(result.shape) - 1],
        rhs_contracting_dimensions=[1],
    )
    type = ir.RankedTensorType.get(result.shape, ir.IntegerType.get_signless(32))
    return [stablehlo.dot_general(type, a, b, numbers)]


mlir.register_lowering(_MIXED, _lowered, platform="cpu")
