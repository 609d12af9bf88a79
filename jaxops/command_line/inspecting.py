"""The commands that look at a model: check, show, summary, passes, plot."""

import argparse
from typing import Any

from jaxops.command_line.inputs import inputs, takes_inputs
from jaxops.command_line.json_output import show_or_dump, takes_json
from jaxops.command_line.shared import (
    busy,
    command,
    front_end,
    loaded,
    path_to_write,
    readable,
    show,
    takes_values,
)


def add(commands: Any) -> None:
    """Adds the commands."""
    takes_json(command(commands, _check, "model.onnx", weights=False))
    parser = command(commands, _show, "model.onnx --grep 'Conv|Pool' --head 20")
    takes_values(parser)
    parser.add_argument("--grep", default="", metavar="PATTERN", help="only nodes that match this regular expression")
    parser.add_argument("--head", type=int, metavar="N", help="only the first N nodes")
    parser = command(commands, _summary, "model.onnx --depth 3 --size batch=8 --time")
    takes_inputs(parser)
    takes_json(parser)
    parser.add_argument("--depth", type=int, default=2, metavar="N", help="levels of modules to show (default 2)")
    parser.add_argument("--time", action="store_true", help="also measure each module, compiled alone")
    takes_inputs(command(commands, _passes, "model.onnx --size batch=8"))
    parser = command(commands, _plot, "model.onnx model.svg --depth 3")
    takes_values(parser)
    parser.add_argument("file", metavar="FILE.svg", help="the file to write")
    parser.add_argument("--depth", type=int, default=2, metavar="N", help="levels of modules to show (default 2)")


def _check(options: argparse.Namespace) -> int:
    """Lists the operators of a model and whether jaxops has them; needs no weights."""
    report = front_end(options.model).check(readable(options.model))
    return show_or_dump(options, report, lambda: str(report), succeeded=not report.missing)


def _show(options: argparse.Namespace) -> int:
    """Prints the graph of a model."""
    show(loaded(options).show(grep=options.grep, head=options.head))
    return 0


def _summary(options: argparse.Namespace) -> int:
    """Prints the output, parameters and operations of each module, for random inputs or those from files."""
    model = loaded(options)
    values = inputs(model, options)
    with busy("measuring" if options.time else "tracing"):
        summary = model.summary(*values, depth=options.depth, time=options.time)
    return show_or_dump(options, summary.rows, lambda: summary)


def _passes(options: argparse.Namespace) -> int:
    """Prints what each pass of the compiler does to the program of a call."""
    from jaxops.tools.inspect.passes import pass_report

    model = loaded(options)
    given = inputs(model, options)
    with busy("compiling"):
        report = pass_report(lambda: model(*given), options.model)
    show(report)
    return 0


def _plot(options: argparse.Namespace) -> int:
    """Draws the modules of a model into an SVG file."""
    file = path_to_write(options.file)
    loaded(options).plot(depth=options.depth).save(file)
    show(f"wrote {options.file}")
    return 0
