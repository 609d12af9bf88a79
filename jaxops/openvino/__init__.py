"""OpenVINO models (IRs) as JAX functions, and the operations of each opset.

load         turns a file into a `Model`, a JAX function, as `jaxops.onnx.load` does
check        lists the operations of a model, and says which are missing
opset        has the operations of one opset as functions, with exactly its semantics
opset1       has VariadicSplit under its own name
ops          has the operators that only OpenVINO has, in Python's names
decoder      turns a decoder with its cache in variables into a step of fixed shapes, to generate text
generate     continues prompts of any lengths with a decoder: tokens in, tokens out
speculative  generates the text of one decoder faster, with drafts of a smaller one

>>> import jaxops.openvino
>>> print(jaxops.openvino.load("notebooks/running_sum.xml").outputs[0])
sum: float32[2]
"""

from jaxops.openvino import ops, opset1
from jaxops.openvino.checking import check
from jaxops.openvino.decoding import decoder, generate, speculative
from jaxops.openvino.loading import load
from jaxops.openvino.opset import opset

__all__ = ["check", "decoder", "generate", "load", "ops", "opset", "opset1", "speculative"]
