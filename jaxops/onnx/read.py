"""Reads a file, bytes or a ModelProto as a `Source`. No protobuf object leaves this module."""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import uses_external_data

from jaxops.errors import ModelError
from jaxops.frontend.declarations import check_declared, check_names
from jaxops.frontend.module_paths import Modules, modules_of, scope_of
from jaxops.frontend.safe_files import Folders, find_data
from jaxops.frontend.tensor_file import FileRange, is_packed
from jaxops.graph.nodes import Graph, Node, Tensor, Value
from jaxops.memory import bounded
from jaxops.onnx.nchwc import without_blocks
from jaxops.onnx.open import Parsed, Readable, parsed
from jaxops.onnx.tensors import LARGEST
from jaxops.onnx.unbound import Function, OperatorName, Reference, Source
from jaxops.onnx.validate import check_attributes, check_references, domain_of, opsets_of, text_of

# Makes a tensor whose data is in another file.
_External: TypeAlias = Callable[[TensorProto, np.dtype], Tensor]
# An initializer, and the place of its bytes if its proto does not hold them.
_Stored: TypeAlias = tuple[TensorProto, FileRange | None]
# Texts that writers of models put in place of a name for a size.
_UNNAMED = {"", "?", "-1", "None", "_"}


def read(model: Readable | Parsed, *, weights: bool = True) -> Source:
    """Reads a model. Raises PathError; ModelError for a file that is damaged or not an ONNX model.

    weights: True if external data is looked for; otherwise zeros take its place.
    """
    return _source(model if isinstance(model, Parsed) else parsed(model), weights)


def _source(file: Parsed, weights: bool) -> Source:
    proto, where = file.proto, file.where
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{where}: not an ONNX model: it has no graph")
    if not 1 <= proto.ir_version <= onnx.IR_VERSION:
        raise ModelError(
            f"{where}: IR version {proto.ir_version}: the installed onnx knows 1 to {onnx.IR_VERSION}; for a greater "
            "one, a newer onnx may help"
        )
    opsets = opsets_of(proto.opset_import)
    if not opsets:
        if proto.ir_version >= 3:
            raise ModelError(f"{where}: it imports no opset, as models must from IR version 3 on")
        opsets = {"": 1}
    external = functools.partial(_external, file.folders) if weights else _zeros
    functions = {}
    for f in proto.functions:
        name = OperatorName(text_of(f.name), domain_of(text_of(f.domain)), text_of(f.overload))
        if name in functions:
            raise ModelError(f"{where}: the function '{f.name}' of domain '{f.domain}' is defined twice")
        attributes = (*f.attribute, *(a.name for a in f.attribute_proto))
        defaults = {a.name: attribute(a, external) for a in f.attribute_proto}
        functions[name] = function(f, attributes, defaults, opsets, external)
        check_references(f.name, functions[name])
    graph = without_blocks(_graph(proto.graph, external, file.data), opsets.get("", 1))
    return Source(
        graph=_without_defaults(graph) if proto.ir_version < 4 else graph,
        opsets=opsets,
        functions=functions,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
    )


def declared(proto: onnx.ModelProto, names: Collection[str]) -> dict[str, Value]:
    """Returns the types and shapes of tensors of the graph that the file declares or onnx infers.

    A size for which onnx invents a name is None.
    """
    types = {value.name: _value(value) for value in proto.graph.value_info if value.name in names}
    if not all(name in types for name in names) and proto.ByteSize() < LARGEST:
        inferred = onnx.shape_inference.infer_shapes(proto).graph.value_info
        types = {value.name: _anonymous(_value(value)) for value in inferred if value.name in names} | types
    return types


def _anonymous(value: Value) -> Value:
    """Returns the value with None for sizes such as unk__3, which are names that onnx's shape inference invents."""
    sizes = value.shape and tuple(None if str(size).startswith("unk__") else size for size in value.shape)
    return dataclasses.replace(value, shape=sizes)


def _without_defaults(graph: Graph) -> Graph:
    """Returns the graph without inputs that are initializers: as in onnxruntime, a call cannot replace these.

    Before IR version 4 every initializer had to be an input, too.
    """
    return dataclasses.replace(graph, inputs=tuple(v for v in graph.inputs if v.name not in graph.initializers))


def function(
    proto: onnx.FunctionProto,
    attributes: Sequence[str],
    defaults: Mapping[str, Any],
    opsets: Mapping[str, int],
    external: _External | None = None,
) -> Function:
    """A function of a model, or the body that the standard gives an operator, which has no external data."""
    external = external or functools.partial(_external, Folders())
    for noun, names in (("input", proto.input), ("output", proto.output)):
        check_names(noun, map(text_of, names), f"function '{proto.name}'")
    graph = Graph(
        name=text_of(proto.name),
        inputs=tuple(Value(name, None, None) for name in proto.input),
        outputs=tuple(Value(name, None, None) for name in proto.output),
        nodes=tuple(_node(n, external) for n in proto.node),
        initializers={},
    )
    return Function(graph, tuple(attributes), defaults, opsets_of(proto.opset_import) or opsets)


def _graph(proto: onnx.GraphProto, external: _External, data: Mapping[int, FileRange] | None = None) -> Graph:
    """data: position of an initializer → where its bytes are, if its proto does not hold them."""
    tensors = _without_repeats(proto.initializer, data or {})
    names = [t.name for t, _ in tensors] + [sparse.values.name for sparse in proto.sparse_initializer]
    check_names("initializer", map(text_of, names))
    check_names("input", (text_of(v.name) for v in proto.input))
    check_names("output", dict.fromkeys(text_of(v.name) for v in proto.output))  # two of one name are one value
    initializers = {t.name: _tensor(t, external) if span is None else _embedded(t, span) for t, span in tensors}
    for sparse in proto.sparse_initializer:
        initializers[sparse.values.name] = _tensor_of(_dense(sparse, external))
    modules = modules_of(names)
    inputs = tuple(_value(v) for v in proto.input)
    check_declared(inputs, initializers)
    return Graph(
        name=text_of(proto.name),
        inputs=inputs,
        outputs=tuple(_value(v) for v in proto.output),
        nodes=tuple(_node(n, external, modules) for n in proto.node),
        initializers=initializers,
    )


def _without_repeats(tensors: Sequence[TensorProto], data: Mapping[int, FileRange]) -> list[_Stored]:
    """Returns the initializers with the places of their bytes, without exact repeats, which some tools write.

    Different initializers of one name stay, and raise an error later.
    """
    first: dict[str, _Stored] = {}
    unique = []
    for position, tensor in enumerate(tensors):
        stored = tensor, data.get(position)
        earlier = first.setdefault(tensor.name, stored)
        if earlier is stored or earlier[0] != tensor or not _equal(earlier[1], stored[1]):
            unique.append(stored)
    return unique


def _equal(one: FileRange | None, other: FileRange | None) -> bool:
    return one is other or (one is not None and other is not None and one.read() == other.read())


def _node(proto: onnx.NodeProto, external: _External, modules: Modules | None = None) -> Node:
    name = text_of(proto.name)
    attributes = {text_of(a.name): attribute(a, external) for a in proto.attribute}
    check_attributes(name, proto.op_type, [a.name for a in proto.attribute])
    return Node(
        operator=OperatorName(text_of(proto.op_type), domain_of(text_of(proto.domain)), text_of(proto.overload)),
        name=name,
        inputs=tuple(map(text_of, proto.input)),
        outputs=tuple(map(text_of, proto.output)),
        attributes=attributes,
        scope=scope_of(name, {p.key: p.value for p in proto.metadata_props}, modules),
    )


def attribute(proto: AttributeProto, external: _External) -> Any:
    """An attribute in Python's types: numbers, strings, tuples, NumPy arrays, graphs."""
    if proto.ref_attr_name:
        return Reference(text_of(proto.ref_attr_name))
    # Tree ensembles have millions of numbers and modes.
    if proto.type in (AttributeProto.INTS, AttributeProto.FLOATS):
        return tuple(proto.ints if proto.type == AttributeProto.INTS else proto.floats)
    if proto.type == AttributeProto.STRINGS:
        return tuple([text.decode("utf-8", "surrogateescape") for text in proto.strings])
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
        return _dense(value, external)
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
    name = text_of(proto.name)
    dtype = _dtype(f"'{name}'", tensor.elem_type) if tensor.elem_type else None
    return Value(name, dtype, shape, kind)


def _size(dim: Any) -> int | str | None:
    """A declared size; None for a free one, which some writers call -1 or '?'."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return None if text_of(dim.dim_param).strip() in _UNNAMED else dim.dim_param


def _dtype(subject: str, number: int) -> np.dtype:
    if number not in TensorProto.DataType.values() or number == TensorProto.UNDEFINED:
        raise ModelError(f"{subject}: unknown element type {number}")
    return np.dtype(helper.tensor_dtype_to_np_dtype(number))


def _tensor_of(values: np.ndarray) -> Tensor:
    return Tensor(values.dtype, values.shape, functools.partial(np.asarray, values))


def _type(proto: TensorProto) -> np.dtype:
    if any(size < 0 for size in proto.dims):
        raise ModelError(f"tensor '{proto.name}': shape {tuple(proto.dims)} holds a negative size")
    return _dtype(f"tensor '{proto.name}'", proto.data_type)


def _tensor(proto: TensorProto, external: _External) -> Tensor:
    dtype = _type(proto)
    if uses_external_data(proto):
        return external(proto, dtype)
    return Tensor(dtype, tuple(proto.dims), functools.partial(_to_array, proto))


def _embedded(proto: TensorProto, data: FileRange) -> Tensor:
    """A tensor whose bytes are not in its proto."""
    dtype, sizes = _type(proto), tuple(proto.dims)
    if not is_packed(dtype) and dtype.kind != "O" and math.prod(sizes) * dtype.itemsize == len(data.span):
        return data.tensor(proto.name, dtype, sizes)
    # protobuf unpacks small types, and says what is wrong with others.
    return Tensor(dtype, sizes, lambda: _to_array(_filled(proto, data.read())))


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


def _external(folders: Folders, proto: TensorProto, dtype: np.dtype) -> Tensor:
    """External data; the file is checked now and its bytes are read when they are needed."""
    # A copy without the reference to the file: only type and shape are left of it.
    header = TensorProto(name=proto.name, data_type=proto.data_type, dims=list(proto.dims))
    return _embedded(header, located(proto, folders))


def located(proto: TensorProto, folders: Folders) -> FileRange:
    """The place of the data of a tensor that has external data. Raises ModelError as `find_data`."""
    dtype = _dtype(f"tensor '{proto.name}'", proto.data_type)
    entries = {text_of(entry.key): text_of(entry.value) for entry in proto.external_data}
    location, offset, length = entries.get("location", ""), entries.get("offset"), entries.get("length")
    return find_data(proto.name, dtype, proto.dims, location, folders, offset, length)


def _filled(header: TensorProto, data: bytes) -> TensorProto:
    filled = TensorProto()
    filled.CopyFrom(header)
    filled.raw_data = data
    return filled


def _dense(proto: onnx.SparseTensorProto, external: _External) -> np.ndarray:
    sizes, subject = tuple(proto.dims), f"sparse tensor '{proto.values.name}' of shape {tuple(proto.dims)}"
    if any(size < 0 for size in sizes):
        raise ModelError(f"{subject}: a size is negative")
    values, indices = (_tensor(part, external).load() for part in (proto.values, proto.indices))
    flat = indices.ndim == 1
    if indices.dtype != np.int64:
        raise ModelError(f"{subject}: its indices are {indices.dtype.name}; they must be int64")
    if values.ndim != 1 or indices.shape not in ((len(values),), (len(values), len(sizes))):
        raise ModelError(f"{subject}: {values.shape} values cannot stand at indices of shape {indices.shape}")
    bounded(sizes, values.itemsize, subject)
    limits = np.array(math.prod(sizes) if flat else sizes)
    if ((indices < 0) | (indices >= limits)).any():
        raise ModelError(f"{subject}: an index lies outside of it")
    try:
        dense = np.full(sizes, "", object) if values.dtype == object else np.zeros(sizes, values.dtype)
    except (ValueError, MemoryError) as error:
        raise ModelError(f"{subject}: it is too large: {error}") from error
    dense.flat[indices if flat else np.ravel_multi_index(tuple(indices.T), sizes)] = values
    return dense
