"""The operators that only OpenVINO has, in Python's names: `jaxops.openvino.ops.detection_output(…)`."""

from jaxops.ops import openvino as _openvino
from jaxops.ops.openvino import *

__all__ = [*_openvino.__all__]
