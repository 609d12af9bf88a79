"""Operators of the domain `ai.onnx.preview`."""

import typing as _typing

from jaxops.ops.preview.modified_attention import *
from jaxops.signature_errors import explain as _explain

if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = _explain(globals())
