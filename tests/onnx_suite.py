"""The cases of the standard's own test suite, and the list of those that pass."""

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the cases are made at import, with overflows on purpose
    from onnx.backend.test.runner import Runner


RUNNING: list[str] = []  # the name of the case
# What is expected is computed by NumPy when the cases are made: 2.5 rounds zeros beside 45 to 2e-7, more than 1e-7.
ROUNDED = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}


class SuiteRunner(Runner):
    """The standard's runner, which cannot compare scalars in a sequence: it asks for the length of each item."""

    @classmethod
    def assert_similar_outputs(cls, ref_outputs, outputs, rtol, atol, model_dir=None):
        if isinstance(ref_outputs, np.ndarray):
            ref_outputs, outputs = [ref_outputs], [outputs]
        atol = max([atol, *(ROUNDED.get(name, 0) for name in RUNNING)])
        super().assert_similar_outputs(ref_outputs, outputs, rtol, atol, model_dir)


LIST = Path(__file__).parent / "conformance" / "passing.txt"


def read_list(modes: Collection[str]) -> dict[str, set[str]]:
    """Name → the modes in which it must pass: all, where the list says none."""
    lines = [line.split() for line in LIST.read_text().splitlines()]
    return {name: set(said) or set(modes) for name, *said in lines}


def cases(backend: Any) -> dict[str, tuple[str, Any]]:
    """Name → (kind, function) of every case for the CPU, as the standard's runner makes them for a backend."""
    found = {}
    for kind, by_name in SuiteRunner(backend)._test_items.items():
        for name, item in by_name.items():
            if name.endswith("_cpu"):
                found[name.removesuffix("_cpu")] = (kind.removesuffix("Model"), item.func)
    return found
