"""A decoder of a model that counts elements of its caches."""

import numpy as np
from decoder_graphs import no_mask

import jaxops.onnx


def test_a_number_of_true_elements_needs_no_bound():
    """Room for later tokens does not count."""
    mask = """
        summed = ReduceSum<keepdims = 0>(present_k, axes_12)  found = NonZero(summed)  counted = Size(found)
        few = Sub(t, counted)  causal = LessOrEqual(columns, rows)  more = Less(few, zero)  mask = Or(causal, more)
    """
    model = jaxops.onnx.load(no_mask(mask=mask))
    step = jaxops.onnx.decoder(model, length=8)
    state, plain = step.init(1), jaxops.onnx.decoder(causal := jaxops.onnx.load(no_mask()), length=8)
    expected = plain.init(1)
    for token in (1, 3, 2):
        state, logits = step(model.params, state, np.array([token]))
        expected, wanted = plain(causal.params, expected, np.array([token]))
        np.testing.assert_allclose(logits, wanted, rtol=1e-5)
