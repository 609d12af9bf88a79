"""Values that are stored in memory on a CPU. XLA would compute them again in each loop that reads them."""

from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from jaxops.jax_internals import Primitive, mlir
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target


def stored(x: jax.Array) -> jax.Array:
    """Returns the value as an array in memory: XLA:CPU cannot fuse its computation into the loops that read it.

    A sum would be computed again for each window that reads it, as in SqueezeNet, whose first convolution is followed
    by a pool.
    """
    return _STORED.bind(x)


def stored_in_order(x: jax.Array) -> jax.Array:
    """Returns transposed weights as an array in memory whose last axis is adjacent.

    A loop would read them one by one, at distant addresses. XLA of JAX 0.12 stores a matrix in the order that its
    elements had before they were transposed, so it stores a vector. A larger array is not worth that: the loop that
    computes it would divide each index.
    """
    return lax.reshape(stored(lax.reshape(x, (x.size,))), x.shape)


_STORED = Primitive("stored")
_STORED.def_abstract_eval(lambda x: x)


@jax.jit
def _same(x: jax.Array) -> jax.Array:
    return x


def _call(x: jax.Array) -> jax.Array:
    with set_xla_metadata(inlineable="false"):
        return _same(x)


mlir.register_lowering(_STORED, mlir.lower_fun(_call, multiple_results=False))


def stored_value(x: Any) -> Any:
    """Stores x in memory, in specialized programs on a CPU."""
    return _stored_value(x)


def stored_gate(x: Any) -> Any:
    """Stores a gate of a recurrent layer in memory, in specialized programs on a CPU whose weights are not prepared.

    Without `compiler.xla_options` LLVM does not vectorize a loop with several exponentials, such as that of an LSTM or
    a GRU.
    """
    return _stored_gate(x)


def _is_specialized_cpu(target: Target) -> bool:
    return target.platform == "cpu" and target.specialized


_stored_value = NamedCall(
    "stored_value", lambda x: x, lambda target, x: stored if _is_specialized_cpu(target) else None
)
_stored_gate = NamedCall(
    "stored_gate",
    lambda x: x,
    lambda target, x: stored if _is_specialized_cpu(target) and not target.prepared else None,
)
