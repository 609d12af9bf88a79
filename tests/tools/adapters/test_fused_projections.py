"""Adapters of peft for queries, keys and values in a file whose product makes all three, as the builder writes them."""

import json

import numpy as np
import onnx
import pytest
from language_models import GROUPS, HEAD, HEADS, WIDTH, language_model
from safetensors.numpy import load_file, save_file

import jaxops.onnx
from jaxops.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
SIZES = {"q": HEADS * HEAD, "k": GROUPS * HEAD, "v": GROUPS * HEAD}
STARTS = {"q": 0, "k": HEADS * HEAD, "v": (HEADS + GROUPS) * HEAD}
PREFIX = "base_model.model.model.layers.0.self_attn."
LAYER = "model.layers.0.attn.qkv_proj"


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def values(parts, rank=2):
    return {part: (floats(rank, WIDTH), floats(SIZES[part], rank)) for part in parts}


def write(folder, given, **config):
    folder.mkdir()
    tensors = {}
    for part, (a, b) in given.items():
        tensors |= {f"{PREFIX}{part}_proj.lora_A.weight": a, f"{PREFIX}{part}_proj.lora_B.weight": b}
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 4, **config}))
    return folder


def change(found, params=None):
    """What the adapter adds to the weight of the product, (outputs, inputs)."""
    (adapter,) = found.graph.adapters
    params = found.params if params is None else params
    return adapter.alpha / adapter.rank * np.asarray(params[adapter.b]) @ np.asarray(params[adapter.a])


def expected(given, scales):
    total = np.zeros((sum(SIZES.values()), WIDTH), np.float32)
    for (part, (a, b)), scale in zip(given.items(), scales, strict=True):
        total[STARTS[part] : STARTS[part] + SIZES[part]] = scale * b @ a
    return total


def load(folder, **options):
    return jaxops.onnx.load(language_model((0,), **options), adapters=folder)


@pytest.mark.parametrize("four_bits", [False, True])
@pytest.mark.parametrize("parts", ["qkv", "qv", "k"])
def test_they_add_to_their_outputs(tmp_path, parts, four_bits):
    given = values(parts)
    found = load(write(tmp_path / "peft", given), four_bits=four_bits)
    assert [adapter.module for adapter in found.graph.adapters] == [LAYER]
    np.testing.assert_allclose(change(found), expected(given, [2.0] * len(parts)), rtol=1e-5, atol=1e-5)
    found.save_adapters(tmp_path / "again")
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("peft", "again"))
    assert before.keys() == after.keys()
    for name, x in before.items():
        np.testing.assert_array_equal(after[name], x)
    config = json.loads((tmp_path / "again" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["rank_pattern"]) == (2, 4, {})


def test_ranks_and_factors_may_differ(tmp_path):
    given = {**values("q", 1), **values("k", 3), **values("v", 2)}
    config = {"alpha_pattern": {"k_proj": 0, "v_proj": 7}}
    found = load(write(tmp_path / "peft", given, **config))
    np.testing.assert_allclose(change(found), expected(given, [4.0, 0.0, 3.5]), rtol=1e-5, atol=1e-5)
    zero_first = load(write(tmp_path / "zero", given, alpha_pattern={"q_proj": 0, "k_proj": 3, "v_proj": 0}))
    np.testing.assert_allclose(change(zero_first), expected(given, [0.0, 1.0, 0.0]), rtol=1e-5, atol=1e-5)


def test_the_model_computes_with_them(tmp_path):
    """As the model with these weights."""
    given = values("qkv")
    file, plain = language_model((0,)), jaxops.onnx.load(language_model((0,)))
    name = f"{LAYER}.MatMul.weight"
    changed = {**plain.params, name: plain.params[name] + expected(given, [2.0] * 3).T}
    found = jaxops.onnx.load(file, adapters=write(tmp_path / "peft", given))
    tokens = np.int64([[1, 2, 3, 4]])
    inputs = {v.name: np.zeros((1, GROUPS, 0, HEAD), v.dtype) for v in found.inputs if len(v.shape) == 4}
    inputs |= {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    np.testing.assert_allclose(found(inputs)[0], plain.apply(changed, inputs)[0], rtol=1e-4, atol=1e-3)
    found.save(tmp_path / "merged.onnx")
    merged = jaxops.onnx.load(tmp_path / "merged.onnx")
    np.testing.assert_allclose(merged(inputs)[0], plain.apply(changed, inputs)[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("adapters", ["file", {"*.qkv_proj": 2}])
def test_they_are_saved_without_loss_when_trained(tmp_path, adapters):
    """Training fills all of B; then each of the three keeps the rows of A that it reads. Read again, they share A."""
    found = load(write(tmp_path / "peft", values("qkv")) if adapters == "file" else adapters)
    (adapter,) = found.graph.adapters
    params = {**found.params, adapter.b: floats(*found.params[adapter.b].shape)}
    found.save_adapters(tmp_path / "mine", params)
    names = {name.split(".")[-4] for name in load_file(tmp_path / "mine" / "adapter_model.safetensors")}
    assert names == {"self_attn"}
    again = load(tmp_path / "mine")
    assert again.graph.adapters[0].rank == adapter.rank
    np.testing.assert_allclose(change(again), change(found, params), rtol=1e-5, atol=1e-5)


def test_new_ones_are_saved_though_they_add_nothing(tmp_path):
    load({"*.qkv_proj": 2}).save_adapters(tmp_path / "mine")
    assert len(load_file(tmp_path / "mine" / "adapter_model.safetensors")) == 6
    assert not change(load(tmp_path / "mine")).any()


@pytest.mark.parametrize("attention", ["self_attn", "attn"])
def test_attentions_are_called_as_in_transformers(tmp_path, attention):
    """Files that say `attn`, as the builder does, are read as well; they keep their names."""
    found = load({"*.attn.*": 2, "*.up_proj": 2})
    params = {name: floats(*x.shape) if "lora" in name else x for name, x in found.params.items()}
    found.save_adapters(tmp_path / "mine", params)
    file = tmp_path / "mine" / "adapter_model.safetensors"
    saved = load_file(file)
    leaves = [*(f"self_attn.{part}_proj" for part in "qkvo"), "mlp.up_proj"]
    assert {name.rpartition(".lora")[0] for name in saved} == {f"base_model.model.model.layers.0.{x}" for x in leaves}
    given = {name.replace("self_attn", attention): x for name, x in saved.items()}
    save_file(given, file)
    again = load(tmp_path / "mine")
    by_module = {adapter.module: adapter for adapter in again.graph.adapters}
    assert len(by_module) == len(found.graph.adapters)
    for before in found.graph.adapters:
        after = by_module[before.module]
        total = again.params[after.b] @ again.params[after.a] * (after.alpha / after.rank)
        np.testing.assert_allclose(total, params[before.b] @ params[before.a], rtol=1e-5, atol=1e-5)
    again.save_adapters(tmp_path / "again")
    assert load_file(tmp_path / "again" / "adapter_model.safetensors").keys() == given.keys()


@pytest.mark.parametrize("path", ["model.blocks.0.attn", "model.layers.0.attn"])
def test_other_modules_called_attn_keep_their_names(tmp_path, path):
    """Nobody but the builder puts a GroupQueryAttention into `model.layers.0.attn`."""
    content = language_model((0,)).SerializeToString()
    file = onnx.load_from_string(content.replace(b"model.layers.0.attn", path.encode()))  # of the same length
    for node in file.graph.node:
        if node.op_type == "GroupQueryAttention" and path == "model.layers.0.attn":
            node.name = "fused"
    jaxops.onnx.load(file, adapters={"*.attn.*": 2}).save_adapters(tmp_path / "mine")
    names = load_file(tmp_path / "mine" / "adapter_model.safetensors")
    assert {name.rpartition(".lora")[0] for name in names} == {f"base_model.model.{path}.{x}_proj" for x in "qkvo"}


def test_files_that_do_not_fit(tmp_path):
    given = {"k": (floats(2, WIDTH), floats(SIZES["q"], 2))}
    with pytest.raises(
        ShapeError, match=r"lora_B \(64, 2\) for '.*k_proj', but the module .* 32 inputs and 32 outputs"
    ):
        load(write(tmp_path / "wide", given))
    file = language_model((0,))
    (attention,) = [node for node in file.graph.node if node.op_type == "GroupQueryAttention"]
    attention.input[0] = "sliced"
    file.graph.node.insert(list(file.graph.node).index(attention), type(attention)(
        op_type="Identity", input=[f"/{LAYER}/MatMul"], output=["sliced"]
    ))  # fmt: skip
    with pytest.raises(ArgumentError, match=r"it adapts '.*[qkv]_proj', but this model has no such module"):
        jaxops.onnx.load(file, adapters=write(tmp_path / "peft", values("qkv")))


@pytest.mark.parametrize("four_bits", [False, True])
def test_a_split_may_take_them_apart(tmp_path, four_bits):
    """Queries and keys are normalized in between, as in Qwen3."""
    given = values("qkv")
    found = load(write(tmp_path / "peft", given), norms="joined", four_bits=four_bits)
    np.testing.assert_allclose(change(found), expected(given, (2, 2, 2)), atol=1e-5)
    load({"*.qkv_proj": 2}, norms="joined").save_adapters(tmp_path / "mine")
    names = load_file(tmp_path / "mine" / "adapter_model.safetensors")
    assert {name.rpartition(".lora")[0] for name in names} == {f"{PREFIX}{part}_proj" for part in "qkv"}
