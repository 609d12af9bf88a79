"""Earlier versions of comparisons and operators on booleans: they broadcast only b to a, if `broadcast` is 1."""

from jaxops import ops
from jaxops.onnx.registry import version
from jaxops.onnx.versions.math import one_way

for _name, _fn in {
    "And": ops.and_,
    "Or": ops.or_,
    "Xor": ops.xor,
    "Equal": ops.equal,
    "Greater": ops.greater,
    "Less": ops.less,
}.items():
    version(_name, 1)(one_way(_fn))
    version(_name, 7)(_fn)
