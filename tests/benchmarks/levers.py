"""What each lever of jaxops brings: the time of a call with it switched off alone, as a ratio to the time with all.

    python tests/benchmarks/levers.py FOLDER/*.onnx [--levers NAME …] [--rounds 10] [--starts 3] [--json levers.json]

Above 1 a lever pays. `nothing` switches nothing off: how far it is from 1 is what the machine's noise does. All
variants of a model run in one process, in turns; a ratio is the median of those of the rounds, each of the best of
three calls.

What is named `start` is about loading and the first call, each in a process of its own, in turns; a ratio is that of
the medians, and `start: nothing` is the noise. `cache` is the start of a process that finds no compiled program, as a
ratio to that of one that does. A file of figures keeps those that are not measured again.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from engines import by_jaxops
from examples import machine
from models import error, example, measured
from report import geometric_mean, mean_of, order
from rich.console import Console
from rich.progress import track
from rich.table import Table

from jaxops.compiler import pipeline
from jaxops.compiler.xla_options import program_options
from jaxops.kernels import named_call
from jaxops.kernels.convolution.im2col import as_columns
from jaxops.kernels.convolution.select_cpu import cpu_form
from jaxops.kernels.matmul.dot import matrix_product
from jaxops.kernels.matmul.uint8_int8 import mixed_product
from jaxops.kernels.target import this_machine

ALL, CALLS, TOLERANCE = "all, ms", 3, 0.05
# Those that spare a start what it need not compile, trace or look through; the first shows the noise.
STARTS = ("nothing", "concat in place", "split layers", "lift scalar constants", "garbage later")


@functools.cache
def _jitted(model):
    return jax.jit(model.apply, compiler_options=program_options(this_machine()))


def whole(model, *inputs):
    """The pure function in one program."""
    return _jitted(model)(model.params, *inputs)


def unprepared(target, *layer):
    """The fastest form of a convolution whose filters stay in their layout."""
    return cpu_form(dataclasses.replace(target, specialized=False), *layer)


def columns_first(x, w, windows, multiply):
    """The columns of a convolution of integers, channels first."""
    return as_columns(x, w, windows, 1, jnp.int32)


def signed(target):
    """The type of 8-bit data in a product: always int8."""
    return jnp.int8


def any_rows(a, b):
    """A product of bytes, of one row, too."""
    return mixed_product(a, b) if a.dtype == jnp.uint8 else matrix_product(a, b, jnp.int32)


# Lever → what replaces the functions of jaxops that it is made of, by their full names. A new one is a line here.
LEVERS = {
    "nothing": {},
    # No weights are prepared, so no operator asks for another layout of them, and no transpose is held back.
    "prepared programs": {"jaxops.model.Model.__call__": whole},
    # The same forms as with it, but what they make of the weights is made at each call.
    "prepared weights": {"jaxops.compiler.partition.weight_only._Costs.is_worth_it": lambda costs, value: False},
    "channels last": {
        "jaxops.kernels.convolution.convolve.cpu_form": unprepared,
        "jaxops.kernels.convolution.integer.columns_last": columns_first,
        "jaxops.kernels.convolution.integer.data_type": signed,
    },
    "Winograd's products": {"jaxops.kernels.convolution.winograd.pays": lambda target, x, w, windows, narrow: False},
    "small convolutions": {"jaxops.kernels.convolution.pointwise._is_small_product": lambda target, x, w, rows: False},
    "weights as columns": {"jaxops.kernels.matmul.dot._reads_columns": lambda b: False},
    "weights first": {"jaxops.kernels.matmul.dot._goes_first": lambda target, b, over, rows: False},
    "weights as rows": {"jaxops.kernels.matmul.dot._reads_rows": lambda b, rows: False},
    "bytes without sign": dict.fromkeys(
        ("jaxops.kernels.matmul.int8.data_type", "jaxops.kernels.convolution.integer.data_type"), signed
    ),
    "integers by two rows": dict.fromkeys(
        ("jaxops.kernels.matmul.int8.product", "jaxops.kernels.convolution.integer.product"),
        any_rows,
    ),
    "computed once": {"jaxops.ops.microsoft.quantized.rescaled_elementwise.computed_once": lambda x: x},
    "garbage later": dict.fromkeys(
        ("jaxops.runtime.specialized_calls.garbage_later", "jaxops.frontend.loading.garbage_later"),
        contextlib.nullcontext,
    ),
    "maxima by slices": dict.fromkeys(
        ("jaxops.compiler.passes.select_reductions.by_slices", "jaxops.compiler.passes.select_reductions.between_rows"),
        lambda *_: None,
    ),
    "normal distribution": {"jaxops.kernels.normal_cdf.weighed": jax.nn.gelu},
    "compiler options": {"jaxops.compiler.pipeline.program_options": lambda target, operations: None},
}


# The passes, each of which is a lever of its own.
PASSES = tuple(entry.name for entry in pipeline.LIST if entry.name not in pipeline.REQUIRED)


def names():
    """All levers."""
    return *LEVERS, *PASSES


@contextlib.contextmanager
def fresh():
    """Forgets how kernels were traced, once for a target, as what they are made of is replaced."""
    traced = functools.lru_cache(named_call._jaxpr.__wrapped__)
    with mock.patch.object(named_call, "_jaxpr", traced):
        yield


@contextlib.contextmanager
def without(lever):
    """Switches a lever off; a name that jaxops no longer has is an error."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(fresh())
        if lever in PASSES:
            stack.enter_context(pipeline.without(lever))
        for name, replacement in LEVERS.get(lever, {}).items():
            stack.enter_context(mock.patch(name, replacement))
        yield


def switched_off(levers):
    """Lever → how jaxops is without it."""
    return {lever: functools.partial(without, lever) for lever in levers}


def compared(path, inputs, rounds, variants):
    """Milliseconds of a call, and the ratio to it with each variant of jaxops. variants: name → context."""
    variants, calls, expected = {ALL: fresh, **variants}, {}, None
    for name, variant in variants.items():
        with variant():
            calls[name] = by_jaxops(None)(path)
            found = calls[name](inputs)
        expected = found if expected is None else expected
        if error(found, expected) > TOLERANCE:
            raise SystemExit(f"{path}: {name}: the outputs differ by {error(found, expected):.1e}")
    times = {name: [] for name in calls}
    order, chance = list(calls), random.Random(0)
    for _ in range(rounds):
        chance.shuffle(order)  # what comes before one may disturb it
        for name in order:
            call = calls[name]
            with variants[name]():  # should a program be traced again
                call(inputs)  # what the others left in the processor's caches is not counted
                moments = [time.perf_counter()]
                for _ in range(CALLS):
                    call(inputs)
                    moments.append(time.perf_counter())
            times[name].append(np.diff(moments).min())
    every = np.array(times.pop(ALL))
    ratios = {name: float(np.median(np.array(found) / every)) for name, found in times.items()}
    return {ALL: float(np.median(every)) * 1e3, **ratios}


def start(path, inputs, lever):
    """Seconds of loading and the first call without a lever."""
    with contextlib.nullcontext() if lever == ALL else without(lever):
        begin = time.perf_counter()
        by_jaxops(None)(path)(inputs)
        return time.perf_counter() - begin


def alone(*given, script=__file__):
    """What a script prints in a process of its own."""
    command = [sys.executable, script, *map(str, given)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def starts(run, count, levers):
    """The ratios of starts without each of some levers. run: what gives the seconds of one, without a lever."""
    seconds = {lever: [] for lever in (ALL, *levers)}
    for _ in range(count):
        for lever, found in seconds.items():
            found.append(run(lever))
    return {f"start: {lever}": float(np.median(seconds[lever]) / np.median(seconds[ALL])) for lever in levers}


def measure(path, rounds, count, levers):
    """The same in processes of their own, and what starts are without a lever, each the median of `count`."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, allow_pickle=False, **example(path))
        found = alone("--measure", path, inputs, rounds, *levers)
        if not count:
            return found
        run = lambda lever: alone("--start", path, inputs, lever)  # noqa: E731
        found |= starts(run, count, [lever for lever in STARTS if lever in levers])
    cached = {engine: found["start"] for engine, found in measured(path, ["jaxops", "jaxops-cached"], 1).items()}
    return {**found, "cache": cached["jaxops"] / cached["jaxops-cached"]}


def table(ratios):
    """A row for each model, the geometric means, and the rows that they leave out, as in `report`."""
    counted, others = order(ratios)
    every = ALL, *names(), *(f"start: {lever}" for lever in STARTS), "cache"
    levers = [lever for lever in every if any(lever in row for row in ratios.values())]
    heads = (lever.replace(" ", "\n") for lever in levers)
    shown = Table("model", *heads, title="time without a lever / with all", title_justify="left")

    def cell(lever, value):
        return f"{value:.3g}" if lever == ALL else f"{value:.2f}"

    def add(models):
        for model in models:
            row = ratios[model]
            shown.add_row(model, *(cell(lever, row[lever]) if lever in row else "" for lever in levers))

    add(counted)
    if counted:
        shown.add_section()
        found = {v: [ratios[m][v] for m in counted if v in ratios[m]] for v in levers}
        means = ("" if v == ALL or not found[v] else cell(v, geometric_mean(found[v])) for v in levers)
        shown.add_row(mean_of(counted), *means)
        shown.add_section()
    add(others)
    return shown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--levers", nargs="+", choices=names(), default=names())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--starts", type=int, default=3, help="of each kind; 0: none")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(machine())
    ratios = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for path in track(given.models, "measuring"):
        found = measure(path, given.rounds, given.starts, given.levers)
        ratios[path.stem] = ratios.get(path.stem, {}) | found
        if given.json:
            given.json.write_text(json.dumps(ratios, indent=1))
    Console(width=160).print(table(ratios))


if __name__ == "__main__":
    if sys.argv[1:2] in (["--measure"], ["--start"]):
        _, what, model, file, *rest = sys.argv
        with np.load(file) as arrays:
            given = dict(arrays)
        if what == "--measure":
            print(json.dumps(compared(model, given, int(rest[0]), switched_off(rest[1:]))))
        else:
            print(json.dumps(start(model, given, *rest)))
    else:
        main()
