"""Operators of the domain `ai.onnx.preview.training`."""

from jaxops.ops.training import optimizers
from jaxops.ops.training.optimizers import *
from jaxops.signature_errors import explain as _explain

__all__: list[str] = []
__all__ += optimizers.__all__
_explain(globals(), __all__)
