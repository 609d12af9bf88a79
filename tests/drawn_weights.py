"""Models of `models/wide`, whose weights have no values in the file, with random ones."""

from pathlib import Path

import numpy as np
import onnx

WIDE = Path(__file__).parent / "models" / "wide"


def wide_model(name):
    """The model of a file of `models/wide` with random weights."""
    model, rng = onnx.load(WIDE / f"{name}.onnx"), np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.doc_string == "drawn":
            tensor.raw_data = (rng.normal(size=tuple(tensor.dims)) * 0.2).astype(np.float32).tobytes()
    return model


def inputs_of(model, batch=2, length=6):
    """Inputs of such a model by name: tokens, masks or images."""
    rng, found = np.random.default_rng(1), {}
    for value in model.inputs:
        if len(value.shape) == 4:
            found[value.name] = rng.normal(size=(batch, 3, 16, 16)).astype(np.float32)
        elif "mask" in value.name:
            found[value.name] = np.ones((batch, length), np.int32)
        else:
            found[value.name] = rng.integers(0, 200, (batch, length)).astype(np.int32)
    return found
