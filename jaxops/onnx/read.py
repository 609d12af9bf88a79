"""From a file, bytes or a ModelProto to a `Source`. No protobuf object goes past this module."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from jaxops.errors import ModelError, SignatureError
from jaxops.graph.nodes import Graph, Node, Tensor, Value
from jaxops.memory import bounded
from jaxops.onnx.parts import read_part
from jaxops.onnx.scopes import modules_of, scope_of
from jaxops.onnx.source import Function, OperatorName, Reference, Source

# What makes a tensor whose data is in another file.
_External: TypeAlias = Callable[[TensorProto, np.dtype], Tensor]
# What writers of models put where they know no name for a size.
_UNNAMED = {"", "?", "-1", "None", "_"}
# Or an object with a `model_proto`, as torch.onnx.export returns.
Readable: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto | BinaryIO | Any


class Parsed(NamedTuple):
    """A model as protobuf has it, the folder of its external data, and what messages call it."""

    proto: onnx.ModelProto
    folder: Path | None
    where: str


def read(model: Readable | Parsed, *, weights: bool = True) -> Source:
    """Reads a model. Raises FileNotFoundError; ModelError for a file that is damaged or not an ONNX model.

    weights: whether external data is looked for; without it, zeros stand for it.
    """
    return _source(*(model if isinstance(model, Parsed) else parsed(model)), weights)


def parsed(model: Readable) -> Parsed:
    """What protobuf makes of a model; raises what `read` raises."""
    model = getattr(model, "model_proto", model)  # a torch.onnx.ONNXProgram
    if isinstance(model, onnx.ModelProto):
        return Parsed(model, None, "the ModelProto")
    if isinstance(model, bytes | bytearray | memoryview):
        return Parsed(_parse(bytes(model), "the bytes"), None, "the bytes")
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        return Parsed(_parse(path.read_bytes(), str(path)), path.parent, str(path))
    data = model.read() if hasattr(model, "read") else None
    if not isinstance(data, bytes):
        given = "a file opened as text" if isinstance(data, str) else f"{type(model).__name__}: {model!r:.80}"
        raise SignatureError(
            f"load: a model is a path, a file opened as binary, its bytes, a ModelProto or an ONNXProgram, not {given}"
        )
    name = getattr(model, "name", None)  # a file on disk has one, and a folder with it
    path = Path(name) if isinstance(name, str) and Path(name).is_file() else None
    return Parsed(_parse(data, str(path or "the file")), path and path.parent, str(path or "the file"))


def carried(name: str) -> Path:
    """The path of one of the models that the onnx package carries, such as 'light_resnet50'.

    Raises FileNotFoundError, with the names there are.
    """
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    path = folder / f"{name}.onnx"
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in folder.glob("*.onnx")))
        raise FileNotFoundError(f"the onnx package carries no model {name!r}; it has {names}")
    return path


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelError(f"{where}: not an ONNX model, or a truncated one ({len(data)} bytes): {error}") from error


def _source(proto: onnx.ModelProto, folder: Path | None, where: str, weights: bool) -> Source:
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{where}: not an ONNX model: it has no graph")
    opsets = _opsets(proto.opset_import) or {"": 1}  # before IR version 3 a model did not say
    external = functools.partial(_external, folder) if weights else _zeros
    functions = {}
    for f in proto.functions:
        name = OperatorName(f.name, _domain(f.domain), f.overload)
        if name in functions:
            raise ModelError(f"{where}: the function '{f.name}' of domain '{f.domain}' is defined twice")
        attributes = (*f.attribute, *(a.name for a in f.attribute_proto))
        defaults = {a.name: attribute(a, external) for a in f.attribute_proto}
        functions[name] = function(f, attributes, defaults, opsets, external)
    graph = _graph(proto.graph, external)
    return Source(
        graph=_without_defaults(graph) if proto.ir_version < 4 else graph,
        opsets=opsets,
        functions=functions,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
    )


def _without_defaults(graph: Graph) -> Graph:
    """Before IR version 4 every initializer had to be an input too; as in onnxruntime, a call cannot replace it."""
    return dataclasses.replace(graph, inputs=tuple(v for v in graph.inputs if v.name not in graph.initializers))


def function(
    proto: onnx.FunctionProto,
    attributes: Sequence[str],
    defaults: Mapping[str, Any],
    opsets: Mapping[str, int],
    external: _External | None = None,
) -> Function:
    """A function of a model, or the body that the standard gives an operator, which has no external data."""
    external = external or functools.partial(_external, None)
    graph = Graph(
        name=proto.name,
        inputs=tuple(Value(name, None, None) for name in proto.input),
        outputs=tuple(Value(name, None, None) for name in proto.output),
        nodes=tuple(_node(n, external) for n in proto.node),
        initializers={},
    )
    return Function(graph, tuple(attributes), defaults, _opsets(proto.opset_import) or opsets)


def _opsets(imports: Any) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in imports}


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _graph(proto: onnx.GraphProto, external: _External) -> Graph:
    tensors = _without_repeats(proto.initializer)
    names = [t.name for t in tensors] + [sparse.values.name for sparse in proto.sparse_initializer]
    _check_names("initializer", names)
    _check_names("input", [v.name for v in proto.input])
    initializers = {t.name: _tensor(t, external) for t in tensors}
    for sparse in proto.sparse_initializer:
        initializers[sparse.values.name] = _tensor_of(_dense(sparse))
    modules = modules_of(names)
    return Graph(
        name=proto.name,
        inputs=tuple(_value(v) for v in proto.input),
        outputs=tuple(_value(v) for v in proto.output),
        nodes=tuple(_node(n, external, modules) for n in proto.node),
        initializers=initializers,
    )


def _without_repeats(tensors: Sequence[TensorProto]) -> list[TensorProto]:
    """The initializers without exact repeats, which some tools write. Different ones of one name are left to raise."""
    first: dict[str, TensorProto] = {}
    kept = []
    for tensor in tensors:
        earlier = first.setdefault(tensor.name, tensor)
        if earlier is tensor or earlier != tensor:
            kept.append(tensor)
    return kept


def _check_names(what: str, names: Sequence[str]) -> None:
    names = [_text(name) for name in names]
    if "" in names:
        raise ModelError(f"{what} {names.index('')} of the graph has no name")
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
    if twice:
        raise ModelError(f"the graph has two of {what} '{min(twice)}'")


def _text(name: str | bytes) -> str:
    """A name; protobuf gives bytes where the file does not hold UTF-8."""
    if isinstance(name, bytes):
        raise ModelError(f"the name {name!r} is not UTF-8; the model is damaged")
    return name


def _node(proto: onnx.NodeProto, external: _External, modules: Container[str] = ()) -> Node:
    name = _text(proto.name)
    return Node(
        operator=OperatorName(_text(proto.op_type), _domain(_text(proto.domain)), proto.overload),
        name=name,
        inputs=tuple(map(_text, proto.input)),
        outputs=tuple(map(_text, proto.output)),
        attributes={_text(a.name): attribute(a, external) for a in proto.attribute},
        scope=scope_of(name, {p.key: p.value for p in proto.metadata_props}, modules),
    )


def attribute(proto: AttributeProto, external: _External) -> Any:
    """An attribute in Python's types: numbers, strings, tuples, NumPy arrays, graphs."""
    if proto.ref_attr_name:
        return Reference(proto.ref_attr_name)
    value = helper.get_attribute_value(proto)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(_plain(v, external) for v in value)
    return _plain(value, external)


def _plain(value: Any, external: _External) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, TensorProto):
        return _tensor(value, external).load()
    if isinstance(value, onnx.SparseTensorProto):
        return _dense(value)
    if isinstance(value, onnx.GraphProto):
        return _graph(value, external)
    if isinstance(value, onnx.TypeProto):
        return str(_value(onnx.ValueInfoProto(name="type", type=value))).removeprefix("type: ")
    return value


def _value(proto: onnx.ValueInfoProto) -> Value:
    kind, inner = "tensor", proto.type
    if inner.HasField("optional_type"):
        kind, inner = "optional", inner.optional_type.elem_type
    if inner.HasField("sequence_type"):
        kind, inner = "sequence" if kind == "tensor" else kind, inner.sequence_type.elem_type
    if inner.HasField("map_type"):
        kind, inner = "map" if kind == "tensor" else kind, inner.map_type.value_type
    tensor = inner.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(_size(d) for d in tensor.shape.dim)
    name = _text(proto.name)
    dtype = _dtype(f"'{name}'", tensor.elem_type) if tensor.elem_type else None
    return Value(name, dtype, shape, kind)


def _size(dim: Any) -> int | str | None:
    """A declared size; None for a free one, which some writers call -1 or '?'."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return None if dim.dim_param.strip() in _UNNAMED else dim.dim_param


def _dtype(what: str, number: int) -> np.dtype:
    if number not in TensorProto.DataType.values() or number == TensorProto.UNDEFINED:
        raise ModelError(f"{what}: unknown element type {number}")
    return np.dtype(helper.tensor_dtype_to_np_dtype(number))


def _tensor_of(values: np.ndarray) -> Tensor:
    return Tensor(values.dtype, values.shape, functools.partial(np.asarray, values))


def _tensor(proto: TensorProto, external: _External) -> Tensor:
    dtype = _dtype(f"tensor '{proto.name}'", proto.data_type)
    if any(size < 0 for size in proto.dims):
        raise ModelError(f"tensor '{proto.name}': shape {tuple(proto.dims)} holds a negative size")
    if uses_external_data(proto):
        return external(proto, dtype)
    return Tensor(dtype, tuple(proto.dims), functools.partial(_to_array, proto))


def _to_array(proto: TensorProto) -> np.ndarray:
    try:
        values = numpy_helper.to_array(proto)
    except (ValueError, TypeError) as error:
        raise ModelError(f"tensor '{proto.name}' of shape {tuple(proto.dims)}: its data is damaged: {error}") from error
    return values.astype(object) if proto.data_type == TensorProto.STRING else values


def _zeros(proto: TensorProto, dtype: np.dtype) -> Tensor:
    """Zeros of the shape, which take no memory."""
    sizes = tuple(proto.dims)
    return Tensor(dtype, sizes, functools.partial(np.broadcast_to, np.zeros((), dtype), sizes))


def _external(folder: Path | None, proto: TensorProto, dtype: np.dtype) -> Tensor:
    """External data; the file is checked now and its bytes are read when they are needed."""
    try:
        info = ExternalDataInfo(proto)
    except ValueError as error:
        raise ModelError(f"tensor '{proto.name}': external data: {error}") from error
    what = f"tensor '{proto.name}': external data '{info.location}'"
    if folder is None:
        raise ModelError(f"{what} needs the model's folder; load the model from its path")
    root = folder.resolve()
    try:
        path = (root / info.location).resolve()
        exists = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, too long a name, links in a circle
        raise ModelError(f"{what} cannot be looked up: {error}") from error
    if Path(info.location).is_absolute() or not path.is_relative_to(root):
        raise ModelError(f"{what} lies outside the model's folder '{root}'; it is refused")
    if not exists:
        raise ModelError(f"{what} is missing: there is no file '{path}'")
    offset = info.offset or 0
    needed = math.ceil(math.prod(proto.dims) * _bits(dtype) / 8)
    length = needed if info.length is None else info.length
    if offset + length > path.stat().st_size:
        raise ModelError(f"{what}: bytes {offset} to {offset + length} go past its end at {path.stat().st_size}")
    if length != needed:
        raise ModelError(f"{what}: {length} bytes cannot fill {dtype.name} {tuple(proto.dims)}, which takes {needed}")
    sizes = tuple(proto.dims)
    if _bits(dtype) == 8 * dtype.itemsize and not dtype.name.startswith("float6"):
        part = functools.partial(read_part, proto.name, path, offset, dtype, sizes)
        return Tensor(dtype, sizes, functools.partial(part, (slice(None),) * len(sizes)), part)
    # A copy without the reference to the file: only type and shape are left of it.
    header = TensorProto(name=proto.name, data_type=proto.data_type, dims=list(proto.dims))
    return Tensor(dtype, sizes, functools.partial(_read_packed, header, path, offset, length))


def _bits(dtype: np.dtype) -> int:
    """How many bits of a file an element takes; the small types are packed."""
    packed = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
    return packed.get(dtype.name, 8 * dtype.itemsize)


def _read_packed(header: TensorProto, path: Path, offset: int, length: int) -> np.ndarray:
    with path.open("rb") as file:
        file.seek(offset)
        filled = TensorProto()
        filled.CopyFrom(header)
        filled.raw_data = file.read(length)
    return _to_array(filled)


def _dense(proto: onnx.SparseTensorProto) -> np.ndarray:
    values, indices = _to_array(proto.values), _to_array(proto.indices)
    sizes, what = tuple(proto.dims), f"sparse tensor '{proto.values.name}' of shape {tuple(proto.dims)}"
    flat = indices.ndim == 1
    if values.ndim != 1 or indices.shape not in ((len(values),), (len(values), len(sizes))):
        raise ModelError(f"{what}: {values.shape} values cannot stand at indices of shape {indices.shape}")
    bounded(what, sizes, values.itemsize)
    limits = np.array(math.prod(sizes) if flat else sizes)
    if ((indices < 0) | (indices >= limits)).any():
        raise ModelError(f"{what}: an index lies outside of it")
    dense = np.zeros(sizes, values.dtype)
    dense.flat[indices if flat else np.ravel_multi_index(tuple(indices.T), sizes)] = values
    return dense
