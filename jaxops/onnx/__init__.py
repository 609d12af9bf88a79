"""ONNX models as JAX functions, and the operators of each opset.

load         turns a file into a `Model`, a JAX function
check        lists the operators of a model, and says which are missing
opset        has the operators of one opset as functions, with exactly its semantics
decoder      turns a decoder with a cache into a step of fixed shapes, to generate text
generate     continues prompts of any lengths with a decoder: tokens in, tokens out
speculative  generates the text of one decoder faster, with drafts of a smaller one
carried      finds a model in the onnx package

>>> import jaxops.onnx
>>> print(jaxops.onnx.load("notebooks/digits.onnx").outputs[0])
probabilities: float32[batch, 10]
"""

from jaxops.errors import install as _install

try:
    import onnx as _onnx  # noqa: F401 - only to say what to install
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"jaxops.onnx needs the onnx package; {_install('onnx')}") from error

from jaxops.frontend.operator_check import Check
from jaxops.frontend.opset import Opset
from jaxops.model import Model
from jaxops.onnx.checking import check
from jaxops.onnx.loading import load
from jaxops.onnx.open import carried
from jaxops.onnx.opset import opset
from jaxops.tools.generate.decoder import Decoder, DecoderState, decoder
from jaxops.tools.generate.generation import Generated, generate
from jaxops.tools.generate.speculative import speculative

__all__ = [
    "Check",
    "Decoder",
    "DecoderState",
    "Generated",
    "Model",
    "Opset",
    "carried",
    "check",
    "decoder",
    "generate",
    "load",
    "opset",
    "speculative",
]
