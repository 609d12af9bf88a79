"""OpenVINO's models as JAX functions, its operations by opset, and the operators that only OpenVINO has."""

from jaxops.openvino import ops, opset1
from jaxops.openvino.checking import check
from jaxops.openvino.decoding import decoder
from jaxops.openvino.loading import load
from jaxops.openvino.opset import opset

__all__ = ["check", "decoder", "load", "ops", "opset", "opset1"]
