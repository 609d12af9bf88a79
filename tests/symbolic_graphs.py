"""Graphs whose sizes have names: exported once, they agree with onnxruntime at several sizes."""

from typing import Any, NamedTuple

import jax
import numpy as np
import onnx
import onnxruntime
from onnx import parser

import jaxops.onnx


class Row(NamedTuple):
    name: str
    head: str  # the inputs and outputs
    body: str
    sizes: tuple[dict[str, int], ...]  # at which it runs
    limit: str = ""  # what the exported program says of its sizes, in the shapes of its inputs
    opset: int = 18


def model(head: str, body: str, opset: int = 18) -> onnx.ModelProto:
    opsets = f'"" : {opset}, "com.microsoft" : 1'
    return parser.parse_model(f"<ir_version: 9, opset_import: [{opsets}]> g {head} {{ {body} }}")


def inputs(loaded: Any, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for value in loaded.inputs:
        shape = [d if isinstance(d, int) else eval(d, {}, dict(sizes)) for d in value.shape]
        if value.dtype.kind == "f":
            found.append(rng.standard_normal(shape).astype(value.dtype))
        else:
            found.append(rng.integers(0, 2, shape).astype(value.dtype))
    return found


def agrees(row: Row) -> None:
    """Exports the model of a row, checks what the program says of its sizes, and runs it at the sizes of the row."""
    proto = model(row.head, row.body, 23 if "= Attention" in row.body else row.opset)
    loaded = jaxops.onnx.load(proto)
    program = loaded.export()
    assert row.limit in "; ".join(str(aval) for aval in program.in_avals)
    runtime = onnxruntime.InferenceSession(proto.SerializeToString())
    for sizes in row.sizes:
        values = inputs(loaded, sizes)
        wanted = runtime.run(None, {v.name: x for v, x in zip(loaded.inputs, values, strict=True)})
        for got, want in zip(jax.tree.leaves(program.call(loaded.params, *values)), wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)
