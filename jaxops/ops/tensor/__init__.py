"""Operators of the standard's family `tensor`."""

from jaxops.ops.tensor import (
    casting,
    gathering,
    grids,
    inspection,
    joining,
    nonfinite,
    one_hot_encoding,
    padding,
    reordering,
    reshaping,
    resizing,
    scattering,
    selection,
    slicing,
    splitting,
    tiling,
    triangles,
)
from jaxops.ops.tensor.casting import *
from jaxops.ops.tensor.gathering import *
from jaxops.ops.tensor.grids import *
from jaxops.ops.tensor.inspection import *
from jaxops.ops.tensor.joining import *
from jaxops.ops.tensor.nonfinite import *
from jaxops.ops.tensor.one_hot_encoding import *
from jaxops.ops.tensor.padding import *
from jaxops.ops.tensor.reordering import *
from jaxops.ops.tensor.reshaping import *
from jaxops.ops.tensor.resizing import *
from jaxops.ops.tensor.scattering import *
from jaxops.ops.tensor.selection import *
from jaxops.ops.tensor.slicing import *
from jaxops.ops.tensor.splitting import *
from jaxops.ops.tensor.tiling import *
from jaxops.ops.tensor.triangles import *

__all__: list[str] = []
__all__ += casting.__all__
__all__ += one_hot_encoding.__all__
__all__ += gathering.__all__
__all__ += grids.__all__
__all__ += inspection.__all__
__all__ += joining.__all__
__all__ += nonfinite.__all__
__all__ += padding.__all__
__all__ += reordering.__all__
__all__ += reshaping.__all__
__all__ += resizing.__all__
__all__ += scattering.__all__
__all__ += selection.__all__
__all__ += slicing.__all__
__all__ += splitting.__all__
__all__ += tiling.__all__
__all__ += triangles.__all__
