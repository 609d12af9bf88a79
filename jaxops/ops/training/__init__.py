"""Operators of the domain `ai.onnx.preview.training`."""

from jaxops.ops.training.optimizers import *
from jaxops.signature_errors import explain as _explain

__all__ = _explain(globals())
