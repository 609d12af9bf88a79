"""The operators, in the families of the standard: pure functions on arrays with the newest and most general meaning."""

from jaxops.ops import (
    controlflow,
    generator,
    image,
    logical,
    math,
    nn,
    object_detection,
    quantization,
    recurrent,
    reduction,
    sequence,
    tensor,
    text,
)
from jaxops.ops.controlflow import *
from jaxops.ops.generator import *
from jaxops.ops.image import *
from jaxops.ops.logical import *
from jaxops.ops.math import *
from jaxops.ops.nn import *
from jaxops.ops.object_detection import *
from jaxops.ops.quantization import *
from jaxops.ops.recurrent import *
from jaxops.ops.reduction import *
from jaxops.ops.sequence import *
from jaxops.ops.tensor import *
from jaxops.ops.text import *
from jaxops.signature_errors import explain as _explain

__all__: list[str] = []
__all__ += controlflow.__all__
__all__ += generator.__all__
__all__ += image.__all__
__all__ += logical.__all__
__all__ += math.__all__
__all__ += nn.__all__
__all__ += object_detection.__all__
__all__ += quantization.__all__
__all__ += recurrent.__all__
__all__ += reduction.__all__
__all__ += sequence.__all__
__all__ += tensor.__all__
__all__ += text.__all__
_explain(globals(), __all__)
