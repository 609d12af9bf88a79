"""Rules for `jaxops.onnx.load(path, sharding=rule)`: which device has which part of a parameter."""

from jaxops.tools.convert.sharding_rules import data_parallel, tensor_parallel

__all__ = ["data_parallel", "tensor_parallel"]
