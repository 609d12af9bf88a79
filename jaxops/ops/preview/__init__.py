"""Operators of the domain `ai.onnx.preview`."""

from jaxops.ops.preview.modified_attention import *
from jaxops.signature_errors import explain as _explain

__all__ = _explain(globals())
