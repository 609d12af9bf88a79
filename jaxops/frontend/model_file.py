"""Opens the file of a model."""

import io
import os
import stat
from pathlib import Path
from typing import Any

from jaxops.errors import PathError


def opened(model: Any, path: Path) -> io.BufferedReader:
    """Opens the file of a model for reading. model: the path as the caller wrote it, for messages.

    Raises PathError for a path where no file is, and for a directory or a device.
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
    except (ValueError, OSError) as error:  # a directory, a name with NUL, a name that is too long
        problem = "is a directory" if isinstance(error, IsADirectoryError) else f"cannot be read: {error!s:.80}"
        raise PathError(f"load: {os.fspath(model)!r:.80} {problem}; give the path of a file") from error


def is_device(file: Any) -> bool:
    """Returns True for a device, such as /dev/zero, which may have no end."""
    try:
        mode = os.fstat(file.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # a file in memory, or a closed one
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
