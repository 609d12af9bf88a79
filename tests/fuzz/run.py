"""Long runs of the fuzzer: `python tests/fuzz/run.py graphs --count 50000 --seed 1`, `… mutants --count 1000000`.
`static` makes graphs, too, and checks only the nodes that NumPy computes where their operands are known; `irs` damages
OpenVINO's files.

The work is done in child processes, which say where they are: what ends one, or takes too long, is a finding and the
next one goes on behind it. Findings are counted by class and the first of each is written to `--out` as a reproducer.
The numbers of all are in `numbers` there; `--first N --count 1` tries one again.
"""

import argparse
import importlib
import json
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fast_compiling import compile_fast, lower_fast

compile_fast()

MODELS = Path(__file__).parents[1] / "models"
# Models on which something else than an error of jaxops got out once.
SEEDS = Path(__file__).parent / "seeds"
# A case may take so many seconds.
PATIENCE = 60
# A child may take so many seconds until its first case.
START = 600
COMMAND = [sys.executable, __file__, "_work"]
SHOWN = {"refused later": "refused", "not called": "loaded"}
# What is damaged → the module that does it.
FAMILIES = {"mutants": "mutants", "irs": "mutated_irs"}
COLUMNS = ("tried", "loaded", "ran", "refused", "exception", "abort", "hang", "refused raw", "wrong", "drift")


def pool(seed: int, count: int, *, suite: bool = False, only: str = "") -> list[bytes]:
    """Models to be damaged: random graphs and nodes, those of the tests, and the standard's node models.

    only: operators, separated by commas; without it all, and the other models, too.
    """
    from random_graphs import random_graph

    if only:
        made = (random_graph(seed, number, 1, only.split(",")) for number in range(count))
        return [graph.model.SerializeToString() for graph in made]
    found = [
        random_graph(seed, number, most=1 if number % 3 else 4).model.SerializeToString() for number in range(count)
    ]
    found += [p.read_bytes() for p in sorted(SEEDS.glob("*.onnx"))]
    small = sorted((p for p in MODELS.glob("*.onnx")), key=lambda p: p.stat().st_size)
    found += [p.read_bytes() for p in small[: max(1, count // 100)]]
    if suite:
        from onnx.backend.test.case.node import collect_testcases

        found += [case.model.SerializeToString() for case in collect_testcases(None) if case.model is not None]
    return found


class Worker:
    """A child process that tries the cases start, start + step, …"""

    def __init__(self, folder: Path, options: argparse.Namespace, start: int) -> None:
        self.folder, self.options, self.lane = folder, options, start % options.workers
        self.at, self.found, self.log = (folder / f"{name}-{self.lane}" for name in ("at", "found", "log"))
        (folder / f"cwd-{self.lane}").mkdir(exist_ok=True)
        self.found.touch()
        self.begin(start)

    def begin(self, start: int) -> None:
        """Starts at a case."""
        self.at.write_bytes(struct.pack("<q", -1))
        given = {**vars(self.options), "start": start, "folder": str(self.folder)}
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*COMMAND, json.dumps(given)], stdout=log, stderr=subprocess.STDOUT)
        self.number, self.since = -1, time.monotonic()

    def look(self) -> tuple[str, int, str] | None:
        """("abort" or "hang", number, what it printed) where that happened; the next case has begun then."""
        number = struct.unpack("<q", self.at.read_bytes())[0]
        if number != self.number:
            self.number, self.since = number, time.monotonic()
        code = self.process.poll()
        late = time.monotonic() - self.since > (PATIENCE if number >= 0 else START)
        what = "abort" if code else "hang" if code is None and late else None
        if what is None:
            return None
        self.process.kill()
        self.process.wait()
        if number < 0:
            raise RuntimeError(self.log.read_text()[-3000:])
        log = f"exit status {self.process.returncode}\n{self.log.read_text(errors='replace')[-3000:]}"
        self.begin(number + self.options.workers)
        return what, number, log


def run(options: Any, folder: Path) -> Counter[tuple[str, str]]:
    """Tries all cases; returns how many came out how: (kind, what) → count."""
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    counts: Counter[tuple[str, str]] = Counter()
    classes: Counter[str] = Counter()
    workers = [Worker(folder, options, options.start + lane) for lane in range(options.workers)]
    try:
        _follow(workers, out, options, counts, classes)
    finally:
        for worker in workers:
            worker.process.kill()
    return counts


def _follow(workers: list[Worker], out: Path, options: Any, counts: Any, classes: Counter[str]) -> None:
    """Reads what the children find until all have ended."""
    read = dict.fromkeys(workers, 0)
    said = time.monotonic()
    while True:
        running = [w for w in workers if w.process.poll() is None or w.process.returncode]
        for worker in workers:
            if worker in running and (ended := worker.look()):
                what, number, log = ended
                kind = _kind(options, number)
                counts[kind, what] += 1
                counts[kind, "tried"] += 1
                _keep(out, options, classes, [number, kind, what, f"{what} {number}", log, []])
            with worker.found.open() as file:
                file.seek(read[worker])
                while (line := file.readline()).endswith("\n"):
                    _take(json.loads(line), out, options, counts, classes)
                    read[worker] = file.tell()
        if time.monotonic() - said > options.every or not running:
            said = time.monotonic()
            print(table(counts, classes), flush=True)
        if not running:
            return
        time.sleep(0.3)


def _family(what: str) -> Any:
    return importlib.import_module(FAMILIES[what])


def _kind(options: Any, number: int) -> str:
    if options.what not in FAMILIES:
        return "graphs"
    kinds = _family(options.what).KINDS
    return options.kind or kinds[number % len(kinds)]


def _take(line: Any, out: Path, options: Any, counts: Counter[tuple[str, str]], classes: Counter[str]) -> None:
    """A line of a child: counts, or a finding."""
    if isinstance(line, dict):
        for key, count in line.items():
            kind, _, what = key.partition(" ")
            counts[kind, "tried"] += count
            counts[kind, SHOWN.get(what) or what] += count
    else:
        _keep(out, options, classes, line)


def _keep(out: Path, options: Any, classes: Counter[str], line: list[Any]) -> None:
    """Counts a finding, and writes the first of its class."""
    number, kind, what, where, text, steps = line
    with (out / "numbers").open("a") as numbers:
        print(number, kind, what, where, file=numbers)
    classes[f"{kind}: {what}: {where}"] += 1
    if classes[f"{kind}: {what}: {where}"] > 1:
        return
    stem = re.sub(r"\W+", "-", f"{kind}-{what}-{where}")[:90]
    (out / f"{stem}.txt").write_text(f"{options.what} seed {options.seed} number {number}\n{steps}\n{text}\n")
    if options.what in FAMILIES:
        models = pickle.loads((Path(options.folder) / "pool").read_bytes())
        data = _family(options.what).mutant(options.seed, number, models, options.kind).data
        for ending, content in zip(("xml", "bin"), data, strict=True) if options.what == "irs" else [("onnx", data)]:
            (out / f"{stem}.{ending}").write_bytes(content)


def table(counts: Counter[tuple[str, str]], classes: Counter[str]) -> str:
    """What came out so far."""
    rows = ["| class | " + " | ".join(COLUMNS) + " |"]
    rows += [
        f"| {kind} | " + " | ".join(str(counts[kind, column]) for column in COLUMNS) + " |"
        for kind in dict.fromkeys(kind for kind, _ in counts)
    ]
    rows += [f"  {count:6}  {name}" for name, count in classes.most_common()]
    return "\n".join(rows)


def work(given: dict[str, Any]) -> None:
    """The life of a child."""
    lower_fast()
    options = argparse.Namespace(**given)
    stop = options.first + options.count
    folder = Path(options.folder)
    if options.what in FAMILIES:
        import attack

        attack.work(
            options.what, folder, options.kind, options.seed, options.start, stop, options.workers, options.calls
        )
    else:
        import graph_work

        graph_work.work(
            folder, options.seed, options.start, stop, options.workers, options.what == "static", options.only
        )


def main(arguments: list[str]) -> Counter[tuple[str, str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("graphs", "static", *FAMILIES))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kind", help="of mutants, such as nodes, or of irs, such as layers; all without it")
    parser.add_argument("--calls", type=int, default=20, help="one of so many mutants is called, if it loads")
    parser.add_argument("--pool", type=int, default=600, help="how many random models are damaged")
    parser.add_argument("--suite", action="store_true", help="the standard's node models are damaged, too")
    parser.add_argument("--only", default="", help="operators, such as Conv,com.microsoft.QGemm; all without it")
    parser.add_argument("--every", type=float, default=60, help="seconds between two tables")
    parser.add_argument("--out", default="fuzz-findings")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        options.folder, options.start = name, options.first
        if options.what in FAMILIES:
            if options.what == "irs":
                models: Any = _family("irs").pool(options.seed, options.pool)
            else:
                models = pool(options.seed, options.pool, suite=options.suite, only=options.only)
            (Path(name) / "pool").write_bytes(pickle.dumps(models))
        return run(options, Path(name))


if __name__ == "__main__":
    if sys.argv[1:2] == ["_work"]:
        work(json.loads(sys.argv[2]))
    else:
        main(sys.argv[1:])
