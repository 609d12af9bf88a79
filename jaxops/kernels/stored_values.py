"""Values that are stored in memory on a CPU. XLA would compute them again in each loop that reads them."""

from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.static import Primitive, mlir


def stored(x: jax.Array) -> jax.Array:
    """Returns the value as an array in memory: XLA:CPU cannot fuse its computation into the loops that read it.

    A loop would read transposed weights one by one, at distant addresses: 5×5, 120 channels at 28×28 344 → 86 µs. A sum
    would be computed again for each window that reads it: SqueezeNet, whose first convolution is followed by a pool,
    11 → 3 ms.
    """
    return _STORED.bind(x)


_STORED = Primitive("stored")
_STORED.def_abstract_eval(lambda x: x)


@jax.jit
def _same(x: jax.Array) -> jax.Array:
    return x


def _call(x: jax.Array) -> jax.Array:
    # As a vector: XLA of JAX 0.12 would keep the order of elements that the value had before it was transposed.
    with set_xla_metadata(inlineable="false"):
        return _same(x.ravel()).reshape(x.shape)


mlir.register_lowering(_STORED, mlir.lower_fun(_call, multiple_results=False))


def stored_value(x: Any) -> Any:
    """Stores x in memory, in specialized programs on a CPU."""
    return _stored_value(x)


def stored_gate(x: Any) -> Any:
    """Stores a gate of a recurrent layer in memory, in specialized programs on a CPU whose weights are not prepared.

    Without `compiler.xla_options` LLVM does not vectorize a loop with several exponentials. Eight sequences and 256
    hidden neurons, µs a step on one core: LSTM 70 → 58, GRU 61 → 33.
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
