"""Operators of the standard's family `object_detection`."""

from jaxops.ops.object_detection import regions, suppression
from jaxops.ops.object_detection.regions import *
from jaxops.ops.object_detection.suppression import *

__all__: list[str] = []
__all__ += regions.__all__
__all__ += suppression.__all__
