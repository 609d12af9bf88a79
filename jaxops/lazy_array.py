"""Parameters that stay in their file until something needs them.

The calls of a model may need none of them unchanged: of a filter they need a transposed copy. So a parameter is
read when a program is compiled, for NumPy and let go again, or for good.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from jaxops.host import cores

# Most of the time of reading a file into new memory goes into making its pages, which two threads can share.
READERS = min(4, cores())


@dataclass(eq=False)
class Unread:
    """A parameter in its file. read: gives it, anew each time; type: its shape and dtype.

    array: what `read_once` gave, if it was asked. `np.asarray` reads it, and keeps nothing.
    """

    type: jax.ShapeDtypeStruct
    read: Callable[[], jax.Array]
    array: jax.Array | None = None
    _lock: Any = field(default_factory=threading.Lock)

    is_fully_addressable = True

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(current(self))

    def read_once(self) -> jax.Array:
        """The parameter, which stays in memory."""
        with self._lock:
            if self.array is None:
                self.array = self.read()
        return self.array


def current(x: Any) -> Any:
    """A parameter as an array of JAX, which is not kept if nobody has it yet."""
    return x if not isinstance(x, Unread) else x.read() if x.array is None else x.array


def type_of(x: Any) -> Any:
    """A parameter, or an object with its shape and dtype."""
    return x.type if isinstance(x, Unread) else x


def arrays(weights: Sequence[Any]) -> list[Any]:
    """Parameters as arrays of JAX, which stay in memory."""
    unread = [x for x in weights if isinstance(x, Unread) and x.array is None]
    if unread:  # to start threads takes as long as a small program
        # A parameter on a mesh is read in parts, so that the host holds one of them at a time.
        with ThreadPoolExecutor(1 if any(x.type.sharding for x in unread) else READERS) as executor:
            list(executor.map(Unread.read_once, unread))
    return [x.read_once() if isinstance(x, Unread) else x for x in weights]


def named_arrays(params: Mapping[str, Any]) -> dict[str, Any]:
    """The same parameters, read into memory."""
    return dict(zip(params, arrays(list(params.values())), strict=True))


def is_the_same(x: Any, y: Any) -> bool:
    """Returns True if `x` is the parameter `y`, which may have been read meanwhile."""
    return x is y or (isinstance(y, Unread) and x is not None and x is y.array)
