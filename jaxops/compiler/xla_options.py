"""Options that `jax.jit` hands to XLA's compiler."""

from collections.abc import Sequence
from typing import Any

from jaxops.kernels.target import Target, this_machine

# On processors with these features (as Linux names them), loops use vectors of 512 bits; XLA's default is 256.
_WIDE = {"avx512f", "AuthenticAMD"}
_LEVEL = "xla_backend_optimization_level"
# The operations that XLA puts into CUDA graphs: its default without collectives, and with convolutions.
_IN_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,CONVOLUTION"


def compiler_options() -> dict[str, Any]:
    """Returns options for compiling your own program on this machine: `jax.jit(fn, compiler_options=…)`.

    `model(x)` is compiled with the same options and with an optimization level. The options are empty on machines where
    XLA's defaults are the fastest. Source: measured on two cores of AMD and of Intel, and on one H200.

    >>> import jax
    >>> float(jax.jit(lambda x: x + 1, compiler_options=compiler_options())(1.0))
    2.0
    """
    options = program_options(this_machine()) or {}
    return {name: value for name, value in options.items() if name != _LEVEL}


def program_options(target: Target, operations: Sequence[Any] = ()) -> dict[str, Any] | None:
    """Returns the options for a CPU or a CUDA GPU; None for other targets. operations: of the program.

    On a GPU, convolutions are launched as a part of CUDA graphs: DenseNet-121 3.8 → 1.1 ms on an H200, EfficientNet-B0
    1.47 → 0.44 ms (one image, plain convolutions).

    On a CPU, XLA's default hands convolutions and reductions to a library (YNNPACK) that runs one example on one core,
    and whose maximum loses NaNs. With these options only matrix products go there, which it computes fastest.
    ResNet-50: 183 → 159 ms of processor time.

    With LLVM's optimization level 1, loops are as fast as with level 3 (1.00 of a call, geometric mean of 10 models,
    0.97 to 1.03), and programs start in 0.94 of the time (0.90 to 0.99). But only level 3 moves the test for padding
    out of a long loop, which is not vectorized otherwise. So programs that round images to 8 bits and pad them get
    level 3: MobileNetV3-small of TensorFlow Lite takes 0.4 of a call, EfficientNetV2-B0 0.6, MobileNet 0.92, and they
    start in 1.02 of the time.

    With vectors of 512 bits on an AMD Zen 4, EfficientNet-B0 takes 0.91 of a call, ConvNeXt-T 0.93, int8 BERT-base 0.96
    (geometric mean of 13 models, two of them int8, 0.98, none above 1.01). On another processor (its maker was not
    recorded) the mean of ten models was 0.98, too, but MobileNetV3 took 1.06; so XLA's default stays there.

    oneDNN, which is a part of XLA, is not used (`xla_cpu_experimental_onednn_custom_call`; in jaxlib 0.10 only by the
    name of the call). It takes half of the time for 8-bit integers. But it ends the process where XLA has more threads
    than oneDNN counts, hangs for some dilated convolutions, and programs with it cannot be written to the cache.
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
    """Returns True if a program pads images, and rounds."""
    pictures = any(o.name == "pad" and len(o.params["padding_config"]) > 3 for o in operations)
    return pictures and any(o.name == "round" for o in operations)
