"""Operators of the domain `ai.onnx.preview`."""

from jaxops.ops.preview import modified_attention
from jaxops.ops.preview.modified_attention import *
from jaxops.signature_errors import explain as _explain

__all__: list[str] = []
__all__ += modified_attention.__all__
_explain(globals(), __all__)
