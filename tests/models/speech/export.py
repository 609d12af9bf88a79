"""Exports the encoder and the decoders of a small Whisper with random weights: `python export.py`.

Needs torch and transformers, which the tests do not. `encoder.onnx` takes audio; `first.onnx` takes tokens and what the
encoder gives, and makes keys and values of both; `later.onnx` takes these, as optimum writes the three.
"""

import sys
import warnings
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from export import First, ids, slim  # noqa: E402

BATCH = {0: "batch"}
PARTS = ("key", "value")


def whisper():
    """One layer each, of 2 heads of 8."""
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=16, num_mel_bins=8, decoder_layers=1,
        decoder_attention_heads=2, decoder_ffn_dim=16, max_source_positions=12, max_target_positions=32, vocab_size=64,
        pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=1,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    model.proj_out.weight = torch.nn.Parameter(torch.randn(64, 16))  # so that it does not repeat one token
    torch.nn.init.normal_(model.model.decoder.embed_positions.weight, std=0.5)
    for weight in (*model.model.encoder.parameters(), *model.model.decoder.layers.parameters()):
        if weight.ndim > 1:  # so that the audio counts
            torch.nn.init.normal_(weight, std=0.5)
    return model.eval()


def tensors_of(cache):
    return [t for layer in cache.layers for t in (layer.keys, layer.values)]


def encoder(m, audio):
    return m.model.encoder(audio).last_hidden_state


def first(m, tokens, states):
    cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
    found = m.model.decoder(input_ids=tokens, encoder_hidden_states=states, past_key_values=cache, use_cache=True)
    kept = [*tensors_of(cache.self_attention_cache), *tensors_of(cache.cross_attention_cache)]
    return (m.proj_out(found.last_hidden_state), *kept)


def later(m, tokens, *past):
    own, cross = (transformers.DynamicCache([past[k : k + 2]]) for k in (0, 2))
    states = past[2].transpose(1, 2).flatten(2)  # given its keys and values, only the size of it matters
    cache = transformers.EncoderDecoderCache(own, cross)
    found = m.model.decoder(input_ids=tokens, encoder_hidden_states=states, past_key_values=cache, use_cache=True)
    return (m.proj_out(found.last_hidden_state), *tensors_of(cache.self_attention_cache))


def main():
    torch.manual_seed(0)
    model = whisper()
    tokens, states = (ids(2, 3), {**BATCH, 1: "sequence"}), (torch.randn(2, 12, 16), BATCH)
    logits = {"logits": {**BATCH, 1: "sequence"}}
    own, cross = ({f"present.0.{of}.{part}": BATCH for part in PARTS} for of in ("decoder", "encoder"))
    past = {}
    for of, size, axes in (("decoder", 5, {**BATCH, 2: "past_sequence"}), ("encoder", 12, BATCH)):
        past |= {f"past_key_values.0.{of}.{part}": (torch.randn(2, 2, size, 8), axes) for part in PARTS}
    audio = {"input_features": (torch.randn(2, 8, 24), BATCH)}
    for call, inputs, outputs in (
        (encoder, audio, {"last_hidden_state": BATCH}),
        (first, {"input_ids": tokens, "encoder_hidden_states": states}, {**logits, **own, **cross}),
        (later, {"input_ids": tokens, **past}, {**logits, **own}),
    ):
        path, values = HERE / f"{call.__name__}.onnx", tuple(value for value, _ in inputs.values())
        axes = {**{name: dynamic for name, (_, dynamic) in inputs.items()}, **outputs}
        names = {"input_names": list(inputs), "output_names": list(outputs)}
        with torch.no_grad():
            torch.onnx.export(
                First(model, call), values, path, dynamo=False, opset_version=17, dynamic_axes=axes, **names
            )
        slim(path)
        print(path.name, f"{path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
