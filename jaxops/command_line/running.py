"""The commands that run a model: run, compare."""

import argparse
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxops.command_line.inputs import inputs, takes_inputs
from jaxops.command_line.json_output import show_or_dump, takes_json
from jaxops.command_line.outputs import check_outputs, output_path, write_outputs
from jaxops.command_line.shared import busy, command, loaded, show
from jaxops.errors import ArgumentError, amount


def add(commands: Any) -> None:
    """Adds the commands."""
    parser = command(commands, _run, "classifier.onnx photo.png --top 3 --output scores.npz")
    takes_inputs(parser)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="timed calls after the first (default 5)")
    parser.add_argument(
        "--cache",
        metavar="FOLDER",
        help="a folder for compiled programs, which a later run finds there (default: none is kept)",
    )
    parser.add_argument(
        "--top", type=int, default=5, metavar="N", help="how many elements of each output to print (default 5)"
    )
    parser.add_argument(
        "--output",
        metavar="FILE.npz",
        help="a file for the outputs, under their names; a single output may go to FILE.npy",
    )
    parser = command(commands, _compare, "model.onnx --size batch=2 --rtol 1e-4")
    takes_inputs(parser)
    takes_json(parser)
    parser.add_argument("--rtol", type=float, default=1e-3, help="relative tolerance (default 1e-3)")
    parser.add_argument("--atol", type=float, default=1e-5, help="absolute tolerance (default 1e-5)")


def _run(options: argparse.Namespace) -> int:
    """Runs a model on random inputs or those from files; prints its largest outputs and the time."""
    if options.repeat < 1 or options.top < 1:
        raise ArgumentError("--repeat and --top must be at least 1")
    path = None if options.output is None else output_path(options.output)
    start = time.perf_counter()
    model = loaded(options, options.cache or None)
    ready = time.perf_counter()
    if path is not None:
        check_outputs(path, model.outputs)
    values = inputs(model, options)
    with busy("compiling"):
        outputs = jax.block_until_ready(model(*values))
    first = time.perf_counter()
    times = []
    for _ in range(options.repeat):
        begin = time.perf_counter()
        outputs = jax.block_until_ready(model(*values))
        times.append(time.perf_counter() - begin)
    nodes, params = amount(len(model.graph.nodes), "node"), amount(len(model.params), "parameter")
    show(f"{options.model}: {nodes}, {params}")
    results = list(zip(model.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
    for formal, value in results:
        show(*_printed(formal, value, options.top))
    seconds = {"load": ready - start, "first call": first - ready, "call": min(times)}
    show(" · ".join(f"{name} {value * 1e3:.1f} ms" for name, value in seconds.items()))
    if path is not None:
        write_outputs(path, {formal.name: value for formal, value in results})
    return 0


def _compare(options: argparse.Namespace) -> int:
    """Compares every tensor with that of onnxruntime, or OpenVINO for an .xml; names the first node that differs."""
    if not (options.rtol >= 0 and options.atol >= 0):  # NaN is refused, too
        raise ArgumentError("--rtol and --atol must be at least 0")
    model = loaded(options)
    values = inputs(model, options)
    with busy("running both"):
        report = model.compare(*values, rtol=options.rtol, atol=options.atol)
    return show_or_dump(options, report.rows, lambda: report, succeeded=report.agrees)


def _printed(formal: Any, value: Any, count: int) -> Iterator[Any]:
    """Yields an output with its actual shape, and its largest elements; for a sequence, those of its first arrays."""
    if hasattr(value, "dtype"):
        yield str(dataclasses.replace(formal, kind="tensor", dtype=value.dtype, shape=value.shape))
    else:
        yield str(formal)
    if isinstance(value, list) and all(hasattr(item, "dtype") for item in value):
        for i, item in enumerate(value[:count]):
            yield from _printed(dataclasses.replace(formal, name=f"{formal.name}[{i}]"), item, count)
        if len(value) > count:
            yield f"… {amount(len(value) - count, 'more array')}"
    else:
        yield _top(value, count)


def _top(value: Any, count: int) -> Any:
    """A table of the largest elements of an output, with their indices."""
    from rich.table import Table

    values = np.asarray(value)
    rows = Table("index", "value")
    flat = values.reshape(-1)
    opaque = flat.dtype == object  # strings or dictionaries; `repr` keeps control characters from the terminal
    order = np.arange(flat.size) if opaque else np.argsort(-flat.astype(np.float64), kind="stable")
    for i in order[:count]:
        index = ", ".join(map(str, np.unravel_index(i, values.shape))) if values.ndim else "()"
        rows.add_row(index, repr(flat[i]) if opaque else str(flat[i]))
    return rows
