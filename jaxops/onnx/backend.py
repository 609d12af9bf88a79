"""The interface `onnx.backend.base`, so that `onnx.backend.test` and other tools of the standard drive jaxops.

Inputs and outputs are NumPy arrays of exactly the types of the model, since everything runs with x64 on.

>>> import jaxops.onnx.backend
>>> text = "m (double[N] x) => (double[N] y) { y = Neg(x) }"
>>> model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}')
>>> jaxops.onnx.backend.prepare(model).run([np.array([1.0, 2.0])])[0].tolist()
[-1.0, -2.0]
"""

from typing import Any

import jax
import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from jaxops.errors import ArgumentError, amount
from jaxops.jax_internals import enable_x64
from jaxops.model import Model
from jaxops.onnx.loading import load


class JaxopsRep(BackendRep):
    """A model that is ready to run on a device, compiled or operator by operator."""

    def __init__(self, model: Model, device: Any, compiled: bool) -> None:
        self.model = model
        self._device = device
        self._compiled = compiled

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for the inputs in the order of the model, or by name, as NumPy arrays."""
        named, positional = (inputs, ()) if isinstance(inputs, dict) else ({}, inputs)
        if isinstance(positional, np.ndarray):
            positional = (positional,)
        with enable_x64(True), jax.default_device(self._device), jax.disable_jit(not self._compiled):
            outputs = self.model(*positional, **named, **kwargs)
            return tuple(map(_to_numpy, outputs if isinstance(outputs, tuple) else (outputs,)))


def _to_numpy(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_numpy(item) for item in value]
    return None if value is None else np.asarray(value)


class JaxopsBackend(Backend):
    """Runs ONNX models by JAX."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Returns True if JAX has such a device: 'CPU', 'CUDA' or 'CUDA:1'."""
        try:
            _device(device)
        except (ArgumentError, RuntimeError):
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", *, compiled: bool = True, **kwargs: Any) -> JaxopsRep:
        """Loads a model. compiled: under `jit`, else operator by operator.

        Raises what `jaxops.onnx.load` raises; ArgumentError for a device that JAX does not have.
        """
        if kwargs:
            raise ArgumentError(f"prepare: unknown options {sorted(kwargs)}; there is `compiled`")
        return JaxopsRep(load(model), _device(device), compiled)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Returns the outputs of one node for these arrays.

        kwargs: `opset_version` (default: the newest), and `compiled` as for `prepare`.
        """
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        values = [np.asarray(value) for value in inputs]
        formals = [_info(name, value) for name, value in zip(names, values, strict=True)]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], node.op_type, formals, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.run_model(model, values, device, **kwargs)


def _info(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _device(name: str) -> Any:
    kind, *_ = name.partition(":")
    if not hasattr(DeviceType, kind):
        raise ArgumentError(f"device {name!r}: a device is CPU or CUDA, with an optional index as in CUDA:1")
    devices = jax.devices({"CPU": "cpu", "CUDA": "gpu"}[kind])
    number = Device(name).device_id
    if number >= len(devices):
        raise ArgumentError(f"device {name!r}: JAX has {amount(len(devices), f'{kind} device')}")
    return devices[number]


prepare = JaxopsBackend.prepare
run_model = JaxopsBackend.run_model
run_node = JaxopsBackend.run_node
supports_device = JaxopsBackend.supports_device
is_compatible = JaxopsBackend.is_compatible
