"""Free sizes with limits, such as `2..8`: calls, exports, examples and chosen sizes keep to them."""

import jax
import numpy as np
import pytest
from openvino_files import File

from jaxops.errors import ArgumentError, ShapeError
from jaxops.openvino import load


def limited(shape="2..8,3,4.."):
    file = File()
    x = file.parameter(shape, name="x")
    file.result(file.layer("Relu", 1, [x]))
    return file


def loaded(shape="2..8,3,4..", **options):
    file = limited(shape)
    return load(file.xml, weights=file.bin, **options)


def zeros(*sizes):
    return np.zeros(sizes, np.float32)


def test_a_call_within_the_limits():
    model = loaded()
    for sizes in ((2, 3, 4), (8, 3, 400)):
        assert model(zeros(*sizes)).shape == sizes
    assert loaded("..2")(zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((9, 3, 4), r"input 'x' has 9 elements on axis 0, but the model takes 2 to 8: x: float32\[x_0, 3, x_2\]"),
        ((1, 3, 4), "input 'x' has 1 element on axis 0, but the model takes 2 to 8"),
        ((2, 3, 3), "input 'x' has 3 elements on axis 2, but the model takes 4 or more"),
    ],
)
def test_a_call_outside(sizes, problem):
    model = loaded()
    for run in (model, jax.jit(model)):
        with pytest.raises(ShapeError, match=problem):
            run(zeros(*sizes))


def test_an_export_serves_the_sizes_within():
    exported = loaded().export()
    (shape,) = [x.shape for x in exported.in_avals]
    text = str(shape[0].scope)
    assert all(limit in text for limit in ("x_0 >= 2", "x_0 <= 8", "x_2 >= 4")), text
    y = exported.call({}, zeros(8, 3, 4))
    assert jax.tree.leaves(y)[0].shape == (8, 3, 4)
    with pytest.raises(ValueError, match="x_0"):
        exported.call({}, zeros(9, 3, 4))


def test_chosen_sizes():
    problem = "sizes: 'x_0' is 9, but input 'x' takes 2 to 8 on axis 0"
    with pytest.raises(ArgumentError, match=problem):
        loaded(sizes={"x_0": 9})
    with pytest.raises(ArgumentError, match=problem):
        loaded().export(sizes={"x_0": 9})
    with pytest.raises(ArgumentError, match=problem):
        loaded().plot(sizes={"x_0": 9})
    assert loaded(sizes={"x_0": 8}).inputs[0].shape[0] == 8
    text = str(loaded().export(sizes={"x_0": "b <= 4"}).in_avals[0].shape[0].scope)
    assert "b <= 4" in text
    assert "b >= 2" in text


def test_examples_have_sizes_within():
    assert "2×3×4" in str(loaded().summary()).replace(" ", "").replace(",", "×")
