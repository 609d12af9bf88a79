"""The operators of the domain ai.onnx.preview.training."""

import typing as _typing

from jaxops.ops import training as _training
from jaxops.ops.training import *

if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = [*_training.__all__]
