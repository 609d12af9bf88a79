"""What of a program is computed from the weights alone, once."""

import dataclasses

import numpy as np
from jax import lax
from programs import TARGET, inlined

from jaxops.compiler.partition import weight_only
from jaxops.compiler.partition.weight_only import split_weight_only

W = np.ones((256, 256), np.float32)


def prepared(forms, max_bytes, monkeypatch):
    """How many forms of one weight are prepared."""
    monkeypatch.setattr(weight_only, "_SMALL", 0)

    def fn(w, x):
        for k in range(forms):
            x = lax.dot(x, lax.cos(w * np.float32(k + 2)))
        return x

    target = dataclasses.replace(TARGET, max_bytes=max_bytes)
    return len(split_weight_only(inlined(fn, W, W), 1, target).prepare.outputs)


def test_a_weight_in_many_forms_is_bounded(monkeypatch):
    """Each form has the size of the weight: the first is usual, the next take a quarter of the limit together."""
    assert prepared(40, 16 * W.nbytes, monkeypatch) == 1 + 4
    assert prepared(3, 16 * W.nbytes, monkeypatch) == 3
    assert prepared(40, 0, monkeypatch) == 1
