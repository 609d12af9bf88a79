"""Operators of the standard's family `math`."""

from jaxops.ops.math import (
    activations,
    arithmetic,
    broadcasting,
    cumulative,
    exponentials,
    extrema,
    linear_algebra,
    losses,
    quantized_products,
    ranking,
    rounding,
    signal_transforms,
    softmax_like,
    trigonometry,
    window_functions,
)
from jaxops.ops.math.activations import *
from jaxops.ops.math.arithmetic import *
from jaxops.ops.math.broadcasting import *
from jaxops.ops.math.cumulative import *
from jaxops.ops.math.exponentials import *
from jaxops.ops.math.extrema import *
from jaxops.ops.math.linear_algebra import *
from jaxops.ops.math.losses import *
from jaxops.ops.math.quantized_products import *
from jaxops.ops.math.ranking import *
from jaxops.ops.math.rounding import *
from jaxops.ops.math.signal_transforms import *
from jaxops.ops.math.softmax_like import *
from jaxops.ops.math.trigonometry import *
from jaxops.ops.math.window_functions import *

__all__: list[str] = []
__all__ += activations.__all__
__all__ += arithmetic.__all__
__all__ += broadcasting.__all__
__all__ += cumulative.__all__
__all__ += exponentials.__all__
__all__ += extrema.__all__
__all__ += linear_algebra.__all__
__all__ += losses.__all__
__all__ += quantized_products.__all__
__all__ += ranking.__all__
__all__ += rounding.__all__
__all__ += signal_transforms.__all__
__all__ += softmax_like.__all__
__all__ += trigonometry.__all__
__all__ += window_functions.__all__
