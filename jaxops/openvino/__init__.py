"""The operators of OpenVINO, by opset."""

from jaxops.openvino import opset1

__all__ = ["opset1"]
