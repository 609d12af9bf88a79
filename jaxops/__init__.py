"""Operators with the exact semantics of ONNX for JAX, and models as pure JAX functions.

>>> import jaxops as jo, numpy as np
>>> jo.flatten(np.zeros((2, 3, 4)), axis=-1).shape
(6, 4)

`help(jo.flatten)` describes an operator. The other parts:

jaxops.onnx       ONNX files: `load` makes a model a JAX function, `opset(n)` has the operators of an opset
jaxops.openvino   the same for OpenVINO IRs; `jaxops.openvino.ops` has the operators that only OpenVINO has
jaxops.ml         the operators of ai.onnx.ml; likewise jaxops.microsoft, jaxops.preview and jaxops.training
jaxops.flax       `Module` makes a model a part of a flax module
jaxops.sharding   rules that place parameters on devices
jaxops.memory     `max_bytes` limits the memory of one result
jaxops.jaxprs     `lax_only` makes jaxprs that other tools can read
jaxops.errors     the exceptions

The operators of ai.onnx, by family:

{operators}
"""

import typing as _typing
from importlib import import_module as _import_module
from importlib.metadata import version as _version

from jaxops import microsoft as microsoft, ml as ml, ops as _ops, preview as preview, training as training
from jaxops.compiler.xla_options import compiler_options as compiler_options
from jaxops.errors import JaxopsError as JaxopsError, near as _near
from jaxops.ops import *
from jaxops.ops.common.families import families as _families, family_table as _family_table

__doc__ = (__doc__ or "").replace("{operators}", _family_table(_families(_ops)))  # None under `python -OO`
__version__ = _version("jaxops")

# Imported at their first use: `import jaxops` needs no onnx and no flax.
_LATER = ("flax", "jaxprs", "onnx", "openvino", "sharding")

if _typing.TYPE_CHECKING:
    from jaxops import (
        errors as errors,
        flax as flax,
        jaxprs as jaxprs,
        memory as memory,
        onnx as onnx,
        openvino as openvino,
        sharding as sharding,
    )
else:  # a type checker cannot follow the list, and would take every misspelt name for an Any
    __all__ = ["JaxopsError", "compiler_options", "microsoft", "ml", "preview", "training", *_ops.__all__]

    def __getattr__(name: str) -> object:
        """Imports a front end or another module at its first use."""
        if name in _LATER:
            return _import_module(f"jaxops.{name}")
        raise AttributeError(f"module 'jaxops' has no attribute {name!r}{_near(name, __all__)}")

    def __dir__() -> list[str]:
        """Lists what is public, for an editor's completion: no names that this module uses itself.

        What needs another package is listed once it is imported: `help(jaxops)` reads all that is listed.
        """
        loaded = [name for name in ("flax", "onnx", "openvino") if name in globals()]
        return sorted([*__all__, "errors", "jaxprs", "memory", "sharding", "__doc__", "__version__", *loaded])
