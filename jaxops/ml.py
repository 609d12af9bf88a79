"""The operators of the domain ai.onnx.ml."""

import typing as _typing

from jaxops.ops import ml as _ml
from jaxops.ops.ml import *

if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = [*_ml.__all__]
