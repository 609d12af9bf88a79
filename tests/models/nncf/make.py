"""Makes the IRs in this folder: a small network with its weights compressed by NNCF in each mode, and one quantized.

`python make.py` in an environment with openvino, nncf and torch; made by openvino 2026.4.1, nncf 3.4.0, torch 2.14.1.
"""

from pathlib import Path

import nncf
import numpy as np
import openvino
import torch
from torch import nn

HERE = Path(__file__).parent
MODES = ("INT8_ASYM", "INT8_SYM", "INT4_ASYM", "INT4_SYM", "NF4", "CB4", "MXFP4", "FP8_E4M3")


def words() -> openvino.Model:
    """A table of embeddings and two products."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(16, 32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    return openvino.convert_model(model, example_input=torch.zeros(2, 3, dtype=torch.int64))


def image() -> openvino.Model:
    """A convolution, a depthwise one, and a product."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Hardswish()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
    return openvino.convert_model(model, example_input=torch.zeros(1, 3, 8, 8))


if __name__ == "__main__":
    for mode in MODES:
        options = {} if mode.startswith("INT8") else {"ratio": 1.0, "group_size": 32, "all_layers": True}
        compressed = nncf.compress_weights(words(), mode=getattr(nncf.CompressWeightsMode, mode), **options)
        openvino.save_model(compressed, HERE / f"{mode.lower()}.xml")
    images = [np.random.default_rng(k).random((1, 3, 8, 8), np.float32) for k in range(8)]
    openvino.save_model(nncf.quantize(image(), nncf.Dataset(images), subset_size=8), HERE / "quantized.xml")
