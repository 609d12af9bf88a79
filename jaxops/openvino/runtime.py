"""Runs an IR by OpenVINO, for a comparison with jaxops. No other file imports openvino; here a call does."""

import importlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from jaxops.errors import UnsupportedError
from jaxops.frontend.extraction import Extraction
from jaxops.openvino.linked import Place
from jaxops.openvino.open import Opened
from jaxops.openvino.read import Reader, is_constant, places_of

# The plugin would round the input of a product with compressed weights to 8 bits.
_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


def tensors(
    opened: Opened, text: bytes, extraction: Extraction, sizes: Collection[str], inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Computes each tensor of the loaded part of an IR, by name, with OpenVINO's CPU plugin in float32.

    text: the XML of `opened`. sizes: as `read` takes them. inputs: by name; those that are not Parameters are
    intermediate values at which the part begins.
    Raises ModuleNotFoundError if the package openvino is not installed; UnsupportedError for a model that OpenVINO
    refuses.
    """
    try:
        openvino: Any = importlib.import_module("openvino")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("compare needs the openvino package: pip install openvino") from error
    reader = Reader(opened.weights, opened.where, sizes)
    graph = extraction.of(reader.graph(opened.net), lambda names: {})
    linked, names = reader.nets[0]
    places = places_of(names)
    counts = Counter(layer.name for layer in opened.net.layers)
    weights = None
    if any(map(is_constant, opened.net.layers)):
        with opened.weights.file.open("rb") as file:
            weights = file.read()
    try:
        model = openvino.Core().read_model(text, weights)
        operations = {operation.get_friendly_name(): operation for operation in model.get_ops()}

        def output(place: Place) -> Any:
            """Returns the output of a place; None if several layers have its name."""
            name = linked.layers[place[0]].name
            return operations[name].output(place[1]) if counts[name] == 1 and name in operations else None

        computed = {name: output(places[name]) for node in graph.nodes for name in node.outputs if name in places}
        asked = {name: each for name, each in computed.items() if each is not None and each.element_type.bitwidth >= 8}
        parameters = []
        for name, value in inputs.items():
            source = output(places[name])
            if source is None:
                raise UnsupportedError(f"compare: several layers have the name of the input '{name}'")
            if source.get_node().get_type_name() == "Parameter":
                parameters.append(source.get_node())
                continue
            parameters.append(openvino.op.Parameter(openvino.Type(value.dtype), openvino.PartialShape(value.shape)))
            source.replace(parameters[-1].output(0))
        results = [openvino.op.Result(each) for each in asked.values()]
        # Variables are inputs here, so the Assigns are left out.
        part = openvino.Model(results, parameters, "part")
        compiled = openvino.compile_model(part, "CPU", _EXACT)
        values = compiled([np.array(value) for value in inputs.values()])  # OpenVINO does not take read-only scalars
    except (RuntimeError, TypeError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise UnsupportedError(f"OpenVINO does not run this model: {' '.join(lines[-2:])}") from error
    return {name: _array(values[port], port) for name, port in zip(asked, compiled.outputs, strict=True)}


def _array(value: Any, port: Any) -> np.ndarray:
    array = np.array(value)
    return array.view(ml_dtypes.bfloat16) if port.element_type.get_type_name() == "bf16" else array
