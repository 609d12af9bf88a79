"""The operators that only OpenVINO has, under Python names: `prior_box` for PriorBox.

By topic:

{operators}
"""

import typing as _typing

from jaxops.ops import openvino as _openvino
from jaxops.ops.common.families import families as _families, family_table as _family_table
from jaxops.ops.openvino import *

__doc__ = (__doc__ or "").replace("{operators}", _family_table(_families(_openvino)))
if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = [*_openvino.__all__]
