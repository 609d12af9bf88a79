"""Operators of ai.onnx.ml beside onnxruntime."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
from jax.export import export, symbolic_args_specs
from onnx import ModelProto, helper, numpy_helper

from jaxops.onnx import registry


def model(op: str, *inputs: Any, opset: int = 1, n_outputs: int = 1, **attributes: Any) -> ModelProto:
    """A model of one node with inputs `x0`, `x1`, … of these types and outputs `y0`, …"""
    given = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attributes.items()}
    names, outputs = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(n_outputs)]
    node = helper.make_node(op, names, outputs, domain="ai.onnx.ml", **given)
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), ["N", *x.shape[1:]] if x.ndim > 1 else x.shape
        )
        for name, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(name) for name in outputs])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def runtime(op: str, *inputs: Any, opset: int = 1, n_outputs: int = 1, **attributes: Any) -> list[Any]:
    """What onnxruntime computes."""
    proto = model(op, *inputs, opset=opset, n_outputs=n_outputs, **attributes)
    feed = {f"x{i}": x for i, x in enumerate(inputs)}
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)


def ours(op: str, *inputs: Any, opset: int = 1, n_outputs: int = 1, **attributes: Any) -> tuple[Any, ...]:
    """What the operator of the opset computes, its attributes checked and completed as in a model."""
    found = registry.find(op, "ai.onnx.ml", opset)
    found.check_arity([True] * len(inputs), n_outputs)
    found.check(inputs)
    return found.call(inputs, found.complete(attributes), n_outputs=n_outputs, rng=None)


def same(found: Any, theirs: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Equal shapes and types (but for 64 bits), and close values."""
    assert found.shape == theirs.shape
    assert found.dtype.kind == theirs.dtype.kind
    if theirs.dtype == object:
        assert found.tolist() == theirs.tolist()
    else:
        np.testing.assert_allclose(found, theirs, rtol=rtol, atol=atol)


def in_all_ways(op: str, x: Any, *, opset: int = 1, n_outputs: int = 1, atol: float = 1e-6, **attributes: Any) -> Any:
    """The outputs for a static, concrete, traced and batch-symbolic x; onnxruntime's, with which they agree."""
    theirs = runtime(op, x, opset=opset, n_outputs=n_outputs, **attributes)

    def call(x: Any) -> Any:
        return ours(op, x, opset=opset, n_outputs=n_outputs, **attributes)

    traced = jnp.asarray(x)
    ways = [call(x), jax.jit(call)(traced)]
    if x.ndim > 1 and x.shape[0]:
        spec = ", ".join(["n", *map(str, x.shape[1:])])
        ways.append(export(jax.jit(call))(*symbolic_args_specs([traced], [spec])).call(traced))
    with jax.enable_x64(True):
        ways.append(call(jnp.asarray(x)))
    for way in ways:
        for found, their in zip(way, theirs, strict=True):
            same(found, their, atol=atol)
    return theirs
