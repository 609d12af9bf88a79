"""The inputs of a call: arrays or images from files, or random numbers."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxops.command_line.images import read_image
from jaxops.command_line.shared import busy, number, pairs, takes_values
from jaxops.errors import ArgumentError, amount


def takes_inputs(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the inputs of a call."""
    takes_values(parser)
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE", help="the file of the input of that name"
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help=".npy files or images, in order of the inputs (default: random numbers)",
    )
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=N", help="a number for a symbolic size of the inputs"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default 0)")


def inputs(model: Any, options: argparse.Namespace) -> list[Any]:
    """Returns an array for each input, from its file or random. Symbolic sizes are the smallest ones that fit."""
    if options.seed < 0:
        raise ArgumentError(f"--seed {options.seed}: a seed is at least 0")
    formals = model.inputs
    files = _files(options, [v.name for v in formals])
    sizes = {name: number("--size", name, value) for name, value in pairs(options.size, "--size").items()}
    for formal in formals:
        missing = formal.dtype is None or formal.shape is None or formal.dtype == object or formal.static
        if missing and formal.name not in files:
            raise ArgumentError(
                f"input {formal} cannot be random; give it with --input {formal.name}=FILE.npy "
                f"or --value {formal.name}=VALUE"
            )
    read = {v.name: _read(files[v.name], v) for v in formals if v.name in files}
    with busy("looking for sizes that fit"):
        shapes = model._examples("--size", (), {}, sizes, read)
    random = np.random.default_rng(options.seed)

    def made(formal: Any) -> np.ndarray:
        shape = shapes[formal.name].shape
        values = random.integers(0, 2, shape) if formal.dtype.kind in "iub" else random.random(shape)
        return np.asarray(values, formal.dtype)

    return [read[v.name] if v.name in read else made(v) for v in formals]


def _files(options: argparse.Namespace, names: Sequence[str]) -> dict[str, str]:
    """The files by the names of their inputs."""
    if len(options.files) > len(names):
        raise ArgumentError(f"got {amount(len(options.files), 'file')}, but the model's inputs are {names}")
    files = dict(zip(names, options.files, strict=False))
    for name, file in pairs(options.input, "--input").items():
        if name not in names:
            raise ArgumentError(f"--input {name}: the model's inputs are {names}")
        if name in files:
            raise ArgumentError(f"--input: {name} is given twice, as {files[name]} and as {file}")
        files[name] = file
    return files


def _read(path: str, formal: Any) -> np.ndarray:
    with open(path, "rb") as file:
        if Path(path).suffix != ".npy" and file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            return read_image(path, formal)
        file.seek(0)
        try:
            return np.lib.format.read_array(file)
        except (ValueError, EOFError) as error:
            raise ArgumentError(f"{path}: not a .npy file of numbers or strings: {error}") from error
