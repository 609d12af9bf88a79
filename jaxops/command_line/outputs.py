"""Writes the outputs of a model to a file: `run --output`."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxops.command_line.shared import path_to_write, show, show_stored, with_size
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.tools.python.files import stored_as


def output_path(text: str) -> Path:
    """Returns the path of the file. Raises ArgumentError unless it ends in .npz or .npy."""
    if (suffix := Path(text).suffix) not in (".npz", ".npy"):
        raise ArgumentError(
            f"--output {text}: outputs are written as .npz or .npy, not {suffix or 'without an ending'}"
        )
    return path_to_write(text)


def check_outputs(path: Path, formals: Sequence[Any]) -> None:
    """Raises those errors of `write_outputs` that the declared outputs show before the model runs."""
    names = [formal.name for formal in formals]
    if path.suffix == ".npy" and len(names) != 1:
        raise ArgumentError(f"--output {path}: a .npy file holds one array; write the outputs {names} to a .npz file")
    for formal in formals:
        member = f"{formal.name}.npy"
        # numpy.load would find another array under such a name, or none.
        if path.suffix == ".npz" and (member in names or zipfile.ZipInfo(member).filename != member):
            raise ArgumentError(f"--output {path}: a .npz file cannot hold an output of the name {formal.name!r}")
        if formal.kind != "tensor":
            raise _no_array(formal.name, formal.kind)


def write_outputs(path: Path, outputs: Mapping[str, Any]) -> None:
    """Writes the outputs under their names, and prints what was written.

    Strings become NumPy's text of fixed width. An element type that the file format lacks becomes an integer type with
    the same bits.
    Raises UnsupportedError for an output that is not an array, and for strings that NumPy's strings cannot hold.
    """
    arrays = {name: _array(name, value) for name, value in outputs.items()}
    stored = {name: x.view(stored_as(x.dtype) or x.dtype) for name, x in arrays.items()}
    if path.suffix == ".npy":
        (x,) = stored.values()
        with path.open("wb") as file:
            np.lib.format.write_array(file, x, allow_pickle=False)
    else:  # `np.savez` has parameters of its own, such as `file`, whose names an output may have
        with zipfile.ZipFile(path, "w") as archive:
            for name, x in stored.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, x, allow_pickle=False)
    show(f"wrote {with_size(path)}")
    show_stored({name: (x.dtype, stored[name].dtype) for name, x in arrays.items()})


def _array(name: str, value: Any) -> np.ndarray:
    if not hasattr(value, "dtype"):
        raise _no_array(name, type(value).__name__)
    array = np.asarray(value)
    if array.dtype != object:
        return array
    text = array.astype(str)
    if not np.array_equal(text.astype(object), array):
        raise UnsupportedError(
            f"--output: the strings of output {name!r} cannot be written: one ends in a NUL, which NumPy drops"
        )
    return text


def _no_array(name: str, kind: str) -> UnsupportedError:
    return UnsupportedError(
        f"--output: output {name!r} is not an array but of the kind {kind}; a .npz or .npy file holds arrays only\n"
        "  hint    load the model in Python, call it, and write the arrays in that output"
    )
