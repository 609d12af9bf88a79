"""Loading: from an ONNX file to a model."""

from collections.abc import Mapping

from jaxops.graph.sizes import fixed
from jaxops.model import Model
from jaxops.onnx.bind import bind
from jaxops.onnx.read import Readable, read


def load(model: Readable, *, sizes: Mapping[str, int] | None = None) -> Model:
    """Loads an ONNX model as a JAX function.

    It accepts what can mean one thing, although the opset forbids it: see `jaxops.onnx.tolerant`.

    model: the path of a file, its bytes, or a ModelProto. External data is looked for beside the file, checked
    now and read when `Model.params` is first used.
    sizes: numbers for symbolic sizes of the inputs, such as {"sequence": 128}; a call then accepts no others.
    Raises FileNotFoundError; ModelError for a file that is damaged, has a cycle, or whose external data is missing or
    outside its folder; UnsupportedError with a list of all operators that jaxops does not have; ArgumentError for
    a name that is not in the model; SignatureError and others for nodes that their opset does not allow.
    """
    source = read(model)
    opsets = ", ".join(f"{domain or 'ai.onnx'} {n}" for domain, n in source.opsets.items())
    description = f"opset {opsets} · {source.producer}" if source.producer else f"opset {opsets}"
    return Model(fixed(bind(source), sizes or {}), opsets=source.opsets, description=description)
