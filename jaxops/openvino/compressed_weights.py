"""Compressed weights, as NNCF writes them: constants of a few bits, and layers that turn them into floats.

Convert, Subtract of a zero point, Multiply by a scale, Reshape and Convert become one node that dequantizes at each
call, so that the constants stay as small as in the file. A matrix product with a weight in blocks of 4 or 8 bits reads
the bytes of the weight. A Gather from a codebook, a table of 16 or 256 numbers, runs at each call, too.

The graph is rewritten, not the traced program, because the parameters change: NumPy holds 4 bits in a byte, and a code
of nf4 as a float32. Users' own programs and written packages, which no pass of the compiler sees, read the bytes, too.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from jaxops import ops
from jaxops.dtypes import is_float
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.graph.nodes import Graph, Node, Tensor
from jaxops.openvino.constant_forms import (
    BYTES,
    BlockBytes,
    Form,
    PackedZeros,
    Repeated,
    Reshaped,
    Rounded,
    SwappedHalves,
)
from jaxops.openvino.open import PackedTensor
from jaxops.openvino.registry import Operator
from jaxops.ops import microsoft, openvino


class WeightOperator(SignatureOperator):
    """An operator that dequantizes a weight, or multiplies by it; the type of its result is known."""

    def output_types(self, node: Node, inputs: Sequence[np.dtype | None]) -> list[np.dtype | None]:
        """Returns the type that an attribute states, or else the type of the first input."""
        named = (node.attributes[name] for name in ("output_dtype", "to") if name in node.attributes)
        return [next(named, inputs[0])]


_LOOK_UP = WeightOperator("Gather", openvino.look_up)
_DEQUANTIZE = WeightOperator("Multiply", ops.dequantize_linear)
_BLOCK_PRODUCT = WeightOperator("MatMul", microsoft.matmul_nbits)
_NF4_PRODUCT = WeightOperator("MatMul", microsoft.matmul_bnb4)
_CHAIN = ("Convert", "Subtract", "Multiply", "Reshape")
_CODES = {"uint4": 16, "uint8": 256}
_TYPES = {"int4", "uint4", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"}


class _Weight(NamedTuple):
    """A compressed weight. numbers, scale, zero: the names of its constants; zero may be empty.

    scale_sizes: the shape of the scale, with the rank of the numbers. chain: its layers, from the Multiply to the one
    that gives the value. dtype, shape: of the value.
    """

    numbers: str
    scale: str
    zero: str
    scale_sizes: tuple[int, ...]
    chain: list[Node]
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def value(self) -> str:
        return self.chain[-1].outputs[0]


def with_compressed_weights(graph: Graph) -> Graph:
    """Rewrites a bound graph so that one node dequantizes each compressed weight, or the products that read it do."""
    graph = replace(graph, nodes=tuple(node.with_nested(with_compressed_weights) for node in graph.nodes))
    if not any(map(_is_compressed, graph.initializers.values())):
        return graph
    return _Rewriter(graph).graph()


def _is_compressed(tensor: Tensor) -> bool:
    return tensor.dtype.name in _TYPES or _is_nf4(tensor)


def _is_nf4(tensor: Tensor) -> bool:
    return isinstance(tensor, PackedTensor) and tensor.dtype == np.float32


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors = graph.initializers
        self._changed: dict[str, Tensor] = {}  # constants in another form
        self._uses: Counter[str] = Counter()  # constant → the number of weights that use it
        self._producers = {name: node for node in graph.nodes for name in node.outputs}
        self._readers: dict[str, list[Node | None]] = {}
        for node in graph.nodes:
            for name in node.uses():
                self._readers.setdefault(name, []).append(node)
        for name in graph.output_names:
            self._readers.setdefault(name, []).append(None)
        self._taken = set(graph.defined)
        self._new: dict[Node, Node] = {}

    def graph(self) -> Graph:
        weights = [w for node in self._graph.nodes if (w := self._weight(node)) is not None]
        self._uses.update(name for w in weights for name in (w.numbers, w.scale, w.zero))
        for weight in weights:
            if not self._product(weight):
                self._dequantized(weight)
        for node in self._graph.nodes:
            if codes := self._codes_of(node):
                self._looked_up(node, codes)
        used = set(self._graph.output_names)
        nodes: list[Node] = []
        for old in reversed(self._graph.nodes):
            node = self._new.get(old, old)
            if not used.isdisjoint(node.outputs) or not any(_does(old, op_type) for op_type in _CHAIN):
                nodes.append(node)
                used.update(node.uses())
        tensors = {**self._tensors, **self._changed}
        read = {name: tensor for name, tensor in tensors.items() if name in used or name not in self._readers}
        return replace(self._graph, nodes=tuple(nodes[::-1]), initializers=read)

    def _made_by(self, name: str, op_type: str) -> Node | None:
        node = self._producers.get(name)
        return node if node is not None and _does(node, op_type) else None

    def _constant(self, name: str) -> str:
        """Returns the name of the compressed constant that a Convert turns into floats; empty for anything else."""
        convert = self._made_by(name, "Convert")
        if convert is None or convert.inputs[0] not in self._tensors:
            return ""
        return convert.inputs[0] if _is_compressed(self._tensors[convert.inputs[0]]) else ""

    def _codes_of(self, gather: Node) -> str:
        """Returns the constant of codes that a Gather looks up in a table of 16 or 256 numbers; else empty."""
        if not _does(gather, "Gather") or gather.inputs[2] not in self._tensors:
            return ""
        codes = gather.inputs[1] if gather.inputs[1] in self._tensors else self._constant(gather.inputs[1])
        table = self._tensors.get(gather.inputs[0]) or self._tensors.get(self._constant(gather.inputs[0]))
        if not codes or table is None:
            return ""
        return codes if table.shape == (_CODES.get(self._tensors[codes].dtype.name),) else ""

    def _weight(self, multiply: Node) -> _Weight | None:
        if not _does(multiply, "Multiply"):
            return None
        for value, scale in (multiply.inputs, multiply.inputs[::-1]):
            by = self._tensors.get(scale)
            subtract, zero = self._made_by(value, "Subtract"), ""
            if subtract is not None:
                value, zero = subtract.inputs[0], self._constant(subtract.inputs[1])
            numbers = self._constant(value)
            if not numbers or by is None or not (is_float(by.dtype) and by.dtype.itemsize > 1):
                continue
            sizes = self._tensors[numbers].shape
            scale_sizes = _of_rank(by.shape, len(sizes))
            if not _broadcasts(scale_sizes, sizes):
                continue
            if subtract is not None and not self._is_zero(zero, numbers, scale_sizes):
                continue
            chain, shape = self._chain(multiply, sizes)
            convert = next((node for node in chain if _does(node, "Convert")), None)
            first = self._producers[value]
            dtype = _type_of(first if convert is None else convert)
            return _Weight(numbers, scale, zero, scale_sizes, chain, dtype, shape)
        return None

    def _is_zero(self, zero: str, numbers: str, scale_sizes: Sequence[int]) -> bool:
        """Returns True for zero points that have the type of the numbers and broadcast to the scales."""
        if not zero or self._tensors[zero].dtype != self._tensors[numbers].dtype:
            return False
        return _broadcasts(_of_rank(self._tensors[zero].shape, len(scale_sizes)), scale_sizes)

    def _chain(self, multiply: Node, shape: tuple[int, ...]) -> tuple[list[Node], tuple[int, ...]]:
        """Returns the Multiply and the Reshape and Convert after it, as long as each is the only reader of the last."""
        chain, done = [multiply], {"Multiply"}
        while len(self._readers.get(chain[-1].outputs[0], ())) == 1:
            (reader,) = self._readers[chain[-1].outputs[0]]
            if reader is None or reader.inputs[0] != chain[-1].outputs[0] or reader.operator.name in done:
                break
            if _does(reader, "Reshape") and reader.inputs[1] in self._tensors:
                target = self._tensors[reader.inputs[1]].load().reshape(-1).tolist()
                special = reader.attributes["special_zero"]
                sizes = [shape[i] if d == 0 and special and i < len(shape) else d for i, d in enumerate(target)]
                known = math.prod(d for d in sizes if d != -1)
                sizes = [math.prod(shape) // max(known, 1) if d == -1 else d for d in sizes]
                if math.prod(sizes) != math.prod(shape):  # the Reshape will raise an error when it runs
                    break
                shape = tuple(sizes)
            elif not (_does(reader, "Convert") and is_float(_type_of(reader))):
                break
            chain.append(reader)
            done.add(reader.operator.name)
        return chain, shape

    def _dequantized(self, weight: _Weight) -> None:
        numbers = self._tensors[weight.numbers]
        layout = _layout(numbers.shape, weight.scale_sizes)
        if layout is None or _is_nf4(numbers):
            self._widened(weight)
            return
        sizes, axis, block_size = layout
        names = [weight.numbers, self._reshaped(weight.scale, sizes, self._tensors[weight.scale].dtype)]
        if weight.zero:
            zero = self._tensors[weight.zero]
            repeated = Repeated(zero, zero.dtype, sizes, weight.scale_sizes)
            names.append(weight.zero if zero.shape == sizes else self._named(weight.zero, repeated))
        attributes = {"axis": axis, "block_size": block_size, "output_dtype": weight.dtype}
        reshapes = [node for node in weight.chain if _does(node, "Reshape")]
        multiply = weight.chain[0]
        output = multiply.outputs[0] if reshapes else weight.value
        self._new[multiply] = replace(
            multiply, operator=_DEQUANTIZE, inputs=tuple(names), outputs=(output,), attributes=attributes
        )
        for node in weight.chain[1:]:
            self._new[node] = replace(node, outputs=("",))
        for node in reshapes:
            self._new[node] = replace(node, inputs=(output, *node.inputs[1:]), outputs=(weight.value,))

    def _widened(self, weight: _Weight) -> None:
        """Lets the layers of a weight compute in the type of its value instead of float16, as OpenVINO does."""
        read = {*weight.chain[0].inputs}
        subtract = next((self._producers[name] for name in read if self._made_by(name, "Subtract")), None)
        converts = [self._made_by(name, "Convert") for name in (subtract.inputs if subtract else read)]
        for node in filter(None, converts):
            if len(self._readers[node.outputs[0]]) > 1:
                return
            source, numbers = node.inputs[0], self._tensors[node.inputs[0]]
            if _is_nf4(numbers):  # OpenVINO rounds these numbers, but no later result
                source = self._named(source, Rounded(numbers, weight.dtype, numbers.shape, _type_of(node)))
            attributes = {**node.attributes, "destination_type": weight.dtype}
            self._new[node] = replace(node, inputs=(source,), attributes=attributes)
        self._scale_in(weight.dtype, weight.chain[0], weight.scale)

    def _scale_in(self, dtype: np.dtype, multiply: Node, scale: str) -> None:
        """Lets a Multiply read its scale in another type."""
        wide = self._reshaped(scale, self._tensors[scale].shape, dtype)
        inputs = tuple(wide if name == scale else name for name in multiply.inputs)
        self._new[multiply] = replace(multiply, inputs=inputs)

    def _looked_up(self, gather: Node, codes: str) -> None:
        """Makes a Gather look up codes. The result has the type of the weight, if a scale follows."""
        value, table = gather.outputs[0], gather.inputs[0]
        dtype = self._tensors[table].dtype if table in self._tensors else _type_of(self._producers[table])
        readers = self._readers.get(value, ())
        multiply = readers[0] if len(readers) == 1 else None
        if multiply is not None and _does(multiply, "Multiply"):
            scale = next(name for name in multiply.inputs if name != value)
            chain, _ = self._chain(multiply, self._tensors[codes].shape)
            convert = next((node for node in chain if _does(node, "Convert")), None)
            if convert is not None and scale in self._tensors:
                dtype = _type_of(convert)
                self._scale_in(dtype, multiply, scale)
        attributes = {"to": dtype}
        self._new[gather] = replace(gather, operator=_LOOK_UP, inputs=(codes, table), attributes=attributes)

    def _product(self, weight: _Weight) -> bool:
        """Makes all readers of a weight read its bytes. Returns False if one of them is not such a product."""
        readers = self._readers.get(weight.value, ())
        products = [node for node in readers if node is not None and _is_product(node, weight.value)]
        numbers = self._tensors[weight.numbers]
        has_rows = len(weight.shape) == 2 and 2 <= len(numbers.shape) <= 3 and numbers.shape[0] == weight.shape[0]
        if not products or len(products) < len(readers) or not has_rows:
            return False
        if weight.scale_sizes != (*numbers.shape[:-1], 1):
            return False
        made = self._nf4_operands(weight) if _is_nf4(numbers) else self._block_operands(weight)
        if made is None:
            return False
        product, names, attributes = made
        (n, k), block_size = weight.shape, numbers.shape[-1]
        attributes |= {"K": k, "N": n, "block_size": block_size}
        for node in products:
            inputs = node.inputs[0], *names
            self._new[node] = replace(node, operator=product, inputs=inputs, attributes=attributes)
        return True

    def _nf4_operands(self, weight: _Weight) -> tuple[SignatureOperator, list[str], dict[str, Any]] | None:
        numbers, (n, k) = self._tensors[weight.numbers], weight.shape
        if weight.zero or k % 2 or not isinstance(numbers, PackedTensor):
            return None
        codes = SwappedHalves(numbers, BYTES, (n, k // 2))
        scales = self._reshaped(weight.scale, (n, k // numbers.shape[-1]), weight.dtype)
        return _NF4_PRODUCT, [self._named(weight.numbers, codes), scales], {"quant_type": 1}

    def _block_operands(self, weight: _Weight) -> tuple[SignatureOperator, list[str], dict[str, Any]] | None:
        numbers, (n, k) = self._tensors[weight.numbers], weight.shape
        bits, block_size = 4 if isinstance(numbers, PackedTensor) else 8, numbers.shape[-1]
        is_signed = numbers.dtype.name.startswith("int")
        if "int" not in numbers.dtype.name or block_size < 16 or block_size & (block_size - 1):
            return None
        # Without a zero point the product takes the middle. With one scale per channel, floats serve 8 bits as well.
        if not (weight.zero or is_signed) or (bits == 8 and len(numbers.shape) == 2):
            return None
        blocks = k // block_size
        middle = 2 ** (bits - 1) if is_signed else 0
        sizes = n, blocks, block_size * bits // 8
        codes = BlockBytes(numbers, BYTES, sizes, middle)
        names = [self._named(weight.numbers, codes), self._reshaped(weight.scale, (n, blocks), weight.dtype)]
        if weight.zero:
            zero, row = self._tensors[weight.zero], (n, -(-blocks * bits // 8))
            names.append(self._named(weight.zero, PackedZeros(zero, BYTES, row, weight.scale_sizes, middle, bits)))
        return _BLOCK_PRODUCT, names, {"bits": bits}

    def _reshaped(self, name: str, sizes: tuple[int, ...], dtype: np.dtype) -> str:
        """Returns the name of a constant in another shape and type."""
        tensor = self._tensors[name]
        if dtype == tensor.dtype and tensor.shape == sizes:
            return name
        return self._named(name, Reshaped(tensor, dtype, sizes))

    def _named(self, name: str, form: Form) -> str:
        """Adds a constant in another form; returns its name, a new one if something else reads the old form."""
        unused, count = name, 1
        while (len(self._readers[name]) > 1 or self._uses[name] > 1) and unused in self._taken:
            unused, count = f"{name}_{count}", count + 1
        self._taken.add(unused)
        self._changed[unused] = form.tensor
        return unused


def _does(node: Node, op_type: str) -> bool:
    """Returns True for a layer of this type whose operands, if it has two, broadcast as NumPy's."""
    is_numpy = node.attributes.get("auto_broadcast", "numpy") == "numpy"
    return isinstance(node.operator, Operator) and node.operator.name == op_type and is_numpy


def _type_of(convert: Node) -> np.dtype:
    return np.dtype(convert.attributes["destination_type"])


def _is_product(node: Node, weight: str) -> bool:
    """Returns True for x · weightᵀ."""
    if not _does(node, "MatMul") or node.inputs[0] == weight or node.inputs[1] != weight:
        return False
    return node.attributes["transpose_b"] and not node.attributes["transpose_a"]


def _of_rank(sizes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (*(1,) * (rank - len(sizes)), *sizes)


def _broadcasts(sizes: Sequence[int], target: Sequence[int]) -> bool:
    return len(sizes) == len(target) and all(a in (1, b) for a, b in zip(sizes, target, strict=True))


def _layout(sizes: tuple[int, ...], scale: tuple[int, ...]) -> tuple[tuple[int, ...], int, int] | None:
    """Returns the shape of a scale for `dequantize_linear`, its axis and block size; None if it takes no such scale."""
    several = [axis for axis, d in enumerate(scale) if d != 1]
    repeated = [axis for axis, d in enumerate(scale) if d != sizes[axis]]
    if not several:
        return (), 0, 0
    if len(several) == 1:
        return (scale[several[0]],), several[0], 0
    return (scale, repeated[0], sizes[repeated[0]]) if len(repeated) == 1 else None
