"""Tokens of a language model: `python tokens.py FOLDER ... [--batch 1 4 16] [--prompt 64]`, beside onnxruntime-genai.

A folder is one that onnxruntime-genai's builder wrote; onnxruntime-genai must be installed. Each engine is in a process
of its own, and they take turns: it loads the model, reads prompts of different lengths (from half of `--prompt` on) and
continues them greedily. Prints the seconds until the first token with load and compilation, the milliseconds until the
first token of a second batch, the median time of a token of all rows, the programs that JAX compiled, and the peak of
the memory; then the ratios of both times.
"""

import argparse
import functools
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from examples import machine

TOKENS = 96
DIGITS = {"start": 2, "first": 1, "token": 2, "programs": 0, "peak": 0}
ENGINES = ("onnxruntime-genai", "jaxops generate", "jaxops step", "jaxops scan", "jaxops prepared")


def prompts(batch, length):
    """Prompts of half to all of `length` tokens; a single one has all of them."""
    lengths = [length] if batch == 1 else np.linspace(length // 2, length, batch).astype(int)
    random = np.random.default_rng(0)
    return [random.integers(3, 1000, n).tolist() for n in lengths]


def padded(rows):
    """The prompts as one array, padded on the right, and its mask."""
    tokens, mask = np.zeros((2, len(rows), max(map(len, rows))), np.int32)
    for row, filled, prompt in zip(tokens, mask, rows, strict=True):
        row[: len(prompt)], filled[: len(prompt)] = prompt, 1
    return tokens, mask


def by_genai(folder, rows):
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    tokens, _ = padded(rows)
    for _ in range(2):
        params = onnxruntime_genai.GeneratorParams(model)
        options = {"max_length": tokens.shape[1] + TOKENS, "min_length": tokens.shape[1] + TOKENS}
        params.set_search_options(**options, batch_size=len(rows), do_sample=False)
        generator = onnxruntime_genai.Generator(model, params)
        generator.append_tokens(tokens)
        generator.generate_next_token()
        yield 0
    while not generator.is_done():
        generator.generate_next_token()
        yield 0


def by_generate(folder, rows):
    """One call of `generate`; a token is the mean of all after the first."""
    import jax

    import jaxops.onnx

    model = jaxops.onnx.load(folder / "model.onnx")

    def run(count):
        jax.block_until_ready(jaxops.onnx.generate(model, rows, max_tokens=count, stop=()))

    for _ in range(2):
        run(1)
        yield 0
    run(TOKENS)
    yield from mean_token(run)


def mean_token(run):
    """Yields the seconds of a token: those of all tokens without those of the first."""
    times = []
    for count in (1, TOKENS):
        start = time.perf_counter()
        run(count)
        times.append(time.perf_counter() - start)
    yield (times[1] - times[0]) / (TOKENS - 1)


def decoding(folder, rows):
    import jaxops.onnx

    model = jaxops.onnx.load(folder / "model.onnx")
    tokens, mask = padded(rows)
    step = jaxops.onnx.decoder(model, length=tokens.shape[1] + TOKENS)
    named = {} if mask.all() else {"attention_mask": mask}
    ends = mask.sum(1) - 1
    return model, step, tokens, named, lambda logits: logits[np.arange(len(rows)), ends].argmax(-1)


def by_step(folder, rows, prepares=False):
    """A jitted step for each token. prepares: whether the parameters are prepared first."""
    import jax

    model, decoder, tokens, named, first = decoding(folder, rows)
    step = jax.jit(decoder, donate_argnums=1)
    params = decoder.prepare(model.params, batch=len(rows)) if prepares else model.params
    for _ in range(2):
        state, logits = step(params, decoder.init(len(rows)), tokens, **named)
        token = first(logits).block_until_ready()
        yield step._cache_size()
    for _ in range(TOKENS - 1):
        state, logits = step(params, state, token)
        token = logits.argmax(-1).block_until_ready()
        yield step._cache_size()


def by_scan(folder, rows):
    """All tokens in one program; a token is the mean."""
    import jax

    model, step, tokens, named, first = decoding(folder, rows)
    prefill = jax.jit(step, donate_argnums=1)

    @functools.partial(jax.jit, static_argnums=3)
    def generate(params, state, token, count):
        def one(carry, _):
            state, token = carry
            state, logits = step(params, state, token)
            return (state, logits.argmax(-1)), token

        return jax.lax.scan(one, (state, token), length=count)[1]

    for _ in range(2):
        state, logits = prefill(model.params, step.init(len(rows)), tokens, **named)
        token = first(logits).block_until_ready()
        yield 2
    for count in (1, TOKENS):
        generate(model.params, state, token, count)
    yield from mean_token(lambda count: generate(model.params, state, token, count).block_until_ready())


def measured(engine, folder, batch, length):
    """Returns seconds of the start, milliseconds of the first token and of a later one, programs, megabytes."""
    prepared = functools.partial(by_step, prepares=True)
    runs = (by_genai, by_generate, by_step, by_scan, prepared)
    run = dict(zip(ENGINES, runs, strict=True))[engine](Path(folder), prompts(batch, length))
    start = time.perf_counter()
    next(run)
    begun = time.perf_counter()
    programs = next(run)
    first = time.perf_counter() - begun
    if engine in ("jaxops scan", "jaxops generate"):
        times = [next(run)]
    else:
        times, before = [], time.perf_counter()
        for count in run:
            now, programs = time.perf_counter(), count
            times.append(now - before)
            before = now
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    token = 1000 * statistics.median(times)
    return {"start": begun - start, "first": 1000 * first, "token": token, "programs": programs, "peak": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--prompt", type=int, nargs="+", default=[64])
    parser.add_argument("--engines", choices=ENGINES, nargs="+", default=ENGINES)
    parser.add_argument("--one", action="store_true", help="the first engine alone, in this process, as JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.engines[0], given.folders[0], given.batch[0], given.prompt[0])))
        return
    print(machine())
    print(f"{'':50}{'start s':>9}{'first ms':>10}{'token ms':>9}{'programs':>9}{'peak MB':>9}{'first':>7}{'token':>7}")
    for folder, batch, length in itertools.product(given.folders, given.batch, given.prompt):
        rows = {engine: [] for engine in given.engines}
        for _ in range(given.rounds):
            for engine in given.engines:
                sizes = ["--batch", str(batch), "--prompt", str(length)]
                command = [sys.executable, __file__, str(folder), "--one", "--engines", engine, *sizes]
                rows[engine].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        medians = {
            e: {key: statistics.median(row[key] for row in found) for key in DIGITS} for e, found in rows.items()
        }
        peer = medians[given.engines[0]]
        for engine, median in medians.items():
            cells = "".join(f"{median[key]:{10 if key == 'first' else 9}.{n}f}" for key, n in DIGITS.items())
            ratios = "".join(f"{median[key] / peer[key]:7.2f}" for key in ("first", "token"))
            print(f"{f'{folder.name}, {batch} of {length}, {engine}':50}{cells}{ratios}", flush=True)


if __name__ == "__main__":
    main()
