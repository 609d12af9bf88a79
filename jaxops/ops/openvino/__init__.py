"""Operators that only OpenVINO has. `jaxops` does not list them, since their names may collide with other domains."""

import typing as _typing

from jaxops.ops.openvino.adaptive_pooling import *
from jaxops.ops.openvino.aligned_regions import *
from jaxops.ops.openvino.bags import *
from jaxops.ops.openvino.class_suppression import *
from jaxops.ops.openvino.codebooks import *
from jaxops.ops.openvino.detections import *
from jaxops.ops.openvino.detectron import *
from jaxops.ops.openvino.elementwise import *
from jaxops.ops.openvino.image_formats import *
from jaxops.ops.openvino.matrices import *
from jaxops.ops.openvino.movement import *
from jaxops.ops.openvino.prior_boxes import *
from jaxops.ops.openvino.proposals import *
from jaxops.ops.openvino.random_numbers import *
from jaxops.ops.openvino.region_pooling import *
from jaxops.ops.openvino.searching import *
from jaxops.ops.openvino.spectra import *
from jaxops.ops.openvino.string_tensors import *
from jaxops.ops.openvino.suppression import *
from jaxops.ops.openvino.temporal_classification import *
from jaxops.ops.openvino.windows import *
from jaxops.ops.openvino.yolo import *
from jaxops.signature_errors import explain as _explain

if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = _explain(globals())
