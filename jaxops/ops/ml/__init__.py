"""Operators of the domain `ai.onnx.ml`."""

import typing as _typing

from jaxops.ops.ml.encoding import *
from jaxops.ops.ml.features import *
from jaxops.ops.ml.linear import *
from jaxops.ops.ml.maps import *
from jaxops.ops.ml.scaling import *
from jaxops.ops.ml.support_vectors import *
from jaxops.ops.ml.trees import *
from jaxops.signature_errors import explain as _explain

if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = _explain(globals())
