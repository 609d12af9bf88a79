"""jaxops beside the alternatives. written_figures.py writes README's first table from what this measures.

    python tests/benchmarks/alternatives.py ENGINE [--python PYTHON] [--tasks cases exports …] [--models FOLDER]
        [--batch4 FOLDER] [--names NAME …]
    python tests/benchmarks/alternatives.py                                             # prints the table as Markdown

ENGINE is a name in `ENGINES`, and PYTHON the one that has it, with NumPy, onnx and rich beside it, and torch,
torchvision and transformers for torchax; tinygrad needs clang on the path, and DEV=CPU. What is found goes into
alternatives.json. The tasks:

- `cases`: the standard's own suite, those cases that any program can pass (tests/conformance/passing.txt);
- `exports`: whole models within 1e-3 of onnxruntime, or of PyTorch: those in tests/models, by both exporters of
  PyTorch, the digits of the notebooks, the light ones of the onnx package, and those that `export.py` wrote to the
  folder `--models`;
- `gradients`, `vmap`, `sizes`, `sharding`: `trials.py` tries each on the models in tests/models;
- `call`: a call of each model in `--models`, as a part of onnxruntime's; best on a machine that does nothing else;
- `training`: a step of the models in `--batch4` (`export.py --batch 4`), as a part of PyTorch's; as well.

torchax takes modules of PyTorch, and no files, so it gets those that the files were exported from.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
from examples import example, run_environment
from models import LIGHT, measured
from report import BASE, geometric_mean
from training import NAMES, run as training_run

HERE = Path(__file__).parent
FIGURES = HERE / "alternatives.json"
TESTS, NOTEBOOKS = HERE.parent, HERE.parents[1] / "notebooks"
ENGINES = ("jaxops", "jaxonnxruntime", "torchax", "onnx2torch", "onnxruntime", "tinygrad")
PROPERTIES = {
    "gradients": "gradients by weights",
    "vmap": "`vmap`",
    "sizes": "one program, any batch",
    "sharding": "weights on two devices",
}
TASKS = ("cases", "exports", *PROPERTIES, "call", "training")


def outcomes(command, lines, environment=None):
    """What a process reports first, and why each line fails; one that dies starts again behind the line it died of."""
    found, version = [], None
    while len(found) < len(lines):
        left = "\n".join(lines[len(found) :])
        done = subprocess.run(command, input=left, capture_output=True, text=True, env=environment, check=False)
        reported = [json.loads(line) for line in done.stdout.splitlines()]
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if not reported:
            raise SystemExit(f"{' '.join(command)} does not start: {last}")
        version, *now = reported
        found += now
        if len(found) < len(lines):
            found.append(f"the process ends with {done.returncode}: {last}"[:200])
    return version, found


def tried(engine, task, python, lines):
    environment = run_environment()
    if task == "sharding":
        environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    return outcomes([python, str(HERE / "trials.py"), engine, task], lines, environment)


def cases(engine, python, every):
    """How many cases of the suite are right, of each `every`th."""
    names = [line.split()[0] for line in (TESTS / "conformance/passing.txt").read_text().splitlines()][::every]
    with tempfile.TemporaryDirectory() as home:
        os.environ["ONNX_HOME"] = home  # where the runner keeps models
        version, found = tried(engine, "cases", python, names)
    for reason, count in Counter(text.partition("(")[0] for text in found if text).most_common(9):
        print(count, reason)
    return version, {"right": found.count(""), "of": len(names)}


def small(engine):
    """The models in tests/models, and the data of each. For modules, one exporter is enough."""
    which = "*.dynamo.onnx" if engine == "torchax" else "*.onnx"
    return [
        (path, path.with_name(path.name.partition(".")[0] + ".npz")) for path in sorted((TESTS / "models").glob(which))
    ]


def large(engine, models, folder):
    """Whole models, and what onnxruntime gives for each, in files of the same form."""
    paths = sorted(models.glob("*.onnx")) if models else []
    if engine != "torchax":
        paths += [NOTEBOOKS / "digits.onnx", *sorted(LIGHT.glob("*.onnx"))]
    for path in paths:
        inputs = example(path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        outputs = session.run(None, inputs)
        file = Path(folder, f"{path.stem}.npz")
        np.savez(
            file, **{f"in:{name}": x for name, x in inputs.items()}, **{f"out:{k}": y for k, y in enumerate(outputs)}
        )
        yield path, file


def models(engine, task, python, folder):
    """Why each model fails, empty where it does not, by its name."""
    with tempfile.TemporaryDirectory() as made:
        pairs = [*small(engine), *(large(engine, folder, made) if task == "exports" else ())]
        version, found = tried(engine, task, python, [json.dumps([str(path), str(file)]) for path, file in pairs])
    return version, {path.stem: text for (path, _), text in zip(pairs, found, strict=True)}


def calls(engine, python, paths):
    """Model → milliseconds of a call, onnxruntime's and the engine's."""
    found = {}
    for path in paths:
        row = measured(path, [BASE, engine], 1, {engine: python})
        found[path.stem] = {name: figures["call"] for name, figures in row.items()}
    return found


def steps(engine, python, torch, paths):
    """Model → milliseconds of a training step, PyTorch's and the engine's; None where it cannot."""
    return {
        path.stem: {name: step(name, p, path) for name, p in (("torch", torch), (engine, python))} for path in paths
    }


def step(engine, python, path):
    try:
        return training_run(engine, path, python)["step"]
    except SystemExit as problem:
        print(problem)
        return None


def counted(found):
    """How many are right, of how many."""
    right = found["right"] if "right" in found else list(found.values()).count("")
    return f"{right:,} of {found['of'] if 'of' in found else len(found):,}"


def ratio(found, base):
    """The geometric mean of the engine's times by those of the base, over the models that it runs, and their number."""
    ratios = [times[name] / times[base] for times in found.values() for name in times if name != base and times[name]]
    return f"{geometric_mean(ratios):.2f} ({len(ratios)} of {len(found)})" if ratios else "–"


def table(figures):
    """All counts and means as Markdown; written_figures.py writes README's."""
    engines = [engine for engine in ENGINES if engine in figures]

    def row(head, cell):
        return f"| {head} | " + " | ".join(cell(figures[engine], engine) for engine in engines) + " |"

    def count(task):
        return lambda found, engine: counted(found[task]) if task in found else "–"

    return "\n".join(
        [
            row("", lambda found, engine: f"{engine} {found['version']}"),
            "| --- |" + " ---: |" * len(engines),
            row("cases of the standard's suite", count("cases")),
            row("exported models", count("exports")),
            *(row(head, count(task)) for task, head in PROPERTIES.items()),
            row(
                "time of a call / onnxruntime's",
                lambda found, engine: ratio(found["call"], BASE) if "call" in found else "–",
            ),
            row(
                "time of a training step / PyTorch's",
                lambda found, engine: ratio(found["training"], "torch") if "training" in found else "–",
            ),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="?", choices=ENGINES)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--torch", default=sys.executable, help="the Python that has PyTorch, for the task `training`")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--batch4", type=Path)
    parser.add_argument("--names", nargs="+", help="only these models, for the tasks `call` and `training`")
    parser.add_argument("--every", type=int, default=1, help="only each so-many-th case, for the task `cases`")
    given = parser.parse_args()
    for task in given.tasks if given.engine else ():
        keep(given.engine, task, *measure(given.engine, task, given))
    print(table(json.loads(FIGURES.read_text())))


def measure(engine, task, given):
    """The version of the engine, if the task tells it, and what it found."""
    if task == "cases":
        return cases(engine, given.python, given.every)
    if task == "call":
        paths = [p for p in sorted(given.models.glob("*.onnx")) if p.stem in (given.names or [p.stem])]
        return None, calls(engine, given.python, paths)
    if task == "training":
        paths = [given.batch4 / f"{name}.onnx" for name in given.names or NAMES]
        return None, steps(engine, given.python, given.torch, paths)
    return models(engine, task, given.python, given.models)


def keep(engine, task, version, found):
    """Writes it to the file, which may have changed meanwhile. Measured models replace those of the same name."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    row = figures.setdefault(engine, {})
    row[task] = {**(row.get(task, {}) if version is None else {}), **found}
    row["version"] = version or row.get("version", "")
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
