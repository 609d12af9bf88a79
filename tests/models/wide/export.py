"""Exports transformers of 64 features and 3 layers for tests with several devices: `python export.py [NAME…]`.

Needs torch, transformers and onnxscript, which the tests do not. The files have no values of weights, which the tests
draw (`wide_models.py`): here only shapes count, and so 50 KB hold a model. The vocabularies are 250 words, which two
devices divide and four do not, as BERT's 30522; 257, which is a prime number, as GPT-2's 50257 nearly is; and 256.
"""

import sys
import warnings
from pathlib import Path

import onnx
import torch
import transformers
from onnx import external_data_helper

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from export import First, ids, slim  # noqa: E402

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "intermediate_size": 256}
BATCH = {0: "batch", 1: "sequence"}


def bert():
    config = transformers.BertConfig(vocab_size=250, max_position_embeddings=32, num_labels=3, **SMALL)
    model = transformers.BertForSequenceClassification(config)
    mask = torch.ones(2, 6, dtype=torch.long)
    inputs = {"input_ids": (ids(2, 6), BATCH), "attention_mask": (mask, BATCH)}
    return First(model, lambda m, i, a: m(input_ids=i, attention_mask=a).logits), inputs


def vit():
    config = transformers.ViTConfig(image_size=16, patch_size=4, num_labels=3, **SMALL)
    model = transformers.ViTForImageClassification(config)
    return First(model, lambda m, x: m(pixel_values=x).logits), {"x": (torch.randn(2, 3, 16, 16), {0: "batch"})}


def decoder(model):
    inputs = {"input_ids": (ids(2, 6), BATCH), "attention_mask": (torch.ones(2, 6, dtype=torch.long), BATCH)}
    return First(model, lambda m, i, a: m(input_ids=i, attention_mask=a, use_cache=False).logits), inputs


def llama():
    sizes = {"vocab_size": 256, "max_position_embeddings": 32, "num_key_value_heads": 4}
    return decoder(transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **SMALL)))


def gpt2():
    sizes = {"vocab_size": 257, "n_positions": 32, "n_embd": 64, "n_layer": 3, "n_head": 8}
    return decoder(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)))


def without_values(path: Path) -> None:
    """Drops the values of all weights."""
    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for tensor in external_data_helper._get_all_tensors(model):
        if len(tensor.dims) and tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.raw_data) >= 64:
            tensor.ClearField("raw_data")
            tensor.doc_string = "drawn"
    path.write_bytes(model.SerializeToString())


def export(name: str, form: str) -> None:
    torch.manual_seed(0)
    model, inputs = globals()[name]()
    model.eval()
    values, path = tuple(value for value, _ in inputs.values()), HERE / f"{name}.{form}.onnx"
    if form == "script":
        axes, names = {key: dynamic for key, (_, dynamic) in inputs.items()}, list(inputs)
        torch.onnx.export(
            model,
            values,
            path,
            dynamo=False,
            opset_version=17,
            dynamic_axes=axes,
            input_names=names,
            output_names=["y"],
        )
    else:
        shapes = (tuple(dynamic for _, dynamic in inputs.values()),)
        version = 23 if form == "dynamo23" else 20
        options = {"opset_version": version, "dynamic_shapes": shapes, "input_names": list(inputs)}
        torch.onnx.export(model, values, dynamo=True, **options).save(path, include_initializers=True)
    slim(path)
    without_values(path)
    print(path.name, f"{path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    forms = ("script", "dynamo", "dynamo23")
    for chosen in sys.argv[1:] or [f"{name}.{form}" for name in ("bert", "gpt2", "llama", "vit") for form in forms]:
        export(*chosen.split("."))
