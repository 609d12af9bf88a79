"""Language models of onnxruntime-genai's builder: `python genai.py [NAME …] [--precision int4 …] [--folder FOLDER]`.

Needs torch, transformers, onnx-ir and onnxruntime-genai, which the tests do not: these have graphs like the builder's
in tests/language_models.py. For each architecture it saves a small random model with a small tokenizer, has the builder
make a file of it, and prints what jaxops makes of that: how far the logits of calls are from onnxruntime's, as a part
of the largest one; how many greedy tokens of a decoder are onnxruntime-genai's; how many of its float parameters get a
gradient; and how far the logits of an export are off, again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime

import jaxops.onnx

TINY: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
GRANITE = {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 2.0, "attention_multiplier": 0.3}
EXPERTS = {"head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64, **LAYERS}
# Name → the class in transformers, and what its configuration has beside TINY.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "granite": ("Granite", GRANITE),
    "olmo": ("Olmo", {}),
    "smollm3": ("SmolLM3", {}),
    "smollm3_window": ("SmolLM3", {"use_sliding_window": True, **LAYERS}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 6}),
    "gptoss": ("GptOss", EXPERTS),
    "phi": ("Phi", {}),
    "phi3": ("Phi3", {"original_max_position_embeddings": 64}),
    "nemotron": ("Nemotron", {}),
}
PROMPT = np.array([[5, 17, 33, 8, 64, 21, 7]])
LENGTH = 24


def saved(name: str, folder: Path) -> Path:
    """A random model as transformers saves it, with a tokenizer of bytes."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    kind, more = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**{**TINY, **more})
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * (0.2 if p.ndim > 1 else 0.3) + (0.0 if p.ndim > 1 else 1.0))
    model.save_pretrained(folder)
    letters = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())][: config.vocab_size]
    bytewise = Tokenizer(models.BPE(vocab={letter: k for k, letter in enumerate(letters)}, merges=[]))
    bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=bytewise, **special).save_pretrained(folder)
    if name == "gptoss":
        add_packed_experts(folder / "model.safetensors", config)
    return folder


def add_packed_experts(path: Path, config: Any) -> None:
    """The weights of experts in 4 bits, MXFP4, from which the builder quantizes gpt-oss anew."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors, count = load_file(path), config.num_local_experts
    shapes = {"gate_up_proj": (2 * config.intermediate_size, config.hidden_size)}
    shapes["down_proj"] = (config.hidden_size, config.intermediate_size)
    for layer in range(config.num_hidden_layers):
        for part, (rows, columns) in shapes.items():
            prefix = f"model.layers.{layer}.mlp.experts.{part}"
            blocks = torch.randint(0, 256, (count, rows, columns // 32, 16), dtype=torch.uint8)
            tensors[f"{prefix}_blocks"] = blocks
            tensors[f"{prefix}_scales"] = torch.randint(123, 126, blocks.shape[:3], dtype=torch.uint8)
    save_file(tensors, path, metadata={"format": "pt"})


def built(name: str, precision: str, folder: Path) -> Path:
    """The folder of the builder's file; what is there is not made again."""
    made = folder / f"{name}.{precision}"
    if not (made / "model.onnx").exists():
        source = folder / f"{name}.transformers"
        if not (source / "tokenizer.json").exists():
            saved(name, source)
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", made, "-p", precision]
        command += ["-e", "cuda" if precision == "fp16" else "cpu", "-c", folder / "cache"]
        # onnxruntime has no kernel for a CPU that normalizes queries and keys in its attention.
        options = {"fp16": ["fuse_qk_norm_gqa=false"], "int4": ["accuracy_level=0"], "int8": ["accuracy_level=0"]}
        command += ["--extra_options", *options[precision]] if precision in options else []
        subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=600)
    return made


def by_genai(folder: Path) -> list[int]:
    """Greedy tokens behind the prompt, up to LENGTH with it, or to an end of the text."""
    import onnxruntime_genai

    config = onnxruntime_genai.Config(str(folder))
    config.clear_providers()  # a file in float16 asks for CUDA
    model = onnxruntime_genai.Model(config)
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=LENGTH, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(PROMPT[0].tolist())
    while not generator.is_done():
        generator.generate_next_token()
    return list(map(int, generator.get_sequence(0)))[PROMPT.shape[1] :]


def by_onnxruntime(folder: Path) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Three calls, the prompt and two greedy tokens: what they take, and their last logits."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    run = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    said = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]
    sizes = {"batch_size": 1, "kv_cache_dim": said["head_size"], "past_sequence_length": 0}
    sizes["past_sliding_length"] = said.get("sliding_window", {}).get("window_size", 0)
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    caches = {
        i.name: np.zeros([sizes.get(d, d) for d in i.shape], kinds[i.type]) for i in run.get_inputs() if i.type in kinds
    }
    names = [o.name for o in run.get_outputs()]
    found, tokens, past = [], PROMPT, 0
    for _ in range(3):
        total = past + tokens.shape[1]
        feeds = {"input_ids": tokens, "attention_mask": np.ones((1, total), np.int64), **caches}
        if "position_ids" in (i.name for i in run.get_inputs()):
            feeds["position_ids"] = np.arange(past, total)[None]
        made = dict(zip(names, map(np.asarray, run.run(None, feeds)), strict=True))
        found.append((feeds, made["logits"][:, -1].astype(np.float64)))
        caches = {name: made[name.replace("past_key_values", "present")] for name in caches}
        tokens, past = found[-1][1].argmax(-1)[:, None], total
    return found


def off(found: Any, expected: np.ndarray) -> float:
    last = np.asarray(found, np.float64)[:, -1]
    return float(np.abs(last - expected).max() / np.abs(expected).max())


def tokens_of(model: Any) -> list[int]:
    step = jaxops.onnx.decoder(model, length=LENGTH)

    @jax.jit
    def generate(params: Any, prompt: Any) -> Any:
        state, logits = step(params, step.init(1), prompt)

        def one(carry: Any, _: Any) -> Any:
            state, token = carry
            state, logits = step(params, state, token)
            return (state, logits.argmax(-1)), token

        start = state, logits[:, -1].argmax(-1)
        return jax.lax.scan(one, start, length=LENGTH - PROMPT.shape[1])[1]

    return np.asarray(generate(model.params, jnp.asarray(PROMPT)))[:, 0].tolist()


def trained(model: Any, feeds: Mapping[str, Any]) -> str:
    """How many of the float parameters get a gradient that is finite and not 0."""
    floats = {name: w for name, w in model.params.items() if jnp.issubdtype(w.dtype, jnp.floating)}
    rest = {name: w for name, w in model.params.items() if name not in floats}

    def loss(floats: Any) -> Any:
        logits = model.apply({**rest, **floats}, feeds)[0].astype(np.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.asarray(PROMPT)[..., None], -1).mean()

    grads = [np.asarray(g, np.float32) for g in jax.tree.leaves(jax.jit(jax.grad(loss))(floats))]
    return f"{sum(bool(np.isfinite(g).all() and g.any()) for g in grads)}/{len(grads)}"


def exported(model: Any, calls: Any) -> float:
    """How far the two calls with a past are off, in one program that was written and read."""
    program = jax.export.deserialize(model.export().serialize())
    with jax.enable_x64(model.x64):
        return max(
            off(program.call(model.params, *(jnp.asarray(feeds[v.name]) for v in model.inputs))[0], expected)
            for feeds, expected in calls[1:]
        )


def row(name: str, precision: str, folder: Path) -> list[str]:
    path = built(name, precision, folder)
    calls, expected = by_onnxruntime(path), by_genai(path)
    model = jaxops.onnx.load(path / "model.onnx")
    worst = max(off(model(feeds)[0], logits) for feeds, logits in calls)
    same = sum(a == b for a, b in zip(tokens_of(model), expected, strict=False))
    cells = [f"{worst:.1e}", f"{same}/{len(expected)}", trained(model, calls[0][0]), f"{exported(model, calls):.1e}"]
    return [name, precision, *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--precision", nargs="+", default=["int4", "fp32", "fp16"])
    parser.add_argument("--folder", type=Path, help="where the files go; a temporary folder by default")
    given = parser.parse_args()
    unknown = set(given.names) - set(MODELS)
    if unknown:
        parser.error(f"no model {sorted(unknown)}; there are {list(MODELS)}")
    with tempfile.TemporaryDirectory() as temporary:
        print(("{:16}" + "{:11}" * 5).format("model", "precision", "calls", "tokens", "gradients", "export"))
        for name in given.names:
            for precision in given.precision:
                line = row(name, precision, given.folder or Path(temporary))
                print(("{:16}" + "{:11}" * 5).format(*line), flush=True)


if __name__ == "__main__":
    main()
