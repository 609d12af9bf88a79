"""A training step beside PyTorch: `python training.py FOLDER [NAME …] [--rounds 3] [--engines …]`; needs torch.

FOLDER/NAME.onnx are the files that `export.py --batch 4` wrote. A step is the gradient of the mean square of the first
output by all float parameters, and a step down along it, in place. Each engine has a process of its own, and they take
turns. Prints the time of the load and the first step, the median time of a step, and the peak of the memory; then
ratios to PyTorch's. `jaxops` is `jax.jit` around `model.apply`, `jaxops-pair` around the pair of
`model.specialize(transformable=True)`, and `jaxops-options` is `jaxops` with `jaxops.compiler_options()`.
"""

import argparse
import functools
import json
import subprocess
import sys
import time
from pathlib import Path

from engines import median_call, peak
from examples import example, machine, run_environment
from report import geometric_mean
from rich.console import Console
from rich.table import Table

RATE = 1e-3
NAMES = ("resnet50", "mobilenet_v3_large", "convnext_tiny", "vit_b_16", "bert_base", "gpt2", "llama_110m")


def by_torch(path, compiled=False):
    """On the GPU where there is one. compiled: by torch.compile."""
    import torch
    from modules import module

    # As the files are: no dropout, and statistics of normalizations that are data.
    model = module(path).to("cuda" if torch.cuda.is_available() else "cpu")
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch_step(torch.compile(model) if compiled else model, parameters, path)


def by_onnx2torch(path):
    import onnx2torch
    from peers import weights_in_buffers

    model = onnx2torch.convert(path).eval()
    weights = [*model.parameters(), *weights_in_buffers(model).values()]
    return torch_step(model, [w.requires_grad_() for w in weights], path)


def torch_step(model, parameters, path):
    import torch

    (x,) = (torch.from_numpy(x).to(parameters[0].device) for x in example(path).values())

    def step():
        loss = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                if p.grad is not None:
                    p -= RATE * p.grad
                    p.grad = None
        return loss.item()

    return step


def by_jaxops(path, transformable=False, with_options=False):
    import jaxops.onnx

    model = jaxops.onnx.load(path)
    apply = model.apply
    if transformable:
        prepare, run = model.specialize(example(path), transformable=True)
        apply = lambda params, inputs: run(prepare(params), inputs)  # noqa: E731
    return jax_step(model.params, apply, path, jaxops.compiler_options() if with_options else None)


def by_peer(name, path):
    """By another function of JAX."""
    from peers import PEERS

    return jax_step(*PEERS[name].function(str(path), example(path)), path)


def jax_step(params, apply, path, compiler_options=None):
    import jax
    import jax.numpy as jnp

    inputs = example(path)

    def loss(trained, fixed, inputs):
        return jnp.square(jax.tree.leaves(apply({**fixed, **trained}, inputs))[0]).mean()

    def update(trained, fixed, inputs):
        value, gradients = jax.value_and_grad(loss)(trained, fixed, inputs)
        return jax.tree.map(lambda p, g: p - RATE * g, trained, gradients), value

    params = dict(jax.device_put(params))
    names = [name for name, value in params.items() if jnp.issubdtype(value.dtype, jnp.floating)]
    trained = {name: params.pop(name) for name in names}
    compiled = jax.jit(update, donate_argnums=0, compiler_options=compiler_options)

    def step():
        nonlocal trained
        trained, value = compiled(trained, params, inputs)
        return float(value)

    return step


def by_tinygrad(path):
    from peers import PEERS
    from tinygrad import Tensor, TinyJit

    runner, weights = PEERS["tinygrad"].opened(path)
    for name, w in weights.items():
        runner.graph_values[name] = weights[name] = w.contiguous().realize()
    inputs = {name: Tensor(x).realize() for name, x in example(path).items()}

    @TinyJit
    def update(**inputs):
        loss = next(iter(runner(inputs).values())).square().mean()
        gradients = loss.gradient(*weights.values())
        for w, g in zip(weights.values(), gradients, strict=True):
            w.assign(w - RATE * g)
        return loss.realize(*weights.values())

    return lambda: update(**inputs).item()


ENGINES = {
    "torch": by_torch,
    "torch.compile": functools.partial(by_torch, compiled=True),
    "jaxops": by_jaxops,
    "jaxops-pair": functools.partial(by_jaxops, transformable=True),
    "jaxops-options": functools.partial(by_jaxops, with_options=True),
    "jaxonnxruntime": functools.partial(by_peer, "jaxonnxruntime"),
    "torchax": functools.partial(by_peer, "torchax"),
    "onnx2torch": by_onnx2torch,
    "tinygrad": by_tinygrad,
}
DEFAULTS = "torch", "jaxops", "jaxops-pair"


def measure(engine, path):
    """The figures of one engine, in a process of its own."""
    begin = time.perf_counter()
    step = ENGINES[engine](path)
    loss = step()
    start = time.perf_counter() - begin
    return {"start": start, "step": median_call(step), "peak": peak(), "loss": loss}


def run(engine, path, python=sys.executable):
    command = [python, __file__, "--worker", engine, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=run_environment(), check=False)
    if done.returncode:
        raise SystemExit(f"{path.stem}: {engine} fails: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def show(figures, engines):
    """Prints a row for each model, and the geometric means of the ratios to the first engine."""
    table = Table("model", *(f"{engine}: start s, step ms, peak MiB" for engine in engines), *engines[1:])
    ratios = {engine: [] for engine in engines[1:]}
    for name, row in figures.items():
        base = row[engines[0]]["step"]
        for engine, values in ratios.items():
            values.append(row[engine]["step"] / base)
        cells = [f"{f['start']:.1f}, {f['step']:.1f}, {f['peak']:.0f}" for f in row.values()]
        table.add_row(name, *cells, *(f"{values[-1]:.2f}" for values in ratios.values()))
    means = (f"{geometric_mean(values):.2f}" for values in ratios.values())
    table.add_row("geometric mean", *[""] * len(engines), *means)
    Console().print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=DEFAULTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(machine())
    figures = {}
    for name in given.names:
        best = figures[name] = {}
        for _ in range(given.rounds):
            for engine in given.engines:
                now = run(engine, given.folder / f"{name}.onnx")
                before = best.get(engine, now)
                best[engine] = {figure: min(now[figure], before[figure]) for figure in now}
        if given.json:
            given.json.write_text(json.dumps(figures, indent=1))
    show(figures, given.engines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(measure(sys.argv[2], Path(sys.argv[3]))))
    else:
        main()
