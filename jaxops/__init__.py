"""Operators with the exact semantics of ONNX for JAX, and ONNX models as pure JAX functions."""

from importlib.metadata import version

from jaxops.errors import JaxopsError
from jaxops.ops import (
    cast,
    concat,
    constant_of_shape,
    expand,
    flatten,
    gather,
    identity,
    reshape,
    shape,
    size,
    slice,
    split,
    squeeze,
    transpose,
    unsqueeze,
    variadic_split,
)

__version__ = version("jaxops")
__all__ = ["JaxopsError"]
