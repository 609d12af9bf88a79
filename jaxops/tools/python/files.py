"""The files of a package: the module, its parameters and its constants, and their contents when written."""

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import ExistsError
from jaxops.file_replacement import replacing

MODULE, PARAMS, CONSTANTS = "__init__.py", "params.safetensors", "constants.npz"
# The digests of the other files, in the format of `sha256sum`.
DIGESTS = ".jaxops.sha256"
# Safetensors keeps what is said about the file under this key.
_RESERVED = "__metadata__"


def keys(paths: Mapping[str, str]) -> dict[str, str]:
    """The paths of parameters, by their names, with another one for the key that the file of parameters reserves."""
    renamed = _RESERVED
    while renamed in paths.values():
        renamed += "_"
    return {name: renamed if path == _RESERVED else path for name, path in paths.items()}


def stored_as(dtype: np.dtype) -> np.dtype | None:
    """The integer type in which a file stores elements of a type that its format lacks; None if it has the type."""
    return np.dtype(f"uint{8 * dtype.itemsize}") if dtype.kind == "V" else None


def check_free(folder: Path) -> None:
    """Raises ExistsError for a folder that is not empty, unless it has an unchanged package that `write` wrote.

    Other files in the folder may have changed: they are not overwritten.
    """
    if folder.exists() and not folder.is_dir():
        raise ExistsError(f"to_python: '{folder}' is a file; give a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / DIGESTS).is_file():
        problem = "was not written by to_python"
    else:
        lines = (folder / DIGESTS).read_text(encoding="utf-8").splitlines()
        written = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        present = [name for name in (MODULE, PARAMS, CONSTANTS) if (folder / name).exists()]
        edited = [name for name in present if written.get(name) != _digest(folder / name)]
        if not edited:
            return
        problem = f"was edited since it was written: {', '.join(edited)}"
    raise ExistsError(
        f"to_python: the folder '{folder}' {problem}\n"
        "  hint    give another folder, or overwrite=True (--overwrite on the command line), which replaces "
        f"{MODULE}, {PARAMS} and {CONSTANTS} in it"
    )


def write(folder: Path, text: str, params: Mapping[str, Any], constants: Mapping[str, np.ndarray]) -> None:
    """Writes the package into a folder. Removes files of an earlier package that the new one does not have."""
    from safetensors.flax import save_file

    folder.mkdir(parents=True, exist_ok=True)
    names = [MODULE, PARAMS, *([CONSTANTS] if constants else [])]
    with ExitStack() as stack:  # the digests are the last to get their name
        written = {name: stack.enter_context(replacing(folder / name, "to_python")) for name in (DIGESTS, *names)}
        written[MODULE].write_text(text, encoding="utf-8")
        save_file({name: storable(value) for name, value in params.items()}, written[PARAMS])
        if constants:
            arrays = {name: x.view(stored_as(x.dtype) or x.dtype) for name, x in constants.items()}
            np.savez(written[CONSTANTS], allow_pickle=False, **arrays)
        lines = [f"{_digest(written[name])}  {name}\n" for name in names]
        written[DIGESTS].write_text("".join(lines), encoding="utf-8")
    if not constants:
        (folder / CONSTANTS).unlink(missing_ok=True)


def storable(value: Any) -> Any:
    """A parameter as an array that the file of parameters can store; see `in_params`."""
    array = as_traced(value)
    stored = in_params(array.dtype)
    return array if stored is None else as_traced(np.asarray(array).view(stored))


def in_params(dtype: np.dtype) -> np.dtype | None:
    """The stored type as in `stored_as`, for the file of parameters, which can also store bfloat16."""
    return None if dtype.name == "bfloat16" else stored_as(dtype)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
