"""A model and a decoder at a glance: a screen is enough, however many inputs, outputs, cuts and characters."""

from pathlib import Path

import jax
import numpy as np
import pytest
from graphs import build, info, node, tensor
from onnx import TensorProto

from jaxops.onnx import decoder, load

MODELS = Path(__file__).resolve().parents[2] / "models"


def language_model(layers, first=""):
    """A model with the inputs and outputs of a decoder; `first` begins the names of sizes that exporters number."""
    sides = [f"{layer}.{side}" for layer in range(layers) for side in ("key", "value")]
    past = [info(f"past_key_values.{side}", ["batch", 8, "past", 64]) for side in sides]
    present = [info(f"present.{s}", ["batch", 8, f"{first}{k}" if first else "total", 64]) for k, s in enumerate(sides)]
    nodes = [node("Concat", [f"past_key_values.{s}", "new"], [f"present.{s}"], axis=2) for s in sides]
    nodes.append(node("Cast", ["input_ids"], ["logits"], to=TensorProto.FLOAT))
    return build(
        *nodes,
        inputs=[*past, info("input_ids", ["batch", "sequence"], TensorProto.INT64)],
        outputs=[info("logits", ["batch", "sequence"]), *present],
        initializers=[tensor(np.ones((1, 8, 1, 64), np.float32), "new")],
    )


@pytest.mark.parametrize("first", ["", "unk__"])
def test_caches_fold_and_other_inputs_stay(first):
    model = load(language_model(32, first))
    total = "unk__0" if first else "total"
    assert repr(model).splitlines() == [
        "model g · opset ai.onnx 18",
        "  65 nodes, 1 parameter with 512 elements",
        "  in   past_key_values.0.key … (31 more): float32[batch, 8, past, 64]",
        "  in   past_key_values.0.value … (31 more): float32[batch, 8, past, 64]",
        "  in   input_ids: int64[batch, sequence]",
        "  out  logits: float32[batch, sequence]",
        f"  out  present.0.key … (31 more): float32[batch, 8, {total}, 64]",
        f"  out  present.0.value … (31 more): float32[batch, 8, {total.replace('0', '1')}, 64]",
    ]
    assert str(model) == f"{model!r}\n  nodes: model.show()"
    assert len(model.show().splitlines()) == 2 + 65 + 65 + 65


def test_sizes_that_differ_do_not_fold():
    sizes = [4, 4, 8, 8, 8, 8, 8, 8, 8]
    inputs = [info(f"level_{k}", ["batch", size]) for k, size in enumerate(sizes)]
    model = load(build(node("Relu", ["level_0"], ["y"]), inputs=inputs, outputs=[info("y", ["batch", 4])]))
    assert repr(model).splitlines()[2:] == [
        "  in   level_0 … (1 more): float32[batch, 4]",
        "  in   level_2 … (6 more): float32[batch, 8]",
        "  out  y: float32[batch, 4]",
    ]


@pytest.mark.parametrize("count", [9, 500])
def test_a_screen_is_enough_for_names_that_do_not_fold(count):
    names = [chr(0x4E00 + k) * 200 for k in range(count)]
    nodes = [node("Relu", [name], [f"{name}y"]) for name in names]
    values = [[info(f"{name}{end}", ["n"]) for name in names] for end in ("", "y")]
    text = repr(load(build(*nodes, inputs=values[0], outputs=values[1])))
    assert len(text.splitlines()) == 2 + 8 + 8
    assert max(map(len, text.splitlines())) == 100
    assert f"  in   … {count - 7} more" in text.splitlines()


def test_eight_inputs_are_listed():
    inputs = [info(f"x{k}", ["batch", 100]) for k in range(8)]
    text = repr(load(build(node("Relu", ["x0"], ["y"]), inputs=inputs)))
    assert [line for line in text.splitlines() if "  in " in line] == [
        f"  in   x{k}: float32[batch, 100]" for k in range(8)
    ]


def test_cuts_and_static_inputs_are_said():
    nodes = [node("NonZero", [f"x{k}"], [f"y{k}"], node_name=f"find_{k}") for k in range(12)]
    nodes.append(node("Reshape", ["x0", "shape"], ["z"]))
    inputs = [info(f"x{k}", ["n"]) for k in range(12)] + [info("shape", [2], TensorProto.INT64)]
    outputs = [info(f"y{k}", [1, "m"], TensorProto.INT64) for k in range(12)]
    text = repr(load(build(*nodes, inputs=inputs, outputs=[*outputs, info("z", ["a", "b"])])))
    assert text.splitlines()[2:] == [
        "  in   x0 … (11 more): float32[n]",
        "  in   shape: int64[2]  static: Reshape 'z' `shape`",
        "  out  y0 … (11 more): int64[1, m]",
        "  out  z: float32[a, b]",
        "  cut  before 'find_0' … (11 more): NonZero: the size of the result depends on `X`",
    ]


def test_a_decoder():
    step = decoder(load(MODELS / "gpt2.dynamo.onnx"), length=64)
    assert repr(step).splitlines() == [
        "decoder of main_graph · 64 tokens · caches of 16 KiB for each row",
        "  in   input_ids: int64[batch, sequence]  the tokens",
        "  in   attention_mask: int64[batch, total_sequence]  filled",
        "  past past_key_values.0.key: float32[batch, 2, past_sequence, 8]  → present.0.key",
        "  past past_key_values.0.value: float32[batch, 2, past_sequence, 8]  → present.0.value",
        "  past past_key_values.1.key: float32[batch, 2, past_sequence, 8]  → present.1.key",
        "  past past_key_values.1.value: float32[batch, 2, past_sequence, 8]  → present.1.value",
        "  out  logits: float32[batch, sequence, 40]",
    ]


def test_a_decoder_of_many_layers_folds_and_says_what_to_give():
    proto = language_model(40)
    proto.graph.input.append(info("encoder_hidden_states", ["batch", "m", 8]))
    assert repr(decoder(load(proto))).splitlines()[1:] == [
        "  in   input_ids: int64[batch, sequence]  the tokens",
        "  in   encoder_hidden_states: float32[batch, m, 8]  to be given at each step",
        "  past past_key_values.0.key … (39 more): float32[batch, 8, past, 64]  → present.0.key",
        "  past past_key_values.0.value … (39 more): float32[batch, 8, past, 64]  → present.0.value",
        "  out  logits: float32[batch, sequence]",
    ]


def test_the_structure_of_a_model_shows_it_too():
    model = load(language_model(32))
    text = str(jax.tree.structure(model))
    assert "(31 more)" in text
    assert len(text.splitlines()) < 25
