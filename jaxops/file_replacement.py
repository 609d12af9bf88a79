"""Replaces files, so that other programs see the old contents or the new ones, never a part.

The new contents are written to a file in the same folder, which then gets the name of the old one. Links are followed:
the file that they name is replaced. Only a link into the cache of Hugging Face is replaced itself, since the files
there are named after their contents. The new file has the permissions of the old one.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jaxops.errors import PathError


def target(path: str | os.PathLike[str], caller: str) -> Path:
    """Returns the file to replace for a path, after following links; it need not exist. caller: for the message.

    Raises PathError if the target is something else: a folder, a device, a pipe, a socket, or links in a circle.
    """
    try:
        found = Path(path).resolve()
        mode = stat.S_IFREG
        with suppress(FileNotFoundError, NotADirectoryError):
            mode = found.stat().st_mode
    except (RuntimeError, ValueError, OSError) as error:  # links in a circle, a NUL, too long a name
        raise PathError(f"{caller}: {os.fspath(path)!r:.200} cannot be looked up: {error!s:.80}") from error
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise PathError(f"{caller}: {os.fspath(path)!r} is {kind}, which is not replaced; give the path of a file")
    link = Path(os.path.abspath(path))  # `Path.absolute` keeps "..", and `resolve` follows the link
    of_hugging_face = found.parent.name == "blobs" and found.parent.with_name("snapshots") in link.parents
    return link if of_hugging_face else found


def replace(written: Path, target: Path) -> None:
    """Renames a complete file to a target in the same file system. target: as the function `target` returns it."""
    if target.exists():
        written.chmod(stat.S_IMODE(target.stat().st_mode))
    written.replace(target)


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """Yields a folder next to a target for files that are to be renamed; it has no readers but the user."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        yield Path(folder)


@contextmanager
def replacing(path: str | os.PathLike[str], caller: str) -> Iterator[Path]:
    """Yields a path to write; at the end of the block, that file replaces `path`. An error leaves `path` as it is.

    Raises PathError as `target` does.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/notes.txt", "save") as file:
    ...         written = file.write_text("all of it")
    ...     Path(folder, "notes.txt").read_text()
    'all of it'
    """
    found = target(path, caller)
    with unfinished(found) as folder:
        yield folder / found.name
        replace(folder / found.name, found)
