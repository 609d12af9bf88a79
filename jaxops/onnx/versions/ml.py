"""Earlier versions of the operators of ai.onnx.ml."""

from collections.abc import Sequence

import numpy as np

from jaxops.dtypes import is_string
from jaxops.onnx.registry import version
from jaxops.ops.ml import label_encoder
from jaxops.static import Array, array


@version("LabelEncoder", 1, domain="ai.onnx.ml")
def label_encoder_1(x: Array, *, classes_strings: Sequence[str] = (), default_int64: int, default_string: str) -> Array:
    """Strings become their positions among the classes, positions become strings.

    The text does not say which position a repeated class has; here it is the last one, as in onnxruntime.
    """
    positions = np.arange(len(classes_strings))
    if is_string(array(x)):
        return label_encoder(x, keys_strings=classes_strings, values_int64s=positions, default_int64=default_int64)
    return label_encoder(x, keys_int64s=positions, values_strings=classes_strings, default_string=default_string)


version("LabelEncoder", 2, domain="ai.onnx.ml")(label_encoder)
