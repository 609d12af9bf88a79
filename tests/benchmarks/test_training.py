"""The training step that is measured is one: the loss falls, and is the same by both of jaxops' programs."""

from pathlib import Path

import numpy as np
import pytest
import training

DIGITS = Path(__file__).parents[2] / "notebooks" / "digits.onnx"


def test_a_step_lowers_the_loss() -> None:
    step = training.by_jaxops(DIGITS)
    losses = [step() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]


def test_both_programs_take_the_same_steps() -> None:
    apply, pair = training.by_jaxops(DIGITS), training.by_jaxops(DIGITS, transformable=True)
    np.testing.assert_allclose([apply() for _ in range(3)], [pair() for _ in range(3)], rtol=1e-5)


def test_ratios_are_to_the_first_engine(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"torch": {"start": 1, "step": 100, "peak": 1}, "jaxops": {"start": 1, "step": 150, "peak": 1}}
    training.show({"resnet50": row}, ["torch", "jaxops"])
    assert "1.50" in capsys.readouterr().out
