"""The operators of the domain ai.onnx.preview."""

import typing as _typing

from jaxops.ops import preview as _preview
from jaxops.ops.preview import *

if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = [*_preview.__all__]
