"""The command line: `python -m jaxops COMMAND …`, or `jaxops COMMAND …`.

Each kind of command has a module of its own; `shared` holds what they have in common.
"""

import argparse
import io
import sys
from collections.abc import Sequence
from importlib.metadata import version

from jaxops import __version__
from jaxops.command_line import inspecting, listing, running, writing
from jaxops.command_line.shared import require
from jaxops.errors import JaxopsError
from jaxops.shown_text import clean

_EPILOG = """
examples:
  python -m jaxops check model.onnx                       lists its operators, and says which are missing
  python -m jaxops show model.onnx --grep Conv --head 20  lists nodes
  python -m jaxops run light_resnet50                     runs a model of the onnx package on random inputs
  python -m jaxops run classifier.onnx photo.png          runs a model on an image
  python -m jaxops run model.onnx --output out.npz        writes the outputs to a file
  python -m jaxops compare model.onnx --size batch=2      compares every tensor with onnxruntime's
  python -m jaxops compare model.xml                      compares every tensor with OpenVINO's
  python -m jaxops check - --json < model.onnx            prints JSON, for a model from the standard input
  python -m jaxops operators --domain com.microsoft       lists the operators of jaxops

`python -m jaxops COMMAND --help` describes a command. Exit codes: 0 for success; 1 for an error, for a missing operator
(`check`) and for a difference (`compare`); 2 for unknown arguments; 130 after Ctrl-C.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code."""
    parser = argparse.ArgumentParser(
        "python -m jaxops",
        description="ONNX and OpenVINO models in JAX: look at them, run, compare and convert them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jaxops {__version__}, JAX {version('jax')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for module in (inspecting, running, writing, listing):
        module.add(commands)
    options, others = parser.parse_known_args(arguments)
    # Some versions of Python take FILE arguments only directly after MODEL; those after an option come as unknown.
    if others and not (hasattr(options, "files") and all(text[:1] != "-" for text in others)):
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if others:
        options.files += others
    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe's encoding may lack characters; stderr escapes them
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        require("the command line", "rich")
        return options.run(options)
    except (JaxopsError, OSError, ModuleNotFoundError, MemoryError) as error:
        # JAX adds a note about its traceback, which is not shown here.
        notes = [note for note in getattr(error, "__notes__", ()) if "JAX_TRACEBACK_FILTERING" not in note]
        print(clean("\n".join([f"jaxops: {error}", *notes]), keep="\n"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("jaxops: interrupted", file=sys.stderr)
        return 130  # 128 + the number of SIGINT, as shells expect
