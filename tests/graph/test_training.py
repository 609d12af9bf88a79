"""Training exported models: gradients agree with PyTorch's, parameter by parameter, and AdamW lowers the loss.

What the exporters do to parameters is undone here: a matrix is stored transposed; a tied weight is stored twice;
parameters of equal value, such as the zeros of all new biases, are stored once; a convolution takes in the batch
normalization behind it.
"""

from functools import cache
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxops.onnx

MODELS = Path(__file__).parents[1] / "models"
FILES = sorted(path.name for path in MODELS.glob("*.onnx"))
# Tables that are weights to ONNX and not to PyTorch: rotary frequencies, sinusoidal positions.
UNTRAINED = {"llama": {(2,)}, "whisper": {(12, 16)}}
# Biases of products and convolutions that the new exporter leaves out, as they are zeros.
LEFT_OUT = {
    "bert.dynamo.onnx": ("pooler.dense.bias", "classifier.bias"),
    "gpt2.dynamo.onnx": ("c_attn.bias", "c_proj.bias", "c_fc.bias"),
    "vit.dynamo.onnx": ("projection.bias", "classifier.bias"),
}


def truth(file):
    """Inputs, and PyTorch's loss and gradients by name."""
    found = np.load(MODELS / f"{file.partition('.')[0]}.npz")
    inputs = [found[key] for key in found.files if key.startswith("in:")]
    return inputs, found["loss"], {k.removeprefix("grad:"): found[k] for k in found.files if k.startswith("grad:")}


@cache
def trained(file):
    """(model, its parameters, first gradients, the losses of 20 steps of AdamW, the last parameters)."""
    model = jaxops.onnx.load(MODELS / file)
    inputs, *_ = truth(file)
    params = {name: value for name, value in model.params.items() if jnp.issubdtype(value.dtype, jnp.floating)}
    trainable = {name: model.trainable[name] for name in params}
    optimizer = optax.multi_transform({True: optax.adamw(1e-3), False: optax.set_to_zero()}, trainable)

    def loss(params):
        found = model.apply({**model.params, **params}, *inputs)
        return jnp.mean((found[0] if isinstance(found, tuple) else found) ** 2)

    @jax.jit
    def step(params, state):
        value, gradients = jax.value_and_grad(loss)(params)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            updates, state = optimizer.update(gradients, state, params)
        return value, gradients, optax.apply_updates(params, updates), state

    state, current, losses, first = optimizer.init(params), params, [], {}
    for _ in range(20):
        value, gradients, current, state = step(current, state)
        first = first or gradients
        losses.append(float(value))
    return model, *({k: np.asarray(v) for k, v in tree.items()} for tree in (params, first)), losses, current


def groups(params, gradients):
    """(names, value, gradient) of each weight; one that is stored twice, perhaps transposed, has the sum."""
    found = {}
    for name, value in params.items():
        content, turned = min(((v.tobytes(), v.shape), over) for v, over in ((value, False), (value.T, True)))
        found.setdefault(content, []).append((name, turned))
    for members in found.values():
        first, turned = members[0]
        yield (
            [name for name, _ in members],
            params[first],
            sum(gradients[name] if over == turned else gradients[name].T for name, over in members),
        )


def error(theirs, ours):
    return np.abs(theirs - ours).max() / (np.abs(theirs).max() + 1e-30)


def kind(name):
    """What a new layer has: zeros in a bias, ones in a normalization."""
    if name.endswith(".bias") or "cls_token" in name:
        return 0
    return 1 if "norm" in name.lower() or ".ln_" in name else None


def match(names, value, gradient, theirs):
    """The names of PyTorch's parameters that a weight stands for, and their gradient in its layout."""
    if (value == value.flat[0]).all() and value.flat[0] in (0, 1):
        alike = [name for name, g in theirs.items() if g.shape == value.shape and kind(name) == value.flat[0]]
        return alike, sum(theirs[name] for name in alike)
    kept = {name.removeprefix("model.") for name in names} & theirs.keys()
    layouts = [
        (name, layout)
        for name in kept or theirs
        for layout in (theirs[name], theirs[name].T)
        if layout.shape == gradient.shape
    ]
    if not layouts:
        return [], None
    name, layout = min(layouts, key=lambda found: error(found[1], gradient))
    return [name], layout


def compare(file, params, gradients, theirs):
    """Asserts that each gradient of PyTorch is that of one weight, and each weight has one, but for `UNTRAINED`."""
    scale, left, untrained = max(np.abs(g).max() for g in theirs.values()), dict(theirs), set()
    # Those with PyTorch's names first: they need no search.
    by_name = sorted(
        groups(params, gradients), key=lambda g: {n.removeprefix("model.") for n in g[0]}.isdisjoint(theirs)
    )
    for names, value, gradient in by_name:
        found, expected = match(names, value, gradient, left)
        for name in found:
            del left[name]
        if found:
            limit = 1e-3 * np.abs(expected).max() + 1e-6 * scale
            np.testing.assert_allclose(gradient, expected, rtol=0, atol=limit, err_msg=f"{names} against {found}")
        else:
            untrained.add(value.shape)
    assert not left, f"no weight has the gradients of {sorted(left)}"
    assert untrained == UNTRAINED.get(file.partition(".")[0], set())


def folded(model, params, gradients, theirs):
    """Compares convolutions that took in a normalization of scale 1 and shift 0: W' = W / σ and b' = -mean / σ.

    So the derivative by W is that by W' with another factor for each channel, that by the shift is that by b', and that
    by the scale is the sum of W' and b' times their own derivatives. Returns what is left to compare.
    """
    theirs, seen = dict(theirs), set()
    for node in model.graph.nodes:
        if node.operator.name != "Conv":
            continue
        weight, bias = node.inputs[1:]
        seen |= {weight, bias}
        ours = gradients[weight].reshape(len(params[bias]), -1)
        of_scale = (gradients[weight] * params[weight]).sum((1, 2, 3)) + gradients[bias] * params[bias]

        def distance(scale, ours=ours, of_scale=of_scale):
            return error(theirs[scale], of_scale) if theirs[scale].shape == of_scale.shape else np.inf

        scale = min((name for name in theirs if name.endswith("normalization.weight")), key=distance)
        assert distance(scale) < 1e-3, weight
        assert error(theirs.pop(scale.replace("weight", "bias")), gradients[bias]) < 1e-3, weight
        of_weight = theirs.pop(scale.replace("normalization", "convolution")).reshape(ours.shape)
        square = (ours * ours).sum(1, keepdims=True)  # 0 for a channel that no image reaches
        factor = (of_weight * ours).sum(1, keepdims=True) / np.where(square == 0, 1, square)
        assert ((factor > 0) | (square == 0)).all(), weight
        assert error(of_weight, factor * ours) < 1e-3, weight
        del theirs[scale]
    return *({k: v for k, v in tree.items() if k not in seen} for tree in (params, gradients)), theirs


@pytest.mark.grid
@pytest.mark.parametrize("file", FILES)
def test_gradients_are_those_of_pytorch(file):
    model, params, gradients, losses, _ = trained(file)
    _, loss, theirs = truth(file)
    theirs = {name: g for name, g in theirs.items() if not name.endswith(LEFT_OUT.get(file, ()))}
    np.testing.assert_allclose(losses[0], loss, rtol=1e-5)
    if file.startswith("resnet"):
        params, gradients, theirs = folded(model, params, gradients, theirs)
    compare(file, params, gradients, theirs)


@pytest.mark.parametrize("file", FILES)
def test_twenty_steps_of_adamw(file):
    *_, losses, params = trained(file)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert losses[-1] < losses[5]
    chex.assert_tree_all_finite(params)


def test_a_wrong_gradient_is_caught():
    file = "bert.script.onnx"
    _, params, gradients, *_ = trained(file)
    theirs = truth(file)[2]
    wrong = dict(gradients)
    name = "model.bert.pooler.dense.weight"
    wrong[name] = wrong[name] * 1.01
    with pytest.raises(AssertionError, match=r"bert\.pooler\.dense\.weight"):
        compare(file, params, wrong, theirs)
    with pytest.raises(AssertionError, match=r"no weight has the gradients of \['extra'\]"):
        compare(file, params, gradients, {**theirs, "extra": np.ones((7, 3), np.float32)})


def test_a_wrong_gradient_of_a_convolution_is_caught():
    model, params, gradients, *_ = trained("resnet.dynamo.onnx")
    theirs = truth("resnet.dynamo.onnx")[2]
    name = next(name for name, value in params.items() if value.ndim == 4)
    with pytest.raises(AssertionError):
        folded(model, params, {**gradients, name: gradients[name] * 1.01}, theirs)
