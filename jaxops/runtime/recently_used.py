"""Dictionaries that keep what was used last, so that a server which sees every size does not fill its memory."""

import threading
from collections import OrderedDict
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Programs, one for each size of the inputs: a small one takes about 2 MB.
MOST = 128


class RecentlyUsed(OrderedDict[K, V]):
    """A dictionary of the entries that were set, or found by `used`, last; several threads may use it.

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
        self._most, self._lock = most, threading.Lock()

    def __reduce__(self) -> Any:
        """A copy, in another process say, is empty: it computes entries of its own."""
        return type(self), (self._most,)

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            super().__setitem__(key, value)
            self.move_to_end(key)
            if len(self) > self._most:
                self.popitem(last=False)

    def used(self, key: K, default: Any = None) -> V | Any:
        """Returns an entry, which becomes the one that was used last; `default` if there is none."""
        value = self.get(key, default)
        if value is not default:
            try:  # noqa: SIM105 - this is in the way of each call, as the lock would be
                self.move_to_end(key)
            except KeyError:  # another thread has just dropped it
                pass
        return value
