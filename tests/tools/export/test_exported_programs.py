"""The arguments and the name of an exported program."""

import logging
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxops.onnx
from jaxops.compiler.run.specialized import program_name

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


def digits():
    return jaxops.onnx.load(NOTEBOOKS / "digits.onnx"), np.load(NOTEBOOKS / "seven.npy")


def test_parameters_inside():
    model, x = digits()
    tuned = model.with_params({name: 2 * value for name, value in model.params.items()})
    for one in (model, tuned):
        program = jax.export.deserialize(one.export(params=True).serialize())
        assert [str(aval.shape) for aval in program.in_avals] == ["(batch, 1, 8, 8)"]
        images = np.concatenate([x, x[:, :, ::-1], x * np.nan])
        np.testing.assert_allclose(program.call(images), one(images), rtol=1e-5, atol=1e-7)


def test_the_flat_arguments_are_sorted_parameters_then_inputs():
    model, _ = digits()
    program = model.export()
    shapes = [aval.shape for aval in program.in_avals]
    assert shapes[:-1] == [model.params[name].shape for name in sorted(model.params)]
    assert program.fun_name == "main_graph"


def test_a_program_has_the_name_of_its_model(caplog):
    model, x = digits()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        model(x)
    assert "Compiling jit(main_graph)" in caplog.text


@pytest.mark.parametrize("name", ["", "a b/c:0", 'x"\n#', "é" * 300])
def test_any_name_of_a_model(name):
    assert program_name(name).isidentifier()
    assert len(program_name(name)) <= 100
