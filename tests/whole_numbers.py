"""Random integers for tests of quantized operators beside onnxruntime."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxops.host import processor_features

# Where an x86 processor has no VNNI, onnxruntime adds two products of uint8 and int8 in 16 bits, which saturate. Its
# own remedy is weights of seven bits (`reduce_range`, in its documentation of quantization).
SATURATES = "avx2" in processor_features() and processor_features().isdisjoint({"avx512_vnni", "avx_vnni"})


def whole_numbers(rng: np.random.Generator) -> Callable[..., Any]:
    """A function that draws numbers of an integer type, all of them where onnxruntime multiplies them exactly."""

    def whole(kind: Any, *shape: int) -> Any:
        info = np.iinfo(kind)
        part = 2 if kind is np.int8 and SATURATES else 1
        return rng.integers(info.min // part, info.max // part + 1, shape).astype(kind)

    return whole
