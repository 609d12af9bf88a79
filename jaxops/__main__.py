"""The command line: `python -m jaxops run MODEL`, `show MODEL` and `check MODEL`."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxops.errors import ArgumentError, JaxopsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 0 when it succeeded, 1 when not, with a message; `check` gives 1 for missing operators."""
    parser = argparse.ArgumentParser("python -m jaxops", description="Runs ONNX models with JAX.")
    commands = parser.add_subparsers(dest="command", required=True)
    model_help = "an .onnx file, or the name of a model that the onnx package carries, such as light_resnet50"
    run = commands.add_parser("run", help="run a model on random or given inputs; print its top outputs and the time")
    run.add_argument("model", help=model_help)
    run.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input; else random")
    run.add_argument("--size", action="append", default=[], metavar="NAME=N", help="a symbolic size of the inputs")
    run.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    run.add_argument("--repeat", type=int, default=5, metavar="N", help="timed calls after the first (default 5)")
    run.add_argument("--top", type=int, default=5, metavar="N", help="how many outputs to print (default 5)")
    show = commands.add_parser("show", help="print the graph of a model")
    show.add_argument("model", help=model_help)
    check = commands.add_parser("check", help="list the operators of a model and whether jaxops has them")
    check.add_argument("model", help=model_help)
    options = parser.parse_args(arguments)
    try:
        return {"run": _run, "show": _show, "check": _check}[options.command](options)
    except (JaxopsError, OSError, ModuleNotFoundError) as error:
        print(f"jaxops: {error}", file=sys.stderr)
        return 1


def _path(name: str) -> Any:
    """The path of a file, or of the model of that name that the onnx package carries."""
    import jaxops.onnx

    return name if Path(name).exists() or Path(name).suffix else jaxops.onnx.carried(name)


def _load(name: str) -> Any:
    import jaxops.onnx

    return jaxops.onnx.load(_path(name))


def _check(options: argparse.Namespace) -> int:
    import jaxops.onnx

    found = jaxops.onnx.check(_path(options.model))
    print(found)
    return 1 if found.missing else 0


def _show(options: argparse.Namespace) -> int:
    print(_load(options.model))
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.repeat < 1 or options.top < 1:
        raise ArgumentError("--repeat and --top must be at least 1")
    start = time.perf_counter()
    model = _load(options.model)
    loaded = time.perf_counter()
    inputs = _inputs(model.inputs, _pairs(options.input, "--input"), _pairs(options.size, "--size"), options.seed)
    outputs = jax.block_until_ready(model(*inputs))
    first = time.perf_counter()
    times = []
    for _ in range(options.repeat):
        begin = time.perf_counter()
        outputs = jax.block_until_ready(model(*inputs))
        times.append(time.perf_counter() - begin)

    from rich.console import Console  # of the extra `onnx`, whose absence loading a model has told
    from rich.table import Table

    console = Console()
    console.print(f"{options.model}: {len(model.graph.nodes)} nodes, {len(model.params)} parameters", highlight=False)
    for formal, value in zip(model.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True):
        console.print(str(formal), _top(Table, value, options.top), sep="\n", highlight=False)
    seconds = {"load": loaded - start, "first call": first - loaded, "call": min(times)}
    console.print(" · ".join(f"{name} {value * 1e3:.1f} ms" for name, value in seconds.items()), highlight=False)
    return 0


def _pairs(items: Sequence[str], option: str) -> dict[str, str]:
    found = {}
    for item in items:
        name, equals, value = item.rpartition("=")
        if not equals:
            raise ArgumentError(f"{option} {item}: write NAME=VALUE")
        found[name] = value
    return found


def _inputs(formals: Sequence[Any], files: dict[str, str], sizes: dict[str, str], seed: int) -> list[Any]:
    """An array for each input: from its file, or random, of the declared shape (1 for a free size)."""
    unknown = sorted(set(files) - {v.name for v in formals})
    if unknown:
        raise ArgumentError(f"--input {unknown[0]}: the model's inputs are {[v.name for v in formals]}")
    free = {d for v in formals for d in v.shape or () if isinstance(d, str)}
    for name, value in sizes.items():
        if name not in free:
            raise ArgumentError(
                f"--size {name}: the model has no such size; it has {', '.join(sorted(free)) or 'none'}"
            )
        if not value.isdecimal():
            raise ArgumentError(f"--size {name}={value}: a size is a number")
    random = np.random.default_rng(seed)
    found = []
    for formal in formals:
        if formal.name in files:
            found.append(_read(files[formal.name]))
            continue
        if formal.dtype is None or formal.shape is None or formal.dtype == object or formal.static:
            raise ArgumentError(f"input {formal} cannot be made up; give it with --input {formal.name}=FILE.npy")
        shape = [d if isinstance(d, int) else int(sizes.get(str(d), 1)) for d in formal.shape]
        made = random.integers(0, 2, shape) if formal.dtype.kind in "iub" else random.random(shape)
        found.append(np.asarray(made, formal.dtype))
    return found


def _read(path: str) -> np.ndarray:
    with open(path, "rb") as file:
        try:
            return np.lib.format.read_array(file)
        except (ValueError, EOFError) as error:
            raise ArgumentError(f"{path}: not a .npy file of numbers or strings: {error}") from error


def _top(table: Any, value: Any, count: int) -> Any:
    """A table of the largest elements of an output, with their indices."""
    values = np.asarray(value)
    rows = table("index", "value")
    flat = values.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable") if flat.dtype.kind != "O" else np.arange(flat.size)
    for i in order[:count]:
        index = ", ".join(map(str, np.unravel_index(i, values.shape))) if values.ndim else "()"
        rows.add_row(index, str(flat[i]))
    return rows


if __name__ == "__main__":
    sys.exit(main())
