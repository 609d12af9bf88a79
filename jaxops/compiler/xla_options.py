"""Options that `jax.jit` hands to XLA's compiler."""

from collections.abc import Sequence
from typing import Any

from jaxops.kernels.target import Target, this_machine

# The features of a processor, as Linux names them, that has loops of 512 bits, where XLA makes them of 256.
_WIDE = {"avx512f", "AuthenticAMD"}
_LEVEL = "xla_backend_optimization_level"
# What XLA puts into graphs of CUDA by default, but for what several devices do together, and convolutions.
_IN_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,CONVOLUTION"


def compiler_options() -> dict[str, Any]:
    """Returns options with which to compile a program of your own on this machine: `jax.jit(fn, compiler_options=…)`.

    `model(x)` is compiled with the same options, and a level of optimization. They are empty where the defaults of XLA
    are the fastest. Source: measured on two cores of AMD and of Intel, and on one H200.

    >>> import jax
    >>> float(jax.jit(lambda x: x + 1, compiler_options=compiler_options())(1.0))
    2.0
    """
    options = program_options(this_machine()) or {}
    return {name: value for name, value in options.items() if name != _LEVEL}


def program_options(target: Target, operations: Sequence[Any] = ()) -> dict[str, Any] | None:
    """Returns the options of a CPU, or of a GPU of CUDA; None elsewhere. operations: of the program.

    On a GPU, convolutions are launched as a part of graphs of CUDA: DenseNet-121 takes 1.1 ms on an H200, not 3.8,
    EfficientNet-B0 0.44, not 1.47 (one image, plain convolutions).

    On a CPU, XLA gives convolutions and reductions to a library that runs one example on one core, and whose maximum
    loses NaNs. Products stay there: it is the fastest for them. ResNet-50: 183 → 159 ms of processor time.

    LLVM's first level makes loops that are as fast as those of its third (1.00 of a call, geometric mean of 10 models,
    0.97 to 1.03), and programs start in 0.94 of the time (0.90 to 0.99). But only the third takes out of a loop the
    question whether an element is padding, without which a long loop has no vectors. So where pictures are rounded to
    8 bits and padded, it is the third: MobileNetV3-small of TensorFlow Lite takes 0.4 of a call, EfficientNetV2-B0
    0.6, MobileNet 0.92, and their starts 1.02.

    Loops of 512 bits: EfficientNet-B0 takes 0.91 of a call, ConvNeXt-T 0.93, int8 BERT-base 0.96 (geometric mean of 13
    models, two of them int8, 0.98, none above 1.01) on an AMD of the fourth Zen. On a processor whose maker was not
    noted the mean of ten was 0.98, too, but MobileNetV3 took 1.06, so that XLA's choice stays elsewhere.

    XLA has oneDNN on board, too (`xla_cpu_experimental_onednn_custom_call`; in jaxlib 0.10 only by the name of the
    call). It takes half of the time for 8-bit integers, but ends the process where XLA has more threads than oneDNN
    counts, waits forever for some dilated convolutions, and no program with it can be written into the cache.
    """
    if target.platform == "gpu" and "cuda" in target.features:
        return {"xla_gpu_enable_command_buffer": _IN_GRAPHS}
    if target.platform != "cpu":
        return None
    options: dict[str, Any] = {
        "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
        _LEVEL: 3 if _rounds_and_pads(operations) else 1,
    }
    return options | ({"xla_cpu_prefer_vector_width": 512} if target.features >= _WIDE else {})


def _rounds_and_pads(operations: Sequence[Any]) -> bool:
    """Tells whether a program pads pictures, and rounds."""
    pictures = any(o.name == "pad" and len(o.params["padding_config"]) > 3 for o in operations)
    return pictures and any(o.name == "round" for o in operations)
