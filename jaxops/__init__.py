"""Operators with the exact semantics of ONNX for JAX, and ONNX models as pure JAX functions."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from jaxops import microsoft, ml, ops as _ops, preview, training
from jaxops.compiler.xla_options import compiler_options
from jaxops.errors import JaxopsError, near as _near
from jaxops.ops import *

__version__ = _version("jaxops")
__all__ = ["JaxopsError", "compiler_options", "microsoft", "ml", "preview", "training", *_ops.__all__]

if not TYPE_CHECKING:  # a type checker would take every misspelt name for an Any

    def __getattr__(name: str) -> object:
        """Imports a front end or another module at its first use: `import jaxops` needs no onnx."""
        if name in ("jaxprs", "onnx", "openvino", "sharding"):
            return _import_module(f"jaxops.{name}")
        raise AttributeError(f"module 'jaxops' has no attribute {name!r}{_near(name, __all__)}")
