"""The loop of a child process that checks random graphs; see `attack.work`."""

import json
import os
import resource
import struct
from collections import Counter
from pathlib import Path

import jax
from attack import PROCESS
from differential import check, statically
from operators import NAMES
from random_graphs import random_graph

# Op by op each node is compiled alone, which takes several times as long.
_WAYS = (("x64 off",), ("prepared",), ("op by op",), (), ("x64 off",), ("prepared",), ("x64 off",), ())


def work(folder: Path, seed: int, start: int, stop: int, step: int, static: bool, only: str) -> None:
    """Checks the graphs start, start + step, …; op by op, and with x64 off, now and then.

    static: only what NumPy computes, which takes a tenth of the time. only: as in `run.pool`.
    """
    resource.setrlimit(resource.RLIMIT_AS, (PROCESS, PROCESS))
    counts: Counter[str] = Counter()
    with (folder / f"at-{start % step}").open("r+b") as at, (folder / f"found-{start % step}").open("a") as found:
        for number in range(start, stop, step):
            os.pwrite(at.fileno(), struct.pack("<q", number), 0)
            graph = random_graph(seed, number, names=only.split(",") if only else NAMES)
            wrong = statically(graph) if static else check(graph, _WAYS[number // step % len(_WAYS)])
            for finding in wrong or ():
                line = [number, "graphs", finding.what, finding.where.split(":")[0], finding.text, [graph.text]]
                found.write(json.dumps(line) + "\n")
                found.flush()
            what = "drift" if wrong is None else "ran" if not wrong else _column(wrong[0].what)
            counts[f"graphs {what}"] += 1
            if number // step % 50 == 49:
                found.write(json.dumps(counts) + "\n")
                counts.clear()
                found.flush()
            if number // step % 200 == 199:
                jax.clear_caches()
        found.write(json.dumps(counts) + "\n")


def _column(what: str) -> str:
    return "exception" if what == "exception" else "wrong"
