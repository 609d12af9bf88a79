"""Converts the inputs of a call for another runtime, such as onnxruntime."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxops.signature_errors import errors_of
from jaxops.static import known


def feeds(values: Mapping[str, Any], dtypes: Mapping[str, np.dtype | None]) -> dict[str, Any]:
    """Inputs as runtimes take them: NumPy arrays, or lists of them, in the types that the model declares."""

    def feed(name: str, value: Any, dtype: np.dtype | None) -> Any:
        if isinstance(value, list | tuple):
            return [feed(name, item, dtype) for item in value]
        with errors_of("compare"):
            array = known(name, value)
        return array if dtype is None else array.astype(dtype, copy=False)

    return {name: feed(name, value, dtypes.get(name)) for name, value in values.items() if value is not None}
