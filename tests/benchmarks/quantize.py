"""Quantizes what `export.py` wrote: `python quantize.py FOLDER [NAME …]` writes FOLDER/NAME.onnx.

Needs onnxruntime, and onnx_ir for weights of 4 bits. FOLDER has resnet50.onnx, bert_base.onnx and llama_110m.onnx.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Images(CalibrationDataReader):
    """Two random images: the scales need not be good, only alike."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.left = [{"x": rng.random((1, 3, 224, 224), np.float32)} for _ in range(2)]

    def get_next(self):
        return self.left.pop() if self.left else {}


def dynamic(source, path):
    """Weights of int8; activations are quantized at each call (MatMulInteger)."""
    quantize_dynamic(source, path, weight_type=QuantType.QInt8)


def static(source, path, form):
    """Weights of int8 by channel, activations of uint8, their scales found beforehand."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
        quantize_static(prepared, path, Images(), quant_format=form, **types)


def four_bits(source, path):
    """Weights of 4 bits in blocks of 32, activations of float32 (MatMulNBits)."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made: Any = MatMulNBitsQuantizer(onnx.load(source), bits=4, block_size=32, is_symmetric=True)
    made.process()
    made.model.save_model_to_file(str(path), use_external_data_format=False)


# Name → (what it is made of, how).
MODELS = {
    "bert_base_int8_dynamic": ("bert_base", dynamic),
    "resnet50_int8_qdq": ("resnet50", lambda source, path: static(source, path, QuantFormat.QDQ)),
    "resnet50_int8_qlinear": ("resnet50", lambda source, path: static(source, path, QuantFormat.QOperator)),
    "llama_110m_int4": ("llama_110m", four_bits),
}


def main(folder, names):
    for name in names or MODELS:
        source, make = MODELS[name]
        path = folder / f"{name}.onnx"
        make(folder / f"{source}.onnx", path)
        print(path, path.stat().st_size >> 20, "MiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
