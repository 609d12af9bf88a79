"""A dequantized array that keeps its integers, scale and zero point, so that matmul and conv can run on the
integers.
"""

from typing import Any, cast

import jax

from jaxops.static import Array


class Dequantized:
    """The float32 array (numbers - zero) · scale, and what it is made of.

    An operator whose operand is marked `Quantizable` gets it as it is, all others get the array.
    array: traced. numbers: int8 or uint8. scale, zero: scalars, or one for each place along `axis`; zero is of the type
    of the numbers, or None, which is 0.
    """

    def __init__(self, array: jax.Array, numbers: jax.Array, scale: jax.Array, zero: Array | None, axis: int) -> None:
        self.array, self.numbers, self.scale, self.zero, self.axis = array, numbers, scale, zero, axis

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of protocols, which copies and printers ask for
            raise AttributeError(name)
        return getattr(self.array, name)

    @property
    def is_by_tensor(self) -> bool:
        """True if one scale serves all numbers."""
        return self.scale.size == 1

    def transposed(self) -> "Dequantized":
        """The transpose of a matrix."""
        return Dequantized(self.array.T, self.numbers.T, self.scale, self.zero, 1 - self.axis)


def plain(value: Any) -> Any:
    """A value as an array, where it is one that stands for quantized numbers."""
    return value.array if isinstance(value, Dequantized) else value


# Transformations, and programs, take and give the array.
jax.tree_util.register_pytree_node(Dequantized, lambda v: ((v.array,), None), lambda _, leaves: cast(Any, leaves[0]))
