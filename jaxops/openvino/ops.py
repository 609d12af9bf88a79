"""The operators that only OpenVINO has, under Python names: `prior_box` for PriorBox.

By topic:

{operators}
"""

from jaxops.ops import openvino as _openvino
from jaxops.ops.common.families import families as _families, family_table as _family_table
from jaxops.ops.openvino import *

__doc__ = (__doc__ or "").replace("{operators}", _family_table(_families(_openvino)))
__all__ = [*_openvino.__all__]
