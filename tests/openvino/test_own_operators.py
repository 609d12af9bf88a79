"""Files of one operator that only OpenVINO has: a model of it gives what the function itself gives."""

import jax
import numpy as np
import openvino_peer
import pytest
from openvino_cases import CASES
from openvino_files import (
    OWN_OPERATORS,
    agrees,
    assert_close,
    gives,
    of_own_operator,
    outputs_of,
    single,
    written_package,
)

from jaxops.errors import ArgumentError, StaticError
from jaxops.openvino import load, ops

BOXES = np.float32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11]]])
SCORES = np.float32([[[0.9, 0.75, 0.6, 0.95], [0.1, 0.2, 0.3, 0.4]]])


@pytest.mark.parametrize("name", OWN_OPERATORS)
def test_a_file_of_one_operator(name):
    call = CASES[name]
    expected = jax.tree.leaves(getattr(ops, name)(**call))
    op_type, file, inputs = of_own_operator(name)
    model = load(file.xml, weights=file.bin, bounds={op_type: call["size"]} if "size" in call else {})
    assert_close(outputs_of(model, inputs), expected)
    if "size" in call:
        assert_close(outputs_of(jax.jit(model), inputs), expected)


LIMITS = [(np.int64(3),), (np.float32(0.5),), (np.float32(0),)]


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(("opset", "rows"), [(1, 4), (3, 4), (4, 6)])
def test_a_fixed_number_of_boxes(opset, rows, free):
    """The best rows of all images in versions 1 and 3, a row for each that might be chosen in version 4."""
    file, inputs = single("NonMaxSuppression", opset, [BOXES, SCORES, *LIMITS], {}, free=free)
    chosen = [[0, 0, 3], [0, 0, 0], [0, 1, 3], [0, 1, 2]]
    expected = np.array([*chosen, *[[-1, -1, -1]] * (rows - 4)])
    model = load(file.xml, weights=file.bin)
    assert_close(outputs_of(model, inputs), [expected])
    assert_close(outputs_of(jax.jit(model), inputs), [expected])


def test_boxes_as_openvino_chooses_them():
    """Its plugin does not fill up the boxes of versions 1 to 4."""
    for opset in (5, 9):
        agrees("NonMaxSuppression", opset, [BOXES, SCORES, *LIMITS, (np.float32(0.5),)], {}, 3)


def test_no_boxes_without_a_limit():
    gives("NonMaxSuppression", 4, [BOXES, SCORES], {}, np.zeros((0, 3), np.int64))


def test_a_limit_that_only_a_call_knows():
    file, inputs = single("NonMaxSuppression", 4, [BOXES, SCORES, np.int64(3), *LIMITS[1:]], {})
    model = load(file.xml, weights=file.bin)
    assert [bool(x.static) for x in model.inputs] == [False, False, True]
    assert outputs_of(model, inputs)[0].shape == (6, 3)
    with pytest.raises(StaticError, match="max_output_boxes_per_class"):
        jax.jit(model)(*inputs)


def random(**seeds):
    """A model of a RandomUniform, its input, and what the function gives."""
    attributes = {"output_type": "f32", "global_seed": 0, "op_seed": 0, **seeds}
    file, inputs = single("RandomUniform", 8, [(np.array([2, 3]),), np.float32(-1), np.float32(4)], attributes)
    return load(file.xml, weights=file.bin), inputs


def test_random_numbers_of_a_key():
    model, inputs = random()
    key = jax.random.key(2)
    with pytest.raises(ArgumentError, match="it needs a random key"):
        model(*inputs)
    numbers = model(*inputs, rng=key)
    assert_close([np.asarray(numbers)], [np.asarray(model.apply(model.params, *inputs, rng=key))])
    assert -1 <= numbers.min() < numbers.max() < 4
    assert not np.array_equal(numbers, model(*inputs, rng=jax.random.key(3)))


def test_random_numbers_of_seeds_need_no_key_and_are_compared(tmp_path):
    model, inputs = random(op_seed=5)
    expected = ops.random_uniform((2, 3), *inputs, output_type=np.float32, op_seed=5)
    assert_close(outputs_of(model, inputs), [np.asarray(expected)])
    np.testing.assert_array_equal(model(*inputs, rng=jax.random.key(0)), model(*inputs))
    module, text = written_package(model, tmp_path / "net")
    assert "jaxops.openvino.ops.random_uniform(" in text
    np.testing.assert_allclose(module.apply({}, *inputs), expected, rtol=1e-6)
    openvino_peer.imported()
    report = model.compare(*inputs)
    assert report.agrees
    assert not report.rows[0].note
