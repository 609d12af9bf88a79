"""Exports small models of real architectures, with random weights, by both exporters of torch: `python export.py`.

Needs torch, transformers and onnxscript, which the tests do not: they read the files that this script writes beside
itself. For each architecture `NAME.npz` has what torch computes: `in:INPUT` and `out:OUTPUT` in the order of the model,
`loss` (the mean of the square of the first output), and `grad:PARAMETER`, its derivative, under torch's names.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers

HERE = Path(__file__).parent
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


class First(torch.nn.Module):
    """A model as a function of tensors to tensors; parameter names are those of the model."""

    def __init__(self, model, call):
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


def ids(*shape):
    return torch.randint(0, 40, shape)


def bert():
    config = transformers.BertConfig(vocab_size=40, max_position_embeddings=32, num_labels=3, **SMALL)
    model = transformers.BertForSequenceClassification(config)
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    dynamic = {0: "batch", 1: "sequence"}
    return (
        First(model, lambda m, i, a: m(input_ids=i, attention_mask=a).logits),
        {"input_ids": (ids(2, 6), dynamic), "attention_mask": (mask, dynamic)},
        {"logits": {0: "batch"}},
    )


def with_cache(model, layers, heads, width):
    """A decoder with a growing cache: ids, mask, and keys and values of each layer."""

    def call(m, input_ids, attention_mask, *past):
        cache = transformers.DynamicCache([(past[2 * k], past[2 * k + 1]) for k in range(layers)])
        found = m(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = found.past_key_values
        kept = [t for layer in present.layers for t in (layer.keys, layer.values)]
        return (found.logits, *kept)

    inputs = {
        "input_ids": (ids(2, 3), {0: "batch", 1: "sequence"}),
        "attention_mask": (torch.ones(2, 8, dtype=torch.long), {0: "batch", 1: "total_sequence"}),
    }
    outputs = {"logits": {0: "batch", 1: "sequence"}}
    for k in range(layers):
        for part in ("key", "value"):
            past = torch.randn(2, heads, 5, width)
            inputs[f"past_key_values.{k}.{part}"] = past, {0: "batch", 2: "past_sequence"}
            outputs[f"present.{k}.{part}"] = {0: "batch", 2: "total_sequence"}
    return First(model, call), inputs, outputs


def gpt2():
    config = transformers.GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0)
    config.eos_token_id = 0
    return with_cache(transformers.GPT2LMHeadModel(config), 2, 2, 8)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=40, max_position_embeddings=32, num_key_value_heads=2, **{**SMALL, "num_attention_heads": 4}
    )
    return with_cache(transformers.LlamaForCausalLM(config), 2, 2, 4)


def vit():
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_labels=3, **SMALL)
    model = transformers.ViTForImageClassification(config)
    return (
        First(model, lambda m, x: m(pixel_values=x).logits),
        {"pixel_values": (torch.randn(2, 3, 16, 16), {0: "batch"})},
        {"logits": {0: "batch"}},
    )


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic", num_labels=3
    )
    model = transformers.ResNetForImageClassification(config)
    for module in model.modules():  # as after training
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean, std=0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return (
        First(model, lambda m, x: m(pixel_values=x).logits),
        {"pixel_values": (torch.randn(2, 3, 32, 32), {0: "batch"})},
        {"logits": {0: "batch"}},
    )


def t5():
    config = transformers.T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config)
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    source = {0: "batch", 1: "source"}
    return (
        First(
            model,
            lambda m, i, a, d: m(input_ids=i, attention_mask=a, decoder_input_ids=d, use_cache=False).logits,
        ),
        {
            "input_ids": (ids(2, 6), source),
            "attention_mask": (mask, source),
            "decoder_input_ids": (ids(2, 4), {0: "batch", 1: "target"}),
        },
        {"logits": {0: "batch", 1: "target"}},
    )


def t5_decoder(first=False):
    """The decoder alone: its own keys and values grow, those of the encoder's output are given, or made first."""
    config = transformers.T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config)
    torch.nn.init.normal_(model.lm_head.weight)  # so that it does not repeat one token
    layers, batch = range(2), {0: "batch"}

    def call(m, input_ids, encoder_attention_mask, *rest):
        if first:
            cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
            states = rest[0]
        else:
            own = transformers.DynamicCache([(rest[4 * k], rest[4 * k + 1]) for k in layers])
            cross = transformers.DynamicCache([(rest[4 * k + 2], rest[4 * k + 3]) for k in layers])
            cache = transformers.EncoderDecoderCache(own, cross)
            states = rest[2].transpose(1, 2).flatten(2)  # given its keys and values, only the size of it matters
        found = m.decoder(
            input_ids=input_ids, encoder_hidden_states=states, encoder_attention_mask=encoder_attention_mask,
            past_key_values=cache, use_cache=True,
        )  # fmt: skip
        kept = [t for layer in cache.self_attention_cache.layers for t in (layer.keys, layer.values)]
        if first:
            kept += [t for layer in cache.cross_attention_cache.layers for t in (layer.keys, layer.values)]
        return (m.lm_head(found.last_hidden_state), *kept)

    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    inputs = {
        "input_ids": (ids(2, 3), {**batch, 1: "sequence"}),
        "encoder_attention_mask": (mask, {**batch, 1: "source"}),
    }
    outputs = {"logits": {**batch, 1: "sequence"}}
    parts = ("decoder", "encoder") if first else ("decoder",)
    outputs |= {f"present.{k}.{of}.{part}": batch for of in parts for k in layers for part in ("key", "value")}
    if first:
        inputs["encoder_hidden_states"] = torch.randn(2, 6, 16), {**batch, 1: "source"}
        return First(model, call), inputs, outputs
    for k in layers:
        for of, size, name in (("decoder", 5, "past_sequence"), ("encoder", 6, "source")):
            for part in ("key", "value"):
                past = torch.randn(2, 2, size, 8), {**batch, 2: name}
                inputs[f"past_key_values.{k}.{of}.{part}"] = past
    return First(model, call), inputs, outputs


def t5_first():
    """The decoder without past tokens, which makes the keys and values of the encoder's output."""
    return t5_decoder(first=True)


def whisper():
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=32, num_mel_bins=8,
        max_source_positions=12, vocab_size=64, pad_token_id=0, bos_token_id=0, eos_token_id=0,
        decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=16,
    )  # fmt: skip
    model = transformers.WhisperModel(config).encoder
    return (
        First(model, lambda m, x: m(input_features=x).last_hidden_state),
        {"input_features": (torch.randn(2, 8, 24), {0: "batch"})},
        {"last_hidden_state": {0: "batch"}},
    )


def truth(model, inputs) -> dict[str, np.ndarray]:
    """What torch computes: outputs, loss and gradients."""
    found = {f"in:{name}": value.numpy() for name, (value, _) in inputs.items()}
    outputs = model(*(value for value, _ in inputs.values()))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = (outputs[0] ** 2).mean()
    loss.backward()
    found |= {f"out:{k}": value.detach().numpy() for k, value in enumerate(outputs)}
    found["loss"] = loss.detach().numpy()
    for name, parameter in model.model.named_parameters():
        if parameter.grad is not None:
            found[f"grad:{name}"] = parameter.grad.numpy()
    return found


def slim(path: Path) -> None:
    """Drops what nothing reads: stack traces, and shapes of intermediate values."""
    model = onnx.load(path)
    del model.graph.value_info[:]
    for node in (*model.graph.node, *(n for f in model.functions for n in f.node)):
        kept = [p for p in node.metadata_props if p.key in ("pkg.torch.onnx.name_scopes", "namespace")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def export(name: str) -> None:
    torch.manual_seed(0)
    model, inputs, outputs = globals()[name]()
    model.eval()
    np.savez_compressed(HERE / f"{name}.npz", **truth(model, inputs))
    values = tuple(value for value, _ in inputs.values())
    common = {"input_names": list(inputs), "output_names": list(outputs)}
    axes = {**{key: dynamic for key, (_, dynamic) in inputs.items()}, **outputs}
    with torch.no_grad():
        path = HERE / f"{name}.script.onnx"
        torch.onnx.export(model, values, path, dynamo=False, opset_version=17, dynamic_axes=axes, **common)
        slim(path)
        path = HERE / f"{name}.dynamo.onnx"
        shapes = (tuple(dynamic for _, dynamic in inputs.values()),)
        program = torch.onnx.export(model, values, dynamo=True, opset_version=20, dynamic_shapes=shapes, **common)
        program.save(path, include_initializers=True)
        slim(path)
    print(name, *(f"{p.name} {p.stat().st_size // 1024} KiB" for p in sorted(HERE.glob(f"{name}.*"))))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or ["bert", "gpt2", "llama", "resnet", "t5", "t5_decoder", "t5_first", "vit", "whisper"]:
        export(name)
