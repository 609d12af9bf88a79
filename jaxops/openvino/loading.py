"""Loading: from an IR to a model."""

from __future__ import annotations  # see `takes_options`

import functools
import os
import re
from collections.abc import Mapping
from typing import Unpack

from jaxops.frontend.extraction import Extraction
from jaxops.frontend.loading import BoundModel, load_model
from jaxops.frontend.options import Operators, Options, takes_options
from jaxops.model import Model
from jaxops.openvino.bind import bind
from jaxops.openvino.compressed_weights import with_compressed_weights
from jaxops.openvino.constant_forms import ways_back
from jaxops.openvino.ir import Net
from jaxops.openvino.open import Readable, open_ir
from jaxops.openvino.origin import Origin
from jaxops.openvino.read import read

_WITHOUT_TRAINING = (
    "OpenVINO's operators infer only: BatchNormInference is one, and an IR has no Dropout. The weights can be trained "
    "without this option; for running statistics, load the ONNX file that the IR was made from"
)
_OPSET = re.compile(r"opset(\d{1,9})", re.ASCII)


@takes_options
def load(
    model: Readable, *, weights: str | os.PathLike[str] | bytes | None = None, **options: Unpack[Options]
) -> Model:
    """Loads an OpenVINO IR as a JAX function.

    model: the path of an .xml, its bytes, or an openvino.Model.
    weights: the path of the .bin, or its bytes. By default, it is beside the .xml, under the same name.

    {options}

    Weights are checked at once and read when they are needed. A constant of f16 or bf16 that a Convert decompresses
    is a parameter of the decompressed type. Compressed weights of 8 and 4 bits, as NNCF writes them, keep their small
    size: the function dequantizes them, and matrix products read blocks of 4 or 8 bits as bytes
    (`jaxops.microsoft.matmul_nbits`). Free sizes of inputs are named after the input and the axis, such as `x_0`; calls
    and exports check their limits.

    Raises
      PathError (a FileNotFoundError) if there is no such file;
      ModelError if the file is damaged, contradicts itself, has a cycle, or is not an IR of version 10 or 11;
      UnsupportedError with a list of all operations that jaxops does not have;
      SignatureError, ArgumentError and others if the opset of a layer does not allow it, or for an option that does not
      fit the model.

    >>> import numpy as np
    >>> model = load("notebooks/running_sum.xml")
    >>> state = model.init(model.params, np.float32([1, 2]))
    >>> for x in ([1, 2], [3, 4]):
    ...     state, total = model(np.float32(x), state=state)
    >>> total.tolist()
    [4.0, 6.0]
    """

    def bound(operators: Operators, extraction: Extraction) -> BoundModel:
        opened = open_ir(model, weights)
        sizes = options.get("sizes") or ()
        graph, declared = read(opened, sizes)
        graph = extraction.of(graph, lambda names: {name: declared[name] for name in names if name in declared})
        graph = with_compressed_weights(bind(graph, opened.where, operators))
        return BoundModel(
            graph=graph,
            opsets=opsets(opened.net),
            description=f"OpenVINO IR {opened.net.version}",
            without_training=_WITHOUT_TRAINING,
            origin=functools.partial(Origin, opened.source, opened.weights, tuple(sizes), extraction, ways_back(graph)),
        )

    return load_model(model, bound, options)


def opsets(net: Net) -> Mapping[str, int]:
    """Returns the newest opset that a layer names."""
    numbers = [int(found[1]) for layer in net.layers if (found := _OPSET.fullmatch(layer.version))]
    return {"openvino": max(numbers, default=1)}
