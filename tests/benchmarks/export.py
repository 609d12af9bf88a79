"""Exports the models that benchmarks run, full size with random weights: `export.py FOLDER [NAME …] [--batch 4]`.

Needs torch, torchvision, transformers and onnxscript. Writes FOLDER/NAME.onnx; batch 1 and sequences of 64, where the
name says no other. `quantize.py` makes quantized ones of them, and `training.py` trains those of `--batch 4`.
"""

import argparse
import warnings
from pathlib import Path

import onnx
import torch
import torchvision
import transformers


class First(torch.nn.Module):
    """A model as a function of one tensor to one tensor."""

    def __init__(self, model, call):
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, x):
        return self.call(self.model, x)


def image(model, batch=1):
    return First(model, lambda m, x: m(x)), torch.randn(batch, 3, 224, 224)


def bert(batch=1, sequence=64):
    model = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)
    ids = torch.randint(0, 30522, (batch, sequence))
    return First(model, lambda m, x: m(input_ids=x).last_hidden_state), ids


def gpt2():
    return causal(transformers.GPT2LMHeadModel(transformers.GPT2Config()), 50257)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=2048
    )
    return causal(transformers.LlamaForCausalLM(config), 32000)


def causal(model, vocabulary):
    ids = torch.randint(0, vocabulary, (1, 64))
    return First(model, lambda m, x: m(input_ids=x, use_cache=False).logits), ids


def whisper():
    config = transformers.WhisperConfig(
        d_model=512, encoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8, decoder_layers=1
    )
    encoder = transformers.WhisperModel(config).encoder
    return First(encoder, lambda m, x: m(x).last_hidden_state), torch.randn(1, 80, 3000)


MODELS = {
    "resnet50": lambda: image(torchvision.models.resnet50()),
    "mobilenet_v3_large": lambda: image(torchvision.models.mobilenet_v3_large()),
    "efficientnet_b0": lambda: image(torchvision.models.efficientnet_b0()),
    "convnext_tiny": lambda: image(torchvision.models.convnext_tiny()),
    "vit_b_16": lambda: image(torchvision.models.vit_b_16()),
    "bert_base": bert,
    "gpt2": gpt2,
    "llama_110m": llama,
    "whisper_base_encoder": whisper,
    "resnet50_batch8": lambda: image(torchvision.models.resnet50(), batch=8),
    "bert_base_batch8_sequence128": lambda: bert(batch=8, sequence=128),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--batch", type=int, default=1, help="times as many examples")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.names:
        torch.manual_seed(0)
        model, x = MODELS[name]()
        x = x.repeat(given.batch, *[1] * (x.ndim - 1))
        path = given.folder / f"{name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(model.eval(), (x,), path, input_names=["x"], dynamo=True, external_data=False)
        print(path, len(onnx.load(path).graph.node), "nodes", path.stat().st_size >> 20, "MiB")


if __name__ == "__main__":
    main()
