"""Dictionaries that keep what was used last, so that a server which sees every size does not fill its memory."""

import threading
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Programs, one for each size of the inputs: a small one takes about 2 MB.
MOST = 128


class RecentlyUsed(dict[K, V]):
    """A dictionary of the entries that were set, or found by `used`, last; several threads may use it.

    `get` does not count as a use, and takes no longer than that of any dictionary.

    >>> found = RecentlyUsed(2)
    >>> found["a"], found["b"] = 1, 2
    >>> found.used("a")
    1
    >>> found["c"] = 3
    >>> list(found)
    ['a', 'c']
    """

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._most, self._lock = most, threading.RLock()

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            self.pop(key, None)
            super().__setitem__(key, value)
            while len(self) > self._most:
                del self[next(iter(self))]

    def used(self, key: K, default: Any = None) -> V | Any:
        """Returns an entry, which becomes the one that was used last; `default` if there is none."""
        with self._lock:
            if key not in self:
                return default
            value = self[key]
            self[key] = value
            return value
