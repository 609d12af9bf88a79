"""Caches of a decoder, found by name and shape."""

import numpy as np
import pytest

import jaxops.onnx
from jaxops.errors import ModelError
from jaxops.tools.generate.cache_inputs import find_caches


def value(name, *shape):
    return jaxops.graph.nodes.Value(name, np.dtype(np.float32), shape)


@pytest.mark.parametrize(
    ("past", "present", "axis"),
    [
        (value("past_key_values.0.key", "b", 2, "p", 8), value("present.0.key", "b", 2, "t", 8), 2),
        (value("past_key_values_0_key", None, 2, None, 8), value("present_key_values_0_key", None, 2, None, 8), 2),
        (value("past_0", 2, "b", 2, "p", 8), value("present_0", 2, "b", 2, "p + s", 8), 3),
        (value("layers.0/pastKey", "b", "p", 2, 8), value("layers.0/presentKey", "b", "t", 2, 8), 1),
        (value("past_key_self_0", "b", 2, "p", 8), value("present_key_self_0", "b", 2, "p", 8), 2),
        (value("kv_cache", 2, "b", 2, "p", 8), value("kv_cache_out", 2, "b", 2, "p", 8), 3),
        (value("past_key_cross_0", "b", 2, "e", 8), value("present_key_cross_0", "b", 2, "e", 8), None),
        (value("past.0.encoder.key", "b", 2, "e", 8), value("present.0.encoder.key", "b", 2, "e", 8), None),
        (value("past_0", "b", 2, "encoder_length", 8), value("present_0", "b", 2, "encoder_length", 8), None),
        (value("past_0", 1, 2, "p", 8), value("present_0", 1, 2, "p", 8), 2),
        (value("past_h", 2, "rows", 16), value("present_h", 2, "rows", 16), None),
        (value("past_conv", "rows", 64, 4), value("present_conv", "rows", 64, 4), None),
        (value("past.0.key", "b", 2, "p", 8), value("present.1.key", "b", 4, "t", 8), None),
    ],
)
def test_names_and_shapes(past, present, axis):
    outputs = [value("logits", "b", "n", 40), present]
    if axis is None:
        with pytest.raises(ModelError, match="no cache that grows"):
            find_caches([past], outputs, None, "b")
    else:
        (found,) = find_caches([past], outputs, None, "b")
        assert (found.past.name, found.present.name, found.axis) == (past.name, present.name, axis)
