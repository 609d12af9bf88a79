"""Writes IRs as text, a layer at a time, and runs them by OpenVINO's CPU plugin where it is installed."""

import importlib.util
import inspect
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import jax
import jax.numpy as jnp
import numpy as np
import openvino_peer
from openvino_cases import CASES

from jaxops.errors import UnsupportedError
from jaxops.openvino import load, ops, schemas
from jaxops.openvino.registry import find

REASON = "OpenVINO itself is the second opinion; pip install openvino"

TYPES = {
    np.dtype(f"{kind}{size}"): f"{kind}{8 * size}"
    for kind in "fiu"
    for size in (1, 2, 4, 8)
    if kind + str(size) != "f1"
} | {np.dtype(bool): "boolean"}


def text_of(value: Any) -> str:
    """An attribute as files have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, np.dtype):
        return TYPES[value]
    if isinstance(value, list | tuple):
        return ",".join(map(text_of, value))
    return str(value)


@dataclass
class File:
    """An IR that grows: each method adds a layer and returns the (layer, port) of its first output."""

    name: str = "model"
    version: int = 11
    layers: list[str] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)
    weights: bytearray = field(default_factory=bytearray)

    def layer(
        self,
        op_type: str,
        opset: Any = 1,
        inputs: Sequence[tuple[int, int]] = (),
        attributes: Mapping[str, Any] | None = None,
        outputs: int | Sequence[str] = 1,
        *,
        name: str | None = None,
        body: str = "",
        extra: str = "",
    ) -> tuple[int, int]:
        """outputs: their number, or the attributes and content of each port. extra: further attributes of the layer."""
        layer_id = len(self.layers)
        data = "".join(f" {key}={quoteattr(text_of(value))}" for key, value in (attributes or {}).items())
        ports = [""] * outputs if isinstance(outputs, int) else outputs
        input_ports = "".join(f'<port id="{i}" precision="dynamic"/>' for i in range(len(inputs)))
        first = len(inputs)
        output_ports = "".join(
            f'<port id="{first + i}" precision="dynamic"{port}' + ("" if port.endswith("</port>") else "/>")
            for i, port in enumerate(ports)
        )
        opset = f"opset{opset}" if isinstance(opset, int) else opset
        title = name if name is not None else f"{op_type}_{layer_id}"
        self.layers.append(
            f'<layer id="{layer_id}" name={quoteattr(title)} type="{op_type}" version="{opset}"{extra}>'
            f"<data{data}/><input>{input_ports}</input><output>{output_ports}</output>{body}</layer>"
        )
        for position, (source, port) in enumerate(inputs):
            self.edges.append(
                f'<edge from-layer="{source}" from-port="{port}" to-layer="{layer_id}" to-port="{position}"/>'
            )
        return layer_id, first

    def parameter(self, shape: Any, dtype: Any = "f4", name: str | None = None, names: str = "") -> tuple[int, int]:
        element = TYPES[np.dtype(dtype)]
        port = f" names={quoteattr(names)}" if names else ""
        return self.layer("Parameter", 1, (), {"shape": shape, "element_type": element}, [port], name=name)

    def constant(
        self, value: Any, element: str = "", name: str | None = None, op_type: str = "Const"
    ) -> tuple[int, int]:
        values = np.asarray(value)
        offset = len(self.weights)
        self.weights += values.tobytes()
        attributes = {
            "element_type": element or TYPES[values.dtype],
            "shape": list(values.shape),
            "offset": offset,
            "size": max(values.nbytes, 1),
        }
        return self.layer(op_type, 1, (), attributes, name=name)

    def result(self, source: tuple[int, int], extra: str = "") -> None:
        layer_id = len(self.layers)
        self.layers.append(
            f'<layer id="{layer_id}" name="Result_{layer_id}" type="Result" version="opset1"{extra}>'
            '<input><port id="0" precision="dynamic"/></input></layer>'
        )
        self.edges.append(f'<edge from-layer="{source[0]}" from-port="{source[1]}" to-layer="{layer_id}" to-port="0"/>')

    @property
    def net(self) -> str:
        """Layers and edges, as they stand in a body too."""
        return f"<layers>{''.join(self.layers)}</layers><edges>{''.join(self.edges)}</edges>"

    @property
    def xml(self) -> bytes:
        return f'<?xml version="1.0"?><net name="{self.name}" version="{self.version}">{self.net}</net>'.encode()

    @property
    def bin(self) -> bytes:
        return bytes(self.weights)


def single(
    op_type: str,
    opset: int,
    operands: Sequence[Any],
    attributes: Mapping[str, Any] | None = None,
    outputs: int = 1,
    *,
    free: bool = False,
) -> tuple[File, list[np.ndarray]]:
    """A file of one operation, and its inputs.

    operands: an array is an input, a tuple of one array is a constant. free: whether the sizes of inputs are open.
    """
    file = File(op_type)
    sources, inputs = [], []
    for operand in operands:
        if isinstance(operand, tuple):
            sources.append(file.constant(operand[0]))
        else:
            inputs.append(np.asarray(operand))
            sizes = ["?"] * inputs[-1].ndim if free else list(inputs[-1].shape)
            sources.append(file.parameter(sizes, inputs[-1].dtype))
    layer_id, first = file.layer(op_type, opset, sources, attributes, outputs)
    for i in range(outputs):
        file.result((layer_id, first + i))
    return file, inputs


def run_by_plugin(file: File, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of OpenVINO's CPU plugin, in float32."""
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # it starts a process
        openvino = openvino_peer.imported()
        core = openvino.Core()
        model = core.read_model(file.xml, file.bin or None)
        exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}  # no rounded inputs
        compiled = core.compile_model(model, "CPU", exact)
        results = compiled(list(inputs))
    return [np.array(results[port]) for port in compiled.outputs]


def outputs_of(model: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model of ours."""
    results = model(*inputs)
    return [np.asarray(y) for y in (results if isinstance(results, tuple) else (results,))]


def assert_close(ours: Sequence[np.ndarray], expected: Sequence[Any], tolerance: float = 1e-4) -> None:
    """Asserts equal shapes, equal integers, and floats within `tolerance` of the largest magnitude."""
    assert len(ours) == len(expected)
    for mine, value in zip(ours, map(np.asarray, expected), strict=True):
        assert mine.shape == value.shape
        assert mine.dtype == value.dtype or mine.dtype.itemsize * 2 == value.dtype.itemsize
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(mine, value)
        else:
            finite = value[np.isfinite(value)]
            scale = np.abs(finite).max(initial=1e-6)
            np.testing.assert_allclose(mine.astype(np.float64), value, rtol=0, atol=tolerance * scale)


class Cases(list[tuple[Any, ...]]):
    """The arguments of tests of single operations, and the random operands that are made for them in their order."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(0)

    def add(self, *arguments: Any) -> None:
        self.append(arguments)

    def without(self, op_types: Collection[str]) -> list[tuple[Any, ...]]:
        """The cases of other operations."""
        return [case for case in self if case[0] not in op_types]

    def floats(self, *sizes: int) -> np.ndarray:
        return self.random.randn(*sizes).astype("f4")

    def integers(self, *sizes: int, lo: int = 0, hi: int = 5) -> np.ndarray:
        return self.random.randint(lo, hi, sizes).astype("i8")

    def constant(self, values: Any, dtype: str = "i8") -> tuple[np.ndarray]:
        """A constant of the file."""
        return (np.array(values, dtype),)


def agrees(op_type: str, opset: int, operands: Sequence[Any], attributes: Any = None, outputs: int = 1) -> None:
    """Asserts that an operation gives what OpenVINO gives, also when the file leaves all sizes open."""
    file, inputs = single(op_type, opset, operands, attributes, outputs)
    expected = run_by_plugin(file, inputs)
    assert_close(outputs_of(load(file.xml, weights=file.bin), inputs), expected)
    free, _ = single(op_type, opset, operands, attributes, outputs, free=True)
    assert_close(outputs_of(load(free.xml, weights=free.bin), inputs), expected)


def gives(op_type: str, opset: int, operands: Sequence[Any], attributes: Any, *expected: Any) -> None:
    """Asserts the outputs of an operation."""
    file, inputs = single(op_type, opset, operands, attributes, len(expected))
    assert_close(outputs_of(load(file.xml, weights=file.bin), inputs), expected)


def written_files(file: File, folder: Path, name: str = "model") -> Path:
    """The path of the XML of a file that is written with its weights beside it."""
    (folder / f"{name}.xml").write_bytes(file.xml)
    (folder / f"{name}.bin").write_bytes(file.bin)
    return folder / f"{name}.xml"


def written_package(model: Any, folder: Path) -> tuple[Any, str]:
    """(the module that `to_python` writes, its text)"""
    model.to_python(folder)
    path = next(Path(folder).glob("*.py"))
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, path.read_text()


def has_derivative(op_type: str, opset: int, operands: Sequence[Any], attributes: Any = None, outputs: int = 1) -> None:
    """Asserts that derivatives by the inputs, in 64 bits, are differences of what the operation gives."""

    def wide(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(wide, x))
        return np.asarray(x).astype("f8") if np.asarray(x).dtype == np.float32 else np.asarray(x)

    types = {k: "f64" if v == "f32" else v for k, v in (attributes or {}).items()}
    file, inputs = single(op_type, opset, [wide(x) for x in operands], types, outputs)
    random = np.random.RandomState(1)
    with jax.enable_x64(True):
        model = load(file.xml, weights=file.bin)
        places = [i for i, x in enumerate(inputs) if x.dtype == np.float64]
        floats = [i for i, y in enumerate(outputs_of(model, inputs)) if y.dtype == np.float64]
        if not places or not floats:
            return
        finite = [np.isfinite(y) for y in outputs_of(model, inputs)]
        weights = [random.uniform(0.5, 1, np.shape(f)) for f in finite]

        def total(values: Sequence[Any]) -> Any:
            operands = list(inputs)
            for place, value in zip(places, values, strict=True):
                operands[place] = value
            results = jax.tree.leaves(model.apply(model.params, *operands))
            return sum(jnp.where(finite[i], results[i] * weights[i], 0).sum() for i in floats)

        values = [inputs[i] for i in places]
        steps = [random.standard_normal(x.shape) for x in values]
        slope = sum(np.vdot(g, s) for g, s in zip(jax.jit(jax.grad(total))(values), steps, strict=True))
        compiled = jax.jit(total)
        ahead, behind = (
            float(compiled([x + sign * 1e-6 * s for x, s in zip(values, steps, strict=True)])) for sign in (1, -1)
        )
        expected = (ahead - behind) / 2e-6
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-4 * max(abs(ahead), 1e-2))


# Types that `single` does not write: strings, bits and floats of 8 bits; and `look_up`, which is a Gather in a file.
NOT_IN_A_FILE = {"string_tensor_pack", "string_tensor_unpack", "binary_convolution", "fake_convert", "look_up"}
OWN_OPERATORS = sorted(set(ops.__all__) - NOT_IN_A_FILE)


def of_own_operator(name: str) -> tuple[str, File, list[np.ndarray]]:
    """The type, a file and its inputs, for the good call of an operator that only OpenVINO has, in its newest opset."""
    fn, call = getattr(ops, name), CASES[name]
    positional = [p.name for p in inspect.signature(fn).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    assert [p in call for p in positional] == sorted((p in call for p in positional), reverse=True)
    operands = [call[p] for p in positional if p in call]
    operands = [*operands[:-1], *operands[-1]] if isinstance(operands[-1], list) else operands
    operands = [v if isinstance(v, np.ndarray) else (np.asarray(v),) for v in operands]
    attributes = {k: v for k, v in call.items() if k not in positional and k != "size"}
    for opset in range(schemas.newest_opset(), 0, -1):
        with suppress(UnsupportedError):
            schema = find(name.replace("_", ""), opset).schema
            return schema.name, *single(schema.name, opset, operands, attributes, len(schema.outputs))
    raise AssertionError(name)
