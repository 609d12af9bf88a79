"""Loading: from an ONNX file to a model."""

from __future__ import annotations  # see `takes_options`

import dataclasses
import functools
import os
from typing import Unpack

from jaxops.frontend.extraction import Extraction
from jaxops.frontend.loading import BoundModel, load_model
from jaxops.frontend.options import Operators, Options, takes_options
from jaxops.model import Model
from jaxops.onnx.bind import bind
from jaxops.onnx.open import Readable, parsed
from jaxops.onnx.origin import Origin
from jaxops.onnx.read import declared, read

_WITHOUT_TRAINING = (
    "Exporters fold or remove them by default; with PyTorch, use torch.onnx.export(…, "
    "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, dynamo=False), or TrainingMode.PRESERVE"
)


@takes_options
def load(model: Readable, *, external_data: str | os.PathLike[str] | None = None, **options: Unpack[Options]) -> Model:
    """Loads an ONNX model as a JAX function.

    model: the path of a file, a file opened as binary, its bytes, an onnx.ModelProto, or the torch.onnx.ONNXProgram
    that `torch.onnx.export(…, dynamo=True)` returns.
    external_data: the folder with the files of weights. By default, they are next to the model, or next to the file
    that its path is a link to.

    {options}

    `load` finds and checks the files of weights at once; links in their folders must not lead anywhere else. Weights
    are read lazily: those that calls need at the first call, all of them when `Model.params` is first used. Do not
    modify the files before that; the model's own file may be removed or replaced. A file that breaks a rule of its
    opset but is unambiguous is accepted: `jaxops.onnx.lenient` lists the cases.

    Raises
      PathError (a FileNotFoundError) if there is no such file;
      ModelError if the file is damaged, contradicts itself or has a cycle, or if weights are missing or lie elsewhere;
      UnsupportedError with a list of all operators that jaxops does not have;
      SignatureError if the graph has no tensor of `inputs` or `outputs`, or if the outputs need another input;
      ArgumentError for an option that the model cannot have, such as a size or value that no input has, a bound that no
      node can have, or a `cache` other than that of JAX;
      TooLargeError for a static value beyond `max_bytes`;
      SignatureError, DTypeError, ArgumentError and others if the opset of the file does not allow a node.

    >>> import jax, numpy as np, onnx
    >>> text = "main (float[N] x) => (int64[1, K] at) { at = NonZero(x) }"
    >>> proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}')
    >>> x = np.array([0, 5, 0, 7], np.float32)
    >>> load(proto)(x).tolist()
    [[1, 3]]
    >>> model = load(proto, bounds={"NonZero": 3})
    >>> jax.jit(model.apply)(model.params, x).tolist()
    [[1, 3, -1]]
    """

    def bound(operators: Operators, extraction: Extraction) -> BoundModel:
        file = parsed(model, external_data)
        source = read(file)
        graph = extraction.of(source.graph, functools.partial(declared, file.proto))
        source = dataclasses.replace(source, graph=graph)
        opsets = "opset " + ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in source.opsets.items())
        return BoundModel(
            graph=bind(source, operators),
            opsets=source.opsets,
            description=f"{opsets} · {source.producer}" if source.producer else opsets,
            without_training=_WITHOUT_TRAINING,
            origin=functools.partial(Origin, file.source, file.folders, extraction),
        )

    return load_model(model, bound, options)
