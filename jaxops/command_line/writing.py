"""The commands that turn a model into something else: export, to-python."""

import argparse
from pathlib import Path
from typing import Any

from jaxops.command_line.shared import (
    busy,
    command,
    loaded,
    pairs,
    path_to_write,
    require,
    show,
    show_stored,
    takes_values,
    with_size,
)


def add(commands: Any) -> None:
    """Adds the commands."""
    parser = command(commands, _export, "model.onnx model.jaxexport --size batch=b --size 'sequence=s <= 512'")
    parser.add_argument("file", metavar="FILE", help="the file to write; the parameters go to FILE.safetensors")
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="a number, or a symbol with its limits: s <= 512",
    )
    takes_values(parser)
    parser.add_argument(
        "--platform", action="append", metavar="NAME", help="cpu, cuda, rocm or tpu (default: this machine's)"
    )
    parser = command(commands, _to_python, "model.onnx net/")
    takes_values(parser)
    parser.add_argument("folder", metavar="FOLDER", help="the folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace other or edited files in it")


def _export(options: argparse.Namespace) -> int:
    """Writes a model as a serialized jax.export program, and its parameters as safetensors next to it."""
    require("export", "safetensors", "flatbuffers")  # jax.export serializes by flatbuffers
    from safetensors.flax import save_file

    from jaxops.tools.python.files import in_params, storable

    file = path_to_write(options.file)
    model = loaded(options)
    sizes: dict[str, Any] = {name: _size(value) for name, value in pairs(options.size, "--size", first=True).items()}
    with busy("exporting"):
        exported = model.export(sizes=sizes or None, platforms=options.platform)
        file.write_bytes(exported.serialize())
    weights = Path(f"{file}.safetensors")
    save_file({name: storable(value) for name, value in model.params.items()}, weights)
    names, types = [v.name for v in model.inputs if v.kind != "optional"], exported.in_avals[len(model.params) :]
    names += ["rng"] * (len(types) - len(names))  # of a model that draws numbers
    inputs = dict(zip(names, types, strict=True))
    lines = [f"  in   {name}: {x.dtype.name}[{', '.join(map(str, x.shape))}]" for name, x in inputs.items()]
    limits = dict.fromkeys(limit for x in inputs.values() for d in x.shape for limit in _limits(d))
    show(f"for {', '.join(exported.platforms)}:", *lines, *(f"  for  {limit}" for limit in limits))
    show(f"wrote {with_size(file)} and {with_size(weights)}")
    types = {name: value.dtype for name, value in model.params.items()}
    show_stored({name: (dtype, in_params(dtype) or dtype) for name, dtype in types.items()})
    return 0


def _limits(size: Any) -> list[str]:
    """Returns the constraints of the scope of a symbolic size, such as "s <= 512"."""
    _, _, text = str(getattr(size, "scope", "")).partition("with constraints:")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _size(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text


def _to_python(options: argparse.Namespace) -> int:
    """Writes a model as a readable Python package, with its parameters next to it."""
    require("to-python", "safetensors")
    model = loaded(options)
    with busy("writing"):
        model.to_python(options.folder, overwrite=options.overwrite)
    files = sorted(path for path in Path(options.folder).iterdir() if path.is_file() and path.name[0] != ".")
    show(f"wrote {', '.join(map(str, files))}")
    return 0
