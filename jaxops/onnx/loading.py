"""Loading: from an ONNX file to a model."""

import dataclasses
import functools
import os
from typing import Unpack

from jaxops.frontend.extraction import Extraction
from jaxops.frontend.loading import BoundModel, Operators, Options, load_model, takes_options
from jaxops.model import Model
from jaxops.onnx.bind import bind
from jaxops.onnx.open import Readable, parsed
from jaxops.onnx.origin import Origin
from jaxops.onnx.read import declared, read


@takes_options
def load(model: Readable, *, external_data: str | os.PathLike[str] | None = None, **options: Unpack[Options]) -> Model:
    """Loads an ONNX model as a JAX function.

    It accepts a file that breaks a rule of its opset but is unambiguous: see `jaxops.onnx.lenient`.

    model: the path of a file, a file opened as binary, its bytes, a ModelProto or a torch.onnx.ONNXProgram. Weights,
    also those in files beside it, which are looked for and checked now, are read lazily: those of calls at the first
    call, all at the first use of `Model.params`. Do not modify the files before that; the model's own may be removed
    or replaced.
    {options}
    external_data: the folder of the files with weights, in place of the model's own: that of its path, and that of the
    file which this path is a link to. Links may lead only from one of these folders into another.

    Raises PathError, a FileNotFoundError; ModelError for a file that is damaged, contradicts itself, has a cycle, or
    whose external data is missing or outside of all folders; UnsupportedError with a list of all operators that jaxops
    does not have; ArgumentError for a size or value that no input has, and a bound that no node can have; TooLargeError
    for a static value beyond `max_bytes`; SignatureError for a tensor that the graph does not have, or that an output
    needs beside `inputs`; SignatureError and others for nodes that their opset does not allow, and for an option that
    does not fit the model; ArgumentError where JAX has its cache in another folder than `cache`.

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
            origin=functools.partial(Origin, file.source, file.folders, extraction),
        )

    return load_model(model, bound, options)
