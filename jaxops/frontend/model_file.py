"""The file of a model, by the path that a caller gives."""

import io
import os
import stat
from pathlib import Path
from typing import Any

from jaxops.errors import PathError


def opened(model: Any, path: Path) -> io.BufferedReader:
    """A file that `load` was given, to be read. model: as the caller wrote its path.

    Raises PathError for a path that names no file, a directory or a device.
    """
    try:
        file = path.open("rb")
        if not is_device(file):
            return file
        file.close()
        raise OSError("it is a device")
    except FileNotFoundError as error:
        raise PathError(f"load: there is no file {os.fspath(model)!r}") from error
    except PermissionError:
        raise
    except (ValueError, OSError) as error:  # a directory, a NUL, too long a name
        problem = "is a directory" if isinstance(error, IsADirectoryError) else f"cannot be read: {error!s:.80}"
        raise PathError(f"load: {os.fspath(model)!r:.80} {problem}; give the path of a file") from error


def is_device(file: Any) -> bool:
    """Returns True for a device, such as /dev/zero, which may have no end."""
    try:
        mode = os.fstat(file.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # it is in memory, or closed
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
