"""When Python looks for garbage, and when the system gets memory back."""

import contextlib
import ctypes
import gc
import sys
from collections.abc import Iterator

# What glibc has for it.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


@contextlib.contextmanager
def garbage_later() -> Iterator[None]:
    """Python looks for no garbage inside `with`, and behind it as if what is there had been looked through.

    A model is loaded and traced into very many objects, nearly all of which stay. To look through them again and again,
    and through all modules each time, takes 0.1 to 0.35 s: a third of ConvNeXt-T's start from the cache. To look
    through them once, right behind it, takes 0.01 to 0.1 s.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Only what is frozen and thawed again is counted among what has stayed for long. What others froze stays so.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def give_back() -> None:
    """Gives the system what is free: glibc would keep most of what a compiler has let go of.

    That is 50 to 75 MB of the 400 to 550 of a convolutional network, in 10 ms; calls would take new memory beside it.
    """
    if _TRIM is not None:
        _TRIM(0)
