"""Shared by commands: the model that is named, paths and packages, what is printed."""

import argparse
import ast
import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxops.errors import ArgumentError, PathError, UnsupportedError, amount, install
from jaxops.progress import progress
from jaxops.shown_text import clean
from jaxops.tools.inspect.tables import Report, Table

# Shows the progress of a slow step on a terminal.
busy = functools.partial(progress, prompts=False)
_MODEL = (
    "an .onnx file, an OpenVINO .xml, - for an ONNX model from the standard input, or the name of a model that the "
    "onnx package carries, such as light_resnet50"
)


def command(
    commands: Any,
    run: Callable[[argparse.Namespace], int],
    example: str,
    *,
    model: bool = True,
    weights: bool = True,
) -> argparse.ArgumentParser:
    """Adds a command with the name and the docstring of the function that runs it; returns its parser.

    example: arguments of a call, for the help text. model: True if the command takes MODEL. weights: True if it loads
    the weights of the model.
    """
    name, text = run.__name__.strip("_").replace("_", "-"), run.__doc__ or ""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=f"{text[:1].lower()}{text[1:].rstrip('.')}",
        description=text,
        epilog=f"example:\n  python -m jaxops {name} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if model:
        parser.add_argument("model", metavar="MODEL", help=_MODEL)
    if model and weights:
        parser.add_argument(
            "--external-data", metavar="FOLDER", help="the folder of the weights (default: the model's)"
        )
    parser.set_defaults(run=run)
    return parser


def takes_values(parser: argparse.ArgumentParser) -> None:
    """Adds the options that fix the values of inputs, and sizes that depend on data."""
    parser.add_argument(
        "--value", action="append", default=[], metavar="NAME=VALUE", help="fixes an input to a value: sr=16000"
    )
    parser.add_argument(
        "--bound",
        action="append",
        default=[],
        metavar="NAME=N",
        help="fixes the size of the result of a node or an operator, where it depends on data: NonMaxSuppression=100",
    )


def require(subject: str, *packages: str) -> None:
    """Raises ModuleNotFoundError, with what to install, if a package of the extra `onnx` is missing."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{subject} needs the {package} package; {install('onnx')}") from error


def path_to_write(text: str) -> Path:
    """The path of a file to write. Raises PathError if its folder is missing, before a model is loaded in vain."""
    path = Path(text)
    if not path.parent.is_dir():
        raise PathError(f"{text}: there is no folder '{path.parent}' to write to")
    return path


def with_size(path: Path) -> str:
    """Returns the path and the size of a file that was written, for a message."""
    return f"{path} ({amount(path.stat().st_size, 'byte')})"


def show_stored(types: Mapping[str, tuple[np.dtype, np.dtype]]) -> None:
    """Prints which arrays a file stores in another type. types: name → (type of the array, type in the file)."""
    stored = [f"{name} ({dtype.name} in {bits.name})" for name, (dtype, bits) in types.items() if bits != dtype]
    if stored:
        show(f"stored as integers with the same bits, to be read by NumPy's view(…): {', '.join(stored)}")


def readable(name: str) -> Any:
    """The path of a file, or of the model of that name that the onnx package carries; "-" is the standard input.

    Raises ArgumentError for an OpenVINO IR from the standard input, as its weights are in another file.
    """
    if name == "-":
        data = sys.stdin.buffer.read()
        if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
            raise ArgumentError(
                "-: the standard input is XML, but the weights of an OpenVINO IR are in a file; name it"
            )
        return data
    return name if Path(name).exists() or Path(name).suffix else front_end(name).carried(name)


def front_end(name: str) -> Any:
    """The module that reads a file, by the end of its name: `jaxops.openvino` for .xml, else `jaxops.onnx`."""
    return importlib.import_module("jaxops.openvino" if Path(name).suffix.lower() == ".xml" else "jaxops.onnx")


def loaded(options: argparse.Namespace, cache: str | None = None) -> Any:
    """The model that the options name. cache: as in `load`."""
    try:
        jax.devices()
    except RuntimeError as error:  # JAX_PLATFORMS asks for a platform that is not there
        raise UnsupportedError(f"JAX has no device to run on: {error}") from error
    values = {name: _value(name, text) for name, text in pairs(options.value, "--value", first=True).items()}
    bounds = {name: number("--bound", name, text) for name, text in pairs(options.bound, "--bound").items()}
    path, reader, folder = readable(options.model), front_end(options.model), options.external_data
    if reader.__name__ == "jaxops.onnx":
        weights = {"external_data": folder}
    else:
        weights = {} if folder is None else {"weights": Path(folder, Path(path).stem + ".bin")}
    with busy(f"loading {options.model}"):
        return reader.load(path, cache=cache, values=values, bounds=bounds, **weights)


def _value(name: str, text: str) -> Any:
    """A number, a boolean, a string or a list of them, as Python writes it."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError) as error:
        raise ArgumentError(f"--value {name}={text}: write a number, True, 'a string', or a list of them") from error


def show(*items: Any) -> None:
    """Prints tables and text, in colour if that is possible, without cutting lines of a file."""
    from rich.console import Console  # of the extra `onnx`

    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 140))
    for item in items:
        if isinstance(item, Report | Table) and not console.is_terminal:
            item = str(item)
        item = clean(item, keep="\n") if isinstance(item, str) else item
        console.print(item, highlight=False, markup=False, soft_wrap=isinstance(item, str))


def pairs(items: Sequence[str], option: str, *, first: bool = False) -> dict[str, str]:
    """NAME=VALUE options as a dictionary. first: split at the first '=' instead of the last, as a value may contain
    one.
    """
    values = {}
    for item in items:
        name, equals, value = item.partition("=") if first else item.rpartition("=")
        if not equals:
            raise ArgumentError(f"{option} {item}: write NAME=VALUE")
        if name in values:
            raise ArgumentError(f"{option}: {name} is given twice, as {values[name]} and as {value}")
        values[name] = value
    return values


def number(option: str, name: str, text: str) -> int:
    """The size that an option gives a name."""
    if not text.isdecimal():
        raise ArgumentError(f"{option} {name}={text}: a size is a whole number of at least 0")
    return int(text)
