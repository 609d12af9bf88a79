"""Operators with the exact semantics of ONNX for JAX, and ONNX models as pure JAX functions."""

from importlib.metadata import version as _version

from jaxops import microsoft, ml, ops as _ops, preview, training
from jaxops.errors import JaxopsError
from jaxops.ops import *

__version__ = _version("jaxops")
__all__ = ["JaxopsError", "microsoft", "ml", "preview", "training", *_ops.__all__]
