"""Tuned constants measured again: `python tests/benchmarks/thresholds.py [FOLDER/*.onnx] [--only NAME …] [--rounds 7]`.

A constant of jaxops that was chosen by measuring has the mark `Tuned`, with the processor and the date. Each is halved
and doubled. A model, or a product of few rows, is called with it if its program then differs. Ratios are to the time
with the constant as it is, as in `levers.py`. A constant that should move is named at the end: below 0.95 another value
is faster.
"""

import argparse
import contextlib
import functools
import importlib
import itertools
import json
import pkgutil
import sys
import tempfile
import typing
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import onnx
from examples import example, machine
from levers import ALL, alone, compared, fresh
from onnx import TensorProto, helper
from rich.console import Console
from rich.progress import track
from rich.table import Table

import jaxops
import jaxops.onnx
from jaxops.kernels.tuned import Tuned

FACTORS, MOVES = (0.5, 2), 0.95
NARROW = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def tuned():
    """The full name of each tuned constant → its value and its mark."""
    marks = {}
    for module in pkgutil.walk_packages(jaxops.__path__, "jaxops."):
        if ".kernels." in module.name or ".compiler." in module.name:
            room = importlib.import_module(module.name)
            for name, kind in getattr(room, "__annotations__", {}).items():
                for mark in typing.get_args(kind):
                    if isinstance(mark, Tuned):
                        marks[f"{module.name}.{name}"] = getattr(room, name), mark
    return marks


def variants(names):
    """Each constant halved and doubled: its name and value → the context in which it has this value."""
    values, settings = tuned(), {}
    for name in names:
        value = values[name][0]
        for factor in FACTORS:
            changed = type(value)(value * factor)
            settings[f"{name} = {changed:g}"] = functools.partial(replaced, name, changed)
    return settings


@contextlib.contextmanager
def replaced(name, value):
    """Gives a constant another value."""
    with fresh(), mock.patch(name, value):
        yield


def text(path, inputs):
    """The program that a call of a model would run."""
    model = jaxops.onnx.load(path)
    prepare, run = model.specialize(inputs)
    return jax.jit(run).lower(jax.eval_shape(prepare, model.params), inputs).as_text()


def differing(path, inputs, settings):
    """The variants with which the program of a model is another one."""
    with fresh():
        plain = text(path, inputs)
    changed = {}
    for name, variant in settings.items():
        with variant():
            if text(path, inputs) != plain:
                changed[name] = variant
    return changed


def products(folder):
    """Writes products of one row, as a token has, and of more, with weights of each type; yields their paths."""
    rng, (k, n) = np.random.default_rng(0), (768, 3072)
    weights = rng.normal(size=(k, n)).astype(np.float32)
    blocks = {"w": rng.integers(0, 256, (n, k // 32, 16), np.uint8), "s": np.full((n, k // 32), 0.01, np.float32)}
    kinds = {
        **{kind: (f"a = Cast<to = {to}>(x) y = MatMul(a, w)", {"w": weights}, to) for kind, to in NARROW.items()},
        "float32": ("y = MatMul(x, w)", {"w": weights}, None),
        "int8": ("y = DynamicQuantizeMatMul(x, w, s)", {"w": weights.astype(np.int8), "s": np.float32([0.01])}, None),
        "int4": (f"y = MatMulNBits<K = {k}, N = {n}, bits = 4, block_size = 32>(x, w, s)", blocks, None),
    }
    for rows, (kind, (body, values, to)) in itertools.product((1, 4, 16, 64), kinds.items()):
        model = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>'
            f"products (float[{rows}, {k}] x) => ({kind if to else 'float'}[{rows}, {n}] y) {{ {body} }}"
        )
        for node in model.graph.node:
            node.domain = "" if node.op_type in ("Cast", "MatMul") else "com.microsoft"
        tensors = (
            helper.make_tensor(name, to or helper.np_dtype_to_tensor_dtype(x.dtype), x.shape, x.flatten())
            for name, x in values.items()
        )
        model.graph.initializer.extend(tensors)
        path = Path(folder) / f"{kind}_{rows}.onnx"
        onnx.save(model, path)
        yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--only", nargs="+", help="parts of names")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    marks = {name: found for name, found in tuned().items() if not given.only or any(o in name for o in given.only)}
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in track([*given.models, *products(folder)], "measuring"):
            inputs = Path(folder) / "inputs.npz"
            np.savez(inputs, allow_pickle=False, **example(path))
            for name, ratio in alone("--measure", path, inputs, given.rounds, *marks, script=__file__).items():
                if name != ALL:
                    rows.setdefault(name, {})[path.stem] = ratio
    show(rows, marks)


def show(rows, marks):
    """Prints the ratios of each variant, the constants that should move, and those that no model reads."""
    table = Table("changed", "measured before", "time / before, by model", title=machine(), title_justify="left")
    for name, ratios in rows.items():
        cells = (f"{model} {ratio:.2f}" for model, ratio in sorted(ratios.items(), key=lambda item: item[1]))
        _, mark = marks[name.partition(" = ")[0]]
        table.add_row(name.removeprefix("jaxops."), f"{mark.date}, {mark.processor}", ", ".join(cells))
    console = Console(width=160)
    console.print(table)
    moving = [name for name, ratios in rows.items() if min(ratios.values()) < MOVES]
    unread = [name for name in marks if not any(row.startswith(f"{name} = ") for row in rows)]
    console.print("would move:", ", ".join(moving) or "none", soft_wrap=True)
    console.print("changed no program:", ", ".join(unread) or "none", soft_wrap=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _, _, model, file, rounds, *names = sys.argv
        with np.load(file) as arrays:
            inputs = dict(arrays)
        print(json.dumps(compared(model, inputs, int(rounds), differing(model, inputs, variants(names)))))
    else:
        main()
