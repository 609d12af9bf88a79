"""The operators of the domain com.microsoft, which onnxruntime defines.

>>> import jax.numpy as jnp, jaxops as jo
>>> jo.microsoft.bias_gelu(jnp.array([0.0, 99.0]), jnp.array([0.0, 1.0])).tolist()
[0.0, 100.0]

By family:

{operators}
"""

import typing as _typing

from jaxops.ops import microsoft as _microsoft
from jaxops.ops.common.families import families as _families, family_table as _family_table
from jaxops.ops.microsoft import *

__doc__ = (__doc__ or "").replace("{operators}", _family_table(_families(_microsoft)))
if not _typing.TYPE_CHECKING:  # a type checker cannot follow the list; it takes all public names
    __all__ = [*_microsoft.__all__]
