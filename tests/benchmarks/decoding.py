"""Times a token of a decoder: `python decoding.py MODEL.onnx ...`, against onnxruntime with growing caches.

Without a path it exports a GPT-2 and a Llama of four layers, 256 wide, by torch, which must be there. A prompt of 8
tokens is continued to a cache of 256; each time is that of a token, the best
of several continuations, as the machine may be shared.
"""

import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import onnxruntime
from examples import machine

import jaxops.onnx

LENGTH, PROMPT, REPEATS = 256, 8, 5
MODELS = Path(__file__).parents[1] / "models"


def exported(folder: Path) -> list[Path]:
    import torch
    import transformers

    sys.path.insert(0, str(MODELS))
    from export import with_cache

    gpt2 = transformers.GPT2Config(vocab_size=1000, n_positions=512, n_embd=256, n_layer=4, n_head=4)
    llama = transformers.LlamaConfig(
        vocab_size=1000, max_position_embeddings=512, hidden_size=256, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, intermediate_size=512,
    )  # fmt: skip
    made = {
        "gpt2": with_cache(transformers.GPT2LMHeadModel(gpt2), 4, 4, 64),
        "llama": with_cache(transformers.LlamaForCausalLM(llama), 4, 2, 32),
    }
    for name, (model, inputs, outputs) in made.items():
        axes = {**{key: dynamic for key, (_, dynamic) in inputs.items()}, **outputs}
        values = tuple(value for value, _ in inputs.values())
        names = {"input_names": list(inputs), "output_names": list(outputs), "dynamic_axes": axes}
        with torch.no_grad():
            path = folder / f"{name}.onnx"
            torch.onnx.export(model.eval(), values, path, dynamo=False, opset_version=17, **names)
    return sorted(folder.glob("*.onnx"))


def ours(path: Path, batch: int) -> tuple[float, np.ndarray]:
    model = jaxops.onnx.load(path)
    step = jaxops.onnx.decoder(model, length=LENGTH)

    @jax.jit
    def generate(params, prompt):
        state, logits = step(params, step.init(batch), prompt)

        def one(carry, _):
            state, token = carry
            state, logits = step(params, state, token)
            return (state, logits.argmax(-1)), token

        _, tokens = jax.lax.scan(one, (state, logits[:, -1].argmax(-1)), length=LENGTH - PROMPT)
        return tokens.T

    return _timed(lambda: np.asarray(generate(model.params, _prompt(batch))))


def theirs(path: Path, batch: int) -> tuple[float, np.ndarray]:
    session = onnxruntime.InferenceSession(path)
    caches = [i for i in session.get_inputs() if "past" in i.name]

    def run():
        ids, tokens = _prompt(batch), []
        sizes = ([batch if k == 0 else d if isinstance(d, int) else 0 for k, d in enumerate(i.shape)] for i in caches)
        past = [np.zeros(size, np.float32) for size in sizes]
        for total in range(PROMPT, LENGTH):
            feeds = {"input_ids": ids, "attention_mask": np.ones((batch, total), np.int64)}
            feeds |= {i.name: value for i, value in zip(caches, past, strict=True)}
            logits, *past = session.run(None, feeds)
            ids = logits[:, -1:].argmax(-1)
            tokens.append(ids[:, 0])
        return np.stack(tokens, 1)

    return _timed(run)


def _prompt(batch: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 40, (batch, PROMPT))


def _timed(run) -> tuple[float, np.ndarray]:
    tokens, times = run(), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) / (LENGTH - PROMPT))
    return 1000 * min(times), tokens


if __name__ == "__main__":
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        for path in map(Path, sys.argv[1:]) if sys.argv[1:] else exported(Path(folder)):
            for batch in (1, 4):
                a, tokens = ours(path, batch)
                b, expected = theirs(path, batch)
                agree = (tokens == expected).mean()
                print(
                    f"{path.name}, batch {batch}: {a:.2f} ms a token, onnxruntime {b:.2f}; {agree:.0%} of tokens equal"
                )
