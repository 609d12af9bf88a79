"""Runs cases in processes of fifty each, as a compiler that fails may end its process."""

import json
import os
import subprocess

BATCH = 50


def outcomes(command, names, seconds=900):
    """Returns what a command prints for each name: lines of JSON, [name, result], in order.

    command: a list of strings; it gets the names of a batch as arguments. Where its process ends early, the result of
    the next name is "ended with CODE: …", and another process goes on behind it. seconds: for each process.
    """
    found, waiting = {}, list(names)
    while waiting:
        batch = waiting[:BATCH]
        done = subprocess.run([*command, *batch], capture_output=True, text=True, timeout=seconds, env=os.environ)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        found |= dict(lines)
        if len(lines) < len(batch):
            found[batch[len(lines)]] = f"ended with {done.returncode}: {done.stderr.strip()[-400:]}"
        waiting = [name for name in waiting if name not in found]
    return found
