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
    XLA's defaults are the fastest. They are for calls. A training step may be slower with them: ConvNeXt-T's takes 1.5
    times as long on an Intel with AMX and on an AMD, where those of six more networks take 0.97 to 1.10 times as long.
    Source: tests/benchmarks/training.py (`jaxops-options`) on two cores of AMD and of Intel, and one H200.

    >>> import jax
    >>> float(jax.jit(lambda x: x + 1, compiler_options=compiler_options())(1.0))
    2.0
    """
    options = program_options(this_machine()) or {}
    return {name: value for name, value in options.items() if name != _LEVEL}


def program_options(target: Target, operations: Sequence[Any] = ()) -> dict[str, Any] | None:
    """Returns the options for a CPU or a CUDA GPU; None for other targets. operations: of the program.

    On a GPU, convolutions are launched as a part of CUDA graphs, which costs less time than launching them one by one.

    On a CPU, XLA's default hands convolutions and reductions to a library (YNNPACK) that runs one example on one core,
    and whose maximum loses NaNs. With these options only matrix products go there, which it computes fastest.

    With LLVM's optimization level 1, loops are as fast as with level 3, and programs start sooner. But only level 3
    moves the test for padding out of a long loop, which is not vectorized otherwise. So programs that round images to 8
    bits and pad them, such as those of TensorFlow Lite, get level 3.

    Vectors of 512 bits make most models faster on an AMD Zen 4, and none slower. On another processor (its maker was
    not recorded) MobileNetV3 was slower; so XLA's default stays there.

    oneDNN, which is a part of XLA, is not used (`xla_cpu_experimental_onednn_custom_call`; in jaxlib 0.10 only by the
    name of the call). It is faster for 8-bit integers. But it ends the process if XLA has more threads than oneDNN
    counts, hangs for some dilated convolutions, and programs with it cannot be written to the cache.
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
