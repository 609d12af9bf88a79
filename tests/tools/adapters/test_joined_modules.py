"""Adapters of peft for `qkv_proj` and `gate_up_proj` of Phi-3, where a file has the products of some of them apart."""

import json

import numpy as np
import onnx
import pytest
from language_models import GROUPS, HEAD, HEADS, HIDDEN, WIDTH, language_model
from safetensors.numpy import load_file, save_file

import jaxops.onnx
from jaxops.errors import ShapeError
from jaxops.tools.generate.generation_defaults import model_type

RNG = np.random.default_rng(0)
LAYER = "base_model.model.model.layers.0."
# The outputs and inputs of the modules of transformers.
SIZES = {
    "self_attn.qkv_proj": ((HEADS + 2 * GROUPS) * HEAD, WIDTH),
    "self_attn.o_proj": (WIDTH, HEADS * HEAD),
    "mlp.gate_up_proj": (2 * HIDDEN, WIDTH),
    "mlp.down_proj": (WIDTH, HIDDEN),
}
PARTS = {
    "mlp.gate_up_proj": {"mlp.gate_proj": HIDDEN, "mlp.up_proj": HIDDEN},
    "self_attn.qkv_proj": {"attn.q_proj": HEADS * HEAD, "attn.k_proj": GROUPS * HEAD, "attn.v_proj": GROUPS * HEAD},
}


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def write(folder, sizes=SIZES, rank=2):
    folder.mkdir()
    tensors = {}
    for name, (outputs, inputs) in sizes.items():
        tensors[f"{LAYER}{name}.lora_A.weight"] = floats(rank, inputs)
        tensors[f"{LAYER}{name}.lora_B.weight"] = floats(outputs, rank)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "lora_alpha": 4, "r": rank}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return tensors


def changes(found, params=None):
    """What each adapter adds to its weight, (outputs, inputs), by module."""
    params = found.params if params is None else params
    return {
        x.module.removeprefix("model.layers.0."): x.alpha / x.rank * np.asarray(params[x.b]) @ np.asarray(params[x.a])
        for x in found.graph.adapters
    }


def of_peft(folder):
    """The same of a file, by module of transformers."""
    tensors = load_file(folder / "adapter_model.safetensors")
    config = json.loads((folder / "adapter_config.json").read_text())
    found = {}
    for name in {name.removeprefix(LAYER).rpartition(".lora")[0] for name in tensors}:
        rank = config["rank_pattern"].get(f"model.layers.0.{name}", config["r"])
        alpha = config["alpha_pattern"].get(f"model.layers.0.{name}", config["lora_alpha"])
        a, b = (tensors[f"{LAYER}{name}.lora_{which}.weight"] for which in "AB")
        assert a.shape[0] == b.shape[1] == rank
        found[name] = alpha / rank * b @ a
    return found


def apart(whole, parts):
    """The rows of each module that a file has in place of one of transformers."""
    ends = np.cumsum(list(parts.values()))
    return dict(zip(parts, np.split(whole, ends[:-1]), strict=True))


@pytest.mark.parametrize("norms", [False, True])
def test_they_are_read_and_saved_by_the_same_names(tmp_path, norms):
    """With norms, the file has a product each for queries, keys and values, too."""
    tensors = write(tmp_path / "peft")
    found = jaxops.onnx.load(language_model((0,), norms=norms), adapters=tmp_path / "peft")
    expected = {}
    for name in SIZES:
        whole = 2.0 * tensors[f"{LAYER}{name}.lora_B.weight"] @ tensors[f"{LAYER}{name}.lora_A.weight"]
        is_apart = name in PARTS and (norms or name == "mlp.gate_up_proj")
        expected |= apart(whole, PARTS[name]) if is_apart else {name.replace("self_attn", "attn"): whole}
    got = changes(found)
    assert got.keys() == expected.keys()
    for name, value in got.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
    found.save_adapters(tmp_path / "again")
    after = load_file(tmp_path / "again" / "adapter_model.safetensors")
    assert after.keys() == tensors.keys()
    for name, x in tensors.items():
        np.testing.assert_array_equal(after[name], x)


def test_trained_ones_are_joined_again(tmp_path):
    """Each part has its own A by then, so the joined one has the sum of their ranks."""
    write(tmp_path / "peft")
    found = jaxops.onnx.load(language_model((0,), norms=True), adapters=tmp_path / "peft")
    params = {name: floats(*x.shape) if "lora" in name else x for name, x in found.params.items()}
    found.save_adapters(tmp_path / "mine", params)
    saved, trained = of_peft(tmp_path / "mine"), changes(found, params)
    assert saved.keys() == SIZES.keys()
    for name, parts in PARTS.items():
        for part, rows in apart(saved[name], parts).items():
            np.testing.assert_allclose(rows, trained[part], rtol=1e-5, atol=1e-5, err_msg=part)
    config = json.loads((tmp_path / "mine" / "adapter_config.json").read_text())
    assert config["rank_pattern"] == {"model.layers.0.self_attn.qkv_proj": 6, "model.layers.0.mlp.gate_up_proj": 4}
    again = jaxops.onnx.load(language_model((0,), norms=True), adapters=tmp_path / "mine")
    for name, value in changes(again).items():
        np.testing.assert_allclose(value, trained[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_sizes_that_do_not_fit(tmp_path):
    write(tmp_path / "peft", {"mlp.gate_up_proj": (HIDDEN, WIDTH)})
    with pytest.raises(ShapeError, match=r"gate_up_proj', but the module of this model has 32 inputs and 128 outputs"):
        jaxops.onnx.load(language_model((0,)), adapters=tmp_path / "peft")


@pytest.mark.parametrize("kind", ["phi3", "llama", ""])
def test_new_ones_are_saved_by_the_names_of_the_model(tmp_path, kind):
    """The file of onnxruntime-genai's builder says which model it is; the products have the same names in all."""
    if kind:
        (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"type": kind}}))
    onnx.save(language_model((0,)), tmp_path / "model.onnx")
    found = jaxops.onnx.load(tmp_path / "model.onnx", adapters={"*.attn.*": 2, "*.mlp.*": 2})
    params = {name: floats(*x.shape) if "lora" in name else x for name, x in found.params.items()}
    found.save_adapters(tmp_path / "mine", params)
    saved, trained = of_peft(tmp_path / "mine"), changes(found, params)
    if kind == "phi3":
        assert saved.keys() == SIZES.keys()
        np.testing.assert_allclose(saved["self_attn.qkv_proj"], trained["attn.qkv_proj"], rtol=1e-5, atol=1e-5)
        for part, rows in apart(saved["mlp.gate_up_proj"], PARTS["mlp.gate_up_proj"]).items():
            np.testing.assert_allclose(rows, trained[part], rtol=1e-5, atol=1e-5, err_msg=part)
    else:
        assert {name.partition(".")[2] for name in saved} == {
            f"{x}_proj" for x in ("q", "k", "v", "o", "gate", "up", "down")
        }
    again = jaxops.onnx.load(tmp_path / "model.onnx", adapters=tmp_path / "mine")
    for name, value in changes(again).items():
        np.testing.assert_allclose(value, trained[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        ("phi", {"self_attn.dense", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}),
        ("lfm2", {"self_attn.out_proj", *(f"feed_forward.w{k}" for k in (1, 2, 3))}),
    ],
)
def test_modules_have_the_names_of_transformers(tmp_path, kind, called):
    """The builder gives its own names to these."""
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"type": kind}}))
    onnx.save(language_model((0,)), tmp_path / "model.onnx")
    found = jaxops.onnx.load(tmp_path / "model.onnx", adapters={"*.o_proj": 2, "*.mlp.*": 2})
    params = {name: floats(*x.shape) if "lora" in name else x for name, x in found.params.items()}
    found.save_adapters(tmp_path / "mine", params)
    assert of_peft(tmp_path / "mine").keys() == called
    again = jaxops.onnx.load(tmp_path / "model.onnx", adapters=tmp_path / "mine")
    for name, value in changes(again).items():
        np.testing.assert_allclose(value, changes(found, params)[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("text", ["{", "[]", '{"model": 3}', '{"model": {}}'])
def test_a_damaged_file_says_nothing(tmp_path, text):
    (tmp_path / "genai_config.json").write_text(text)
    assert model_type(tmp_path) == model_type(tmp_path / "none") == model_type(None) == ""
