"""Adapters in files of the package peft, and merged into the model's own file."""

import json

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import model
from safetensors.numpy import load_file, save_file

import jaxops.onnx
from jaxops.errors import ArgumentError, ModelError, PathError, ShapeError, UnsupportedError

RNG = np.random.default_rng(0)
X, UP, DOWN = (RNG.normal(size=shape).astype(np.float32) for shape in [(3, 6), (6, 8), (4, 8)])
TEXT = """main (float[N,6] x) => (float[N,4] y) {
    a = MatMul(x, w)  b = Tanh(a)  y = Gemm<transB = 1, alpha = 0.5>(b, v)
}"""
A = {"up": RNG.normal(size=(3, 6)).astype(np.float32), "down": RNG.normal(size=(2, 8)).astype(np.float32)}
B = {"up": RNG.normal(size=(8, 3)).astype(np.float32), "down": RNG.normal(size=(4, 2)).astype(np.float32)}


def file(prefix="layer.", text=TEXT, weights=(UP, DOWN)):
    """A model of two modules, `up` and `down`."""
    proto = model(text, initializers=dict(zip("wv", weights, strict=False)), opset=21)
    for node, name in zip(proto.graph.node, ("up", "", "down"), strict=False):
        node.name = f"/{prefix}{name}/{node.op_type}".replace(".", "/")
    return proto


def write(folder, prefix="layer.", config=None, **tensors):
    """Adapters as peft writes them."""
    folder.mkdir()
    given = {f"base_model.model.{prefix}{name}.lora_A.weight": a for name, a in A.items()}
    given |= {f"base_model.model.{prefix}{name}.lora_B.weight": b for name, b in B.items()}
    save_file({**given, **tensors}, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "rank_pattern": {"down": 2}, **(config or {})}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def expected(scales=(2.0, 3.0)):
    up, down = (scale * A[name].T @ B[name].T for name, scale in zip(("up", "down"), scales, strict=True))
    b = np.tanh(X @ (UP + up))
    return 0.5 * b @ DOWN.T + b @ down


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        ({}, (2, 3)),
        ({"alpha_pattern": {"layer.down": 1}}, (2, 0.5)),
        ({"alpha_pattern": {"(d|o|w|n)+": 1, r"layer\.none": 5}}, (2, 0.5)),
        ({"alpha_pattern": {"own": 1, "layer": 5}}, (2, 3)),
        ({"use_rslora": True}, (6 / 3**0.5, 6 / 2**0.5)),
    ],
)
def test_files_of_peft(tmp_path, config, scales):
    found = jaxops.onnx.load(file(), adapters=write(tmp_path / "peft", config=config))
    np.testing.assert_allclose(found(X), expected(scales), rtol=1e-4, atol=1e-5)
    assert [name for name, is_trained in found.trainable.items() if not is_trained] == ["w", "v"]


@pytest.mark.parametrize(("in_file", "in_model"), [("", "wrapped."), ("model.", ""), ("self_attn.", "model.attn.")])
def test_paths_that_begin_differently(tmp_path, in_file, in_model):
    found = jaxops.onnx.load(file(in_model), adapters=str(write(tmp_path / "peft", in_file)))
    np.testing.assert_allclose(found(X), expected(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("names", ["file", "module"])
def test_they_are_written_and_read_again(tmp_path, names):
    found = jaxops.onnx.load(file(), adapters={"*.up": (3, 6), "*.down": (2, 6)}, names=names)
    params = dict(found.params)
    for name in A:
        params |= {
            f"layer.{name}.lora_A.weight": jnp.asarray(A[name]),
            f"layer.{name}.lora_B.weight": jnp.asarray(B[name]),
        }
    found.save_adapters(tmp_path / "mine", params)
    found.save_adapters(tmp_path / "mine", params)
    again = jaxops.onnx.load(file(), adapters=tmp_path / "mine")
    np.testing.assert_allclose(again(X), expected(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(again(X), found.with_params(params)(X))
    config = json.loads((tmp_path / "mine" / "adapter_config.json").read_text())
    ranks = {name: config["rank_pattern"].get(name, config["r"]) for name in config["target_modules"]}
    assert ranks == {"layer.up": 3, "layer.down": 2}
    assert config["lora_alpha"] == 6
    tensors = load_file(tmp_path / "mine" / "adapter_model.safetensors")
    np.testing.assert_array_equal(tensors["base_model.model.layer.up.lora_B.weight"], B["up"])


@pytest.mark.parametrize("names", ["file", "module"])
def test_save_merges_them_into_floats(tmp_path, names):
    found = jaxops.onnx.load(file(), adapters=write(tmp_path / "peft"), names=names)
    found.save(tmp_path / "merged.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "merged.onnx")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected(), rtol=1e-4, atol=1e-5)
    narrow = found.astype(jnp.bfloat16)
    narrow.save(tmp_path / "narrow.onnx")
    np.testing.assert_allclose(jaxops.onnx.load(tmp_path / "narrow.onnx")(X), expected(), rtol=0.1, atol=0.3)


QUANTIZED = """main (float[N,6] x) => (float[N,6] y) {
    f = DequantizeLinear(w, v)  y = MatMul(x, f)
}"""
SHARED = "main (float[N,6] x, int64[M] i) => (float[N,8] y, float[M,8] z) { y = MatMul(x, w)  z = Gather(w, i) }"


@pytest.mark.parametrize(
    ("text", "weights"),
    [(QUANTIZED, (RNG.integers(-9, 9, (64, 64)).astype(np.int8), np.float32(0.1))), (SHARED, (UP,))],
)
def test_what_cannot_be_merged(tmp_path, text, weights):
    """An adapter of zeros changes nothing, so that the file is written."""
    proto = file(text=text, weights=weights)
    for node in proto.graph.node:
        node.name = f"/up/{node.op_type}"
    found = jaxops.onnx.load(proto, adapters={"up": 2})
    found.save(tmp_path / "same.onnx")
    params = {name: x + 1 if "lora_B" in name else x for name, x in found.params.items()}
    with pytest.raises(UnsupportedError, match=r"of 'up' cannot be merged.*as integers, or other(.|\n)*save_adap"):
        found.save(tmp_path / "merged.onnx", params)
    assert not (tmp_path / "merged.onnx").exists()


def test_a_model_without_adapters_has_none_to_save(tmp_path):
    with pytest.raises(UnsupportedError, match=r"save_adapters: the model has no adapters; load it with"):
        jaxops.onnx.load(file()).save_adapters(tmp_path / "mine")
    found = jaxops.onnx.load(file(), adapters={"*": 2})
    with pytest.raises(PathError, match=r"save_adapters: the folder .* cannot be made: No such file"):
        found.save_adapters(tmp_path / "none" / "mine")


KEY = "base_model.model.layer."


@pytest.mark.parametrize(
    ("prefix", "config", "tensors", "error", "match"),
    [
        (
            "other.",
            {},
            {},
            ArgumentError,
            "belongs to another model: it adapts 'other.down', but this model has no such",
        ),
        ("layer.", {}, {f"{KEY}up.lora_A.weight": A["down"][:, :7]}, ModelError, "for 'layer.up'; it must have both"),
        (
            "layer.",
            {},
            {f"{KEY}up.lora_A.weight": A["up"][:, :5]},
            ShapeError,
            "for 'layer.up', but the module.* 6 inputs",
        ),
        ("layer.", {}, {f"{KEY}on.lora_A.weight": A["up"]}, ModelError, r"has lora_A \(3, 6\) for 'layer.on'; it must"),
        ("layer.", {}, {f"{KEY}up.bias": UP[0]}, UnsupportedError, "has 'base_model.*bias' of shape .*only lora_A"),
        ("layer.", {"peft_type": "IA3"}, {}, UnsupportedError, "has the peft_type 'IA3'; only 'LORA'"),
        ("layer.", {"use_dora": True}, {}, UnsupportedError, "has use_dora=True, which is not LoRA"),
        ("layer.", {"lora_alpha": "x"}, {}, ModelError, "has no usable lora_alpha or alpha_pattern"),
        ("layer.", {"alpha_pattern": {"(": 2}}, {}, ModelError, "has no usable lora_alpha or alpha_pattern"),
    ],
)
def test_files_that_do_not_fit(tmp_path, prefix, config, tensors, error, match):
    folder = write(tmp_path / "peft", prefix, config, **tensors)
    with pytest.raises(error, match=match):
        jaxops.onnx.load(file(), adapters=folder)


def test_files_that_are_missing_or_damaged(tmp_path):
    with pytest.raises(PathError, match=r"there is no .*adapter_config.json'; give a folder that peft or jaxops saved"):
        jaxops.onnx.load(file(), adapters=tmp_path / "none")
    folder = write(tmp_path / "peft")
    (folder / "adapter_model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(ModelError, match=r"adapter_model.safetensors' is damaged"):
        jaxops.onnx.load(file(), adapters=folder)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(PathError, match=r"there is no .*; it has adapter_model.bin: save it again as safetensors"):
        jaxops.onnx.load(file(), adapters=folder)
    save_file({}, folder / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=r"has no adapters"):
        jaxops.onnx.load(file(), adapters=folder)
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"adapter_config.json' is damaged"):
        jaxops.onnx.load(file(), adapters=folder)


def test_copies_of_the_own_weights_are_left_out(tmp_path):
    """peft adds those of an adapted `lm_head`."""
    copies = {f"{KEY}up.base_layer.weight": UP.T.copy(), f"{KEY}up.base_layer.bias": UP[0]}
    found = jaxops.onnx.load(file(), adapters=write(tmp_path / "tuned", **copies))
    np.testing.assert_allclose(found(X), expected(), atol=1e-5)
    others = {f"{KEY}other.base_layer.weight": UP.T.copy()}
    with pytest.raises(UnsupportedError, match=r"has 'base_model.*other.base_layer.weight' of shape .*only lora_A"):
        jaxops.onnx.load(file(), adapters=write(tmp_path / "other", **others))
