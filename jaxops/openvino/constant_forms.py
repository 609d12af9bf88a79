"""The forms in which operators read compressed constants, each made from the form of the file and back."""

import abc
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jaxops.errors import UnsupportedError
from jaxops.graph.nodes import Graph, Tensor
from jaxops.openvino.element_types import TYPES, name_of
from jaxops.openvino.open import PackedTensor

BYTES = np.dtype(np.uint8)


@dataclass(frozen=True)
class RewrittenTensor(Tensor):
    """A constant in another form. in_file: turns values of the parameter into the numbers of the file."""

    in_file: Callable[[np.ndarray], np.ndarray] = field(kw_only=True, repr=False)


def ways_back(graph: Graph) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Returns the `in_file` of each rewritten constant of a graph and its nested graphs, by name."""
    tensors = graph.initializers.items()
    found = {name: tensor.in_file for name, tensor in tensors if isinstance(tensor, RewrittenTensor)}
    for inner in graph.nested:
        found |= ways_back(inner)
    return found


@dataclass(frozen=True)
class Form(abc.ABC):
    """A form of a constant. original: the constant as in the file. dtype, sizes: of this form."""

    original: Tensor
    dtype: np.dtype
    sizes: tuple[int, ...]

    @property
    def tensor(self) -> RewrittenTensor:
        """The constant in this form."""
        return RewrittenTensor(self.dtype, self.sizes, self.load, in_file=self.in_file)

    @abc.abstractmethod
    def load(self) -> np.ndarray:
        """Reads the constant in this form."""

    @abc.abstractmethod
    def in_file(self, values: np.ndarray) -> np.ndarray:
        """Returns the numbers of the file for values in this form."""


class Reshaped(Form):
    """Numbers in another shape and type."""

    def load(self) -> np.ndarray:
        return self.original.load().reshape(self.sizes).astype(self.dtype)

    def in_file(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(self.original.shape)


@dataclass(frozen=True)
class Rounded(Form):
    """Numbers that are rounded to another type first. through: that type."""

    through: np.dtype

    def load(self) -> np.ndarray:
        return self.original.load().astype(self.through).astype(self.dtype)

    def in_file(self, values: np.ndarray) -> np.ndarray:
        return values


@dataclass(frozen=True)
class Repeated(Form):
    """One zero point for each scale. scale_sizes: the shape of the scales, to which those of the file broadcast."""

    scale_sizes: tuple[int, ...]

    def load(self) -> np.ndarray:
        return np.broadcast_to(self.original.load(), self.scale_sizes).reshape(self.sizes)

    def in_file(self, values: np.ndarray) -> np.ndarray:
        """Returns the numbers of the file. Raises UnsupportedError if they differ, but the file has one number."""
        repeated = values.reshape(self.scale_sizes)
        shape = (*(1,) * (len(self.scale_sizes) - len(self.original.shape)), *self.original.shape)
        first = repeated[tuple(slice(0, 1) if size == 1 else slice(None) for size in shape)]
        if (repeated != first).any():
            raise UnsupportedError(
                f"save: zero points that differ now share one place in the file, which has a constant of shape "
                f"{list(self.original.shape)} for scales of shape {list(self.scale_sizes)}"
            )
        return first.reshape(self.original.shape)


@dataclass(frozen=True)
class PackedZeros(Repeated):
    """The zero points of each row as bytes, low bits first. middle: is added to signed ones, to make them unsigned."""

    middle: int
    bits: int

    def load(self) -> np.ndarray:
        repeated = np.broadcast_to(self.original.load(), self.scale_sizes)
        zeros = (repeated.astype(np.int16) + self.middle).astype(BYTES).reshape(self.sizes[0], -1)
        if self.bits == 8:
            return zeros
        zeros = np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2)))
        return zeros[:, ::2] | zeros[:, 1::2] << 4

    def in_file(self, values: np.ndarray) -> np.ndarray:
        if self.bits == 4:
            values = np.stack([values & 15, values >> 4], axis=-1)
        zeros = values.reshape(self.sizes[0], -1)[:, : self.scale_sizes[1]].astype(np.int16) - self.middle
        return super().in_file(zeros.astype(self.original.dtype))


@dataclass(frozen=True)
class BlockBytes(Form):
    """The bytes of numbers. middle: is added to signed numbers, to make them unsigned."""

    middle: int

    def load(self) -> np.ndarray:
        if isinstance(self.original, PackedTensor):
            return (self.original.packed() ^ np.uint8(self.middle * 0x11)).reshape(self.sizes)
        return (self.original.load().view(BYTES) ^ np.uint8(self.middle)).reshape(self.sizes)

    def in_file(self, values: np.ndarray) -> np.ndarray:
        if isinstance(self.original, PackedTensor):
            return _unpacked(values ^ np.uint8(self.middle * 0x11), self.original, name_of(self.original.dtype))
        return (values ^ np.uint8(self.middle)).view(self.original.dtype).reshape(self.original.shape)


class SwappedHalves(Form):
    """The bytes of nf4 codes, with the first code in the high half of a byte."""

    def load(self) -> np.ndarray:
        assert isinstance(self.original, PackedTensor)
        return _swapped(self.original.packed()).reshape(self.sizes)

    def in_file(self, values: np.ndarray) -> np.ndarray:
        return _unpacked(_swapped(values), self.original, "nf4")


def _swapped(codes: np.ndarray) -> np.ndarray:
    return codes >> 4 | codes << 4


def _unpacked(data: np.ndarray, original: Tensor, element: str) -> np.ndarray:
    """Returns the numbers in bytes that hold the first number in the low half."""
    unpack = TYPES[element].unpack
    assert unpack is not None
    count = int(np.prod(original.shape))
    return unpack(np.ascontiguousarray(data).reshape(-1), count).reshape(original.shape)
