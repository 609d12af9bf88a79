"""Python's garbage collector while a model is loaded."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def garbage_later() -> Iterator[None]:
    """Disables the garbage collector inside the block, and moves the new objects to its oldest generation afterwards.

    Loading and tracing make very many objects, nearly all of which stay. Scanning them again and again, with all
    modules each time, took up to a third of a start from the cache; scanning them once, right after loading, is cheap.
    """
    if not gc.isenabled():
        yield
        return
    try:
        gc.disable()  # inside, as Ctrl-C may come right behind it
        yield
    finally:
        gc.enable()
        # `freeze` and `unfreeze` move every object to the oldest generation. Objects that somebody else froze stay so.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
