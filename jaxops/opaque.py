"""Values that cannot be JAX arrays, on their way through `jit`: strings that traced numbers choose, lists of
dictionaries.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.export
import numpy as np

from jaxops.errors import BoundsError, StaticError, amount, describe
from jaxops.static import Sizes, StaticValue, Tracer

_SHOWN = 6  # keys of dictionaries in a repr


def _to_bytes(items: StaticValue) -> bytes:
    """A vector of strings or numbers, for the file of an exported program."""
    dtype = "" if items.value.dtype == object else items.value.dtype.name
    return json.dumps([dtype, items.value.tolist()]).encode()


def _from_bytes(data: bytes) -> StaticValue:
    dtype, values = json.loads(data)
    return StaticValue(np.array(values, dtype or object))


class Deferred:
    """A value that cannot be a JAX array, on its way through `jit`: an array, and the static items that it selects
    from.

    A pytree whose leaf is the array, so `jit` and `vmap` hand it through. `value` puts array and items together.
    """

    def __init__(self, array: Any, items: StaticValue) -> None:
        self.array = array
        self.items = items

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, lambda d: ((d.array,), d.items), lambda items, leaf: cls(*leaf, items))
        jax.export.register_pytree_node_serialization(
            cls,
            serialized_name=f"{cls.__module__}.{cls.__name__}",
            serialize_auxdata=_to_bytes,
            deserialize_auxdata=_from_bytes,
        )

    @classmethod
    def of(cls, array: Any, items: np.ndarray) -> Any:
        """The value at once if the array is concrete, else what stands for it."""
        return cls(array, StaticValue(items)).value

    @property
    def value(self) -> Any:
        """The value itself; `self` while the array is traced."""
        return self if isinstance(self.array, Tracer) else self.value_of(self.array)

    def value_of(self, array: Any) -> Any:
        """The value of another concrete array, with these items."""
        return self.made(np.asarray(array), self.items.value)

    @staticmethod
    def made(array: np.ndarray, items: np.ndarray) -> Any:
        """The value that an array and the items make."""
        raise NotImplementedError


class ChosenStrings(Deferred):
    """Strings that a traced array of positions chooses among static ones: the labels of a classifier under `jit`.

    `np.asarray` of it gives the strings, outside `jit`; inside it raises StaticError, so only what uses the strings
    is refused. An operator takes it as strings. `array` has the positions and `items.value` the strings.
    """

    dtype = np.dtype(object)

    @classmethod
    def all_of(cls, strings: np.ndarray) -> "ChosenStrings":
        """An array of strings as one that a transformation hands through."""
        positions = np.arange(strings.size, dtype=np.int32).reshape(strings.shape)
        return cls(jax.numpy.asarray(positions), StaticValue(strings.reshape(-1)))

    @staticmethod
    def made(array: np.ndarray, items: np.ndarray) -> np.ndarray:
        if ((array < 0) | (array >= len(items))).any():
            raise BoundsError(f"strings: an index that chooses one of {amount(len(items), 'string')} is out of range")
        return np.asarray(items[array], object)

    @property
    def shape(self) -> Sizes:
        """The shape of the positions."""
        return self.array.shape

    @property
    def ndim(self) -> int:
        """The number of axes of the positions."""
        return self.array.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        strings = self.value
        if strings is self:
            raise StaticError(
                "strings that depend on traced numbers cannot be used under jit\n"
                "  hint    use the scores, or a model with integer labels; or return the strings from the jitted "
                "function and take np.asarray of them outside"
            )
        return strings


class ZippedMaps(Deferred, Sequence[dict[Any, Any]]):
    """A list of dictionaries on its way through `jit`: a matrix, and the keys of its columns.

    It behaves as that list. Its numbers are Python's outside `jit`, traced inside.
    """

    def __len__(self) -> int:
        return self.array.shape[0]

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(self.array, Tracer):
            return self.value[index]
        if isinstance(index, slice):
            return ZippedMaps(self.array[index], self.items)
        return dict(zip(self.items.value.tolist(), self.array[range(len(self))[index]], strict=True))

    def __iter__(self) -> Iterator[dict[Any, Any]]:
        return iter(map(self.__getitem__, range(len(self))) if isinstance(self.array, Tracer) else self.value)

    def __eq__(self, other: object) -> bool:
        return self is other or (not isinstance(self.array, Tracer) and self.value == other)

    def __repr__(self) -> str:
        if not isinstance(self.array, Tracer):
            return repr(self.value)
        keys = ", ".join(map(repr, self.items.value.tolist()[:_SHOWN])) + ", …" * (len(self.items.value) > _SHOWN)
        maps = amount(len(self), "dictionary", "dictionaries")
        return f"ZippedMaps({maps} with the keys {keys}; array={describe(self.array)})"

    @staticmethod
    def made(array: np.ndarray, items: np.ndarray) -> list[dict[Any, Any]]:
        return list(map(dict, map(zip, itertools.repeat(items.tolist()), array.tolist())))
