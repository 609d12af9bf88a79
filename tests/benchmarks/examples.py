"""What measuring processes share: inputs, errors, environment. Their Pythons need NumPy and onnx for it, no more."""

import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx


def example(path):
    """An array for each input by name, as the file declares it; sizes that are not fixed are 1."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    rng = np.random.default_rng(0)

    def array(formal):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(formal.elem_type)
        shape = [d.dim_value or 1 for d in formal.shape.dim]
        return (rng.integers(0, 1000, shape) if dtype.kind in "iu" else rng.random(shape, np.float32)).astype(dtype)

    return {v.name: array(v.type.tensor_type) for v in graph.input if v.name not in weights}


def error(outputs, expected):
    """The largest difference of two lists of outputs, as a part of the largest number; inf where one has a NaN."""
    found = 0.0
    for y, z in zip(outputs, expected, strict=True):
        y, z = np.asarray(y, np.float64), np.asarray(z, np.float64)
        if y.shape != z.shape:
            return float("inf")
        finite = np.isfinite(y) & np.isfinite(z)
        if not np.array_equal(y[~finite], z[~finite], equal_nan=True):
            return float("inf")
        most, scale = (np.abs(numbers[finite]).max(initial=0) for numbers in (y - z, z))
        found = max(found, most / scale if scale else most)
    return float(found)


def run_environment():
    """That of this process, but for what would make each start compile each module: users have bytecode."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def machine(file="/proc/cpuinfo"):
    """The processor, the instructions for products that it has, the cores of this process and the version of JAX.

    Figures of two processors differ by a factor of two, so each table begins with it. file: Linux's description.
    """
    lines = Path(file).read_text().splitlines() if Path(file).exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
    has = [feature for feature in known if feature in fields.get("flags", "").split()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{fields.get('model name', 'a processor')}, {cores} cores ({' '.join(has)}), JAX {version('jax')}"
