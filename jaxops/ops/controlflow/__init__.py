"""Operators of the standard's family `controlflow`."""

from jaxops.ops.controlflow import branching, looping, scanning
from jaxops.ops.controlflow.branching import *
from jaxops.ops.controlflow.looping import *
from jaxops.ops.controlflow.scanning import *

__all__: list[str] = []
__all__ += branching.__all__
__all__ += looping.__all__
__all__ += scanning.__all__
