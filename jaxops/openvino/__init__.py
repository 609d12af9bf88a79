"""The operators of OpenVINO, by opset, and those that only OpenVINO has."""

from jaxops.openvino import ops, opset1

__all__ = ["ops", "opset1"]
