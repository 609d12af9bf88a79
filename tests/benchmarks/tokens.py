"""A token of a language model: `python tokens.py FOLDER ... [--rounds 3]`, beside onnxruntime-genai, which it needs.

A folder is one that onnxruntime-genai's builder wrote. Each engine is in a process of its own, and they take turns: it
loads the model, reads a prompt and continues it greedily. Prints the time of load and prompt, the median time of a
token, the programs that JAX compiled, and the peak of the memory; then the ratio of the tokens' times.
"""

import argparse
import functools
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

PROMPT, TOKENS = 64, 96
LENGTH = PROMPT + TOKENS
DIGITS = {"start": 2, "second": 2, "token": 2, "programs": 0, "peak": 0}
ENGINES = ("onnxruntime-genai", "jaxops step", "jaxops scan", "jaxops prepared")


def prompt():
    return np.random.default_rng(0).integers(0, 1000, (1, PROMPT))


def by_genai(folder):
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=LENGTH, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(prompt()[0].tolist())
    generator.generate_next_token()
    yield 0
    while not generator.is_done():
        generator.generate_next_token()
        yield 0


def by_step(folder, prepares=False):
    """A jitted step for each token. prepares: whether the parameters are prepared first."""
    import jax

    import jaxops.onnx

    model = jaxops.onnx.load(folder / "model.onnx")
    decoder = jaxops.onnx.decoder(model, length=LENGTH)
    step = jax.jit(decoder, donate_argnums=1)
    params = decoder.prepare(model.params) if prepares else model.params
    state, logits = step(params, decoder.init(1), prompt())
    token = logits[:, -1].argmax(-1)
    yield step._cache_size()
    for _ in range(TOKENS - 1):
        state, logits = step(params, state, token)
        token = logits.argmax(-1).block_until_ready()
        yield step._cache_size()


def by_scan(folder):
    """All tokens in one program; a token is the mean."""
    import jax

    import jaxops.onnx

    model = jaxops.onnx.load(folder / "model.onnx")
    step = jaxops.onnx.decoder(model, length=LENGTH)
    prefill = jax.jit(step, donate_argnums=1)

    @jax.jit
    def generate(params, state, token):
        def one(carry, _):
            state, token = carry
            state, logits = step(params, state, token)
            return (state, logits.argmax(-1)), token

        return jax.lax.scan(one, (state, token), length=TOKENS - 1)[1]

    state, logits = prefill(model.params, step.init(1), prompt())
    generate(model.params, state, logits[:, -1].argmax(-1)).block_until_ready()
    yield 2
    start = time.perf_counter()
    generate(model.params, state, logits[:, -1].argmax(-1)).block_until_ready()
    yield (time.perf_counter() - start) / (TOKENS - 1)


def measured(engine, folder):
    """Returns seconds of the start, milliseconds of a token, programs, megabytes at the peak."""
    prepared = functools.partial(by_step, prepares=True)
    run = dict(zip(ENGINES, (by_genai, by_step, by_scan, prepared), strict=True))[engine](Path(folder))
    start = time.perf_counter()
    programs = next(run)
    begun = time.perf_counter() - start
    if engine == "jaxops scan":
        times = [next(run)]
    else:
        times, before = [], time.perf_counter()
        for count in run:
            now, programs = time.perf_counter(), count
            times.append(now - before)
            before = now
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    second = times[0] if len(times) > 1 else float("nan")
    token = statistics.median(times)
    return {"start": begun, "second": second, "token": 1000 * token, "programs": programs, "peak": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=ENGINES, help="this one alone, in this process, as JSON")
    given = parser.parse_args()
    if given.engine:
        print(json.dumps(measured(given.engine, given.folders[0])))
        return
    print(f"{'':34}{'start s':>9}{'second s':>9}{'token ms':>9}{'programs':>9}{'peak MB':>9}{'ratio':>7}")
    for folder in given.folders:
        rows = {engine: [] for engine in ENGINES}
        for _ in range(given.rounds):
            for engine in ENGINES:
                command = [sys.executable, __file__, str(folder), "--engine", engine]
                rows[engine].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        token = {e: statistics.median(row["token"] for row in found) for e, found in rows.items()}
        for engine, found in rows.items():
            median = {key: statistics.median(row[key] for row in found) for key in found[0]}
            cells = "".join(f"{value:9.{DIGITS[key]}f}" for key, value in median.items())
            print(f"{folder.name + ', ' + engine:34}{cells}{token[engine] / token[ENGINES[0]]:7.2f}", flush=True)


if __name__ == "__main__":
    main()
