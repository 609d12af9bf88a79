"""Masks of pairs, for each new token a number for each token that it may see, as PyTorch's attention takes them."""

import numpy as np
import pytest
from decoder_graphs import ATTENDED, GROWN, HEADS_APART, PROJECTED, SIZES, decoder, renamed
from decoders import agree, fixed, growing

import jaxops.onnx
from jaxops.errors import SignatureError

PROMPT = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
NAMES = {"past_k": "present_k", "past_v": "present_v"}
SHAPES = ("S, T", "N, S, T", "N, 1, S, T", "1, 1, S, T", "N, 2, S, T", "N, 1, 1, T")
CASES = [("float", shape) for shape in SHAPES]
CASES += [(kind, shape) for kind in ("bool", "int64", "float16") for shape in ("S, T", "N, 1, S, T")]


def graph(kind, shape, more=""):
    """A decoder that takes its mask; for one row for all tokens, it leaves out later ones itself."""
    body = (SIZES + "at = Gather(positions, places)").replace("x = ", "e = ") + " x2 = Add(x, at) "
    body += PROJECTED.replace("(x,", "(x2,") + HEADS_APART + GROWN
    wide = "wide = Unsqueeze(given, axes_1)" if shape.count(",") == 2 else "wide = Identity(given)"
    if kind in ("float", "float16"):
        body += f"given = Cast<to = 1>(attention_mask) {wide} "
        body += "causal = LessOrEqual(columns, rows) own = Where(causal, nothing, never) mask = Add(own, wide) "
        body = body.replace("Add(own, wide)", "Identity(wide)") if ", S, T" in f", {shape}" else body
        attended = ATTENDED.replace("Where(mask, scaled, never)", "Add(scaled, mask)")
    else:
        body += f"given = Cast<to = 9>(attention_mask) {wide} causal = LessOrEqual(columns, rows) "
        body += "mask = Identity(wide) " if ", S, T" in f", {shape}" else "mask = And(causal, wide) "
        attended = ATTENDED
    return decoder(body + attended, f"{kind}[{shape}] attention_mask{more}")


def mask_for(kind, shape):
    def others(batch, past, new):
        total = past + new
        seen = np.arange(total) <= past + np.arange(new)[:, None]
        sizes = [{"N": batch, "S": new, "T": total}.get(size) or int(size) for size in shape.split(", ")]
        seen = np.broadcast_to(seen[-1:] if sizes[-2] == 1 else seen, sizes)
        dtype = {"float": np.float32}.get(kind, kind)
        given = np.where(seen, 0, -60000) if "float" in kind else seen
        return {"attention_mask": np.ascontiguousarray(given.astype(dtype))}

    return others


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_the_step_fills_the_mask(kind, shape):
    file, past = graph(kind, shape), {name: np.zeros((2, 2, 0, 8), np.float32) for name in NAMES}
    expected = growing(file, NAMES, {"input_ids": PROMPT, **past}, 8, others=mask_for(kind, shape))
    model = jaxops.onnx.load(file)
    step = jaxops.onnx.decoder(model, length=16)
    agree(fixed(step, model.params, step.init(2), PROMPT, 8), expected, 3e-5)


@pytest.mark.parametrize("shape", ["S, T", "N, 1, S, T"])
def test_prompts_of_all_lengths_run_together(shape):
    model = jaxops.onnx.load(graph("float", shape))
    prompts = [[1, 2, 3, 4, 9], [7], [30, 2, 11]]
    found = jaxops.onnx.generate(model, prompts, max_tokens=6).tokens
    step, rows = jaxops.onnx.decoder(model, length=16), np.array([[1, 2, 3, 4, 9], [0, 0, 30, 2, 11]])
    _, logits = step(model.params, step.init(2), rows, attention_mask=np.array([[1] * 5, [0, 0, 1, 1, 1]]))
    assert logits[:, -1].argmax(-1).tolist() == [found[0, 0, 0], found[2, 0, 0]]
    for prompt, (tokens,) in zip(prompts, found.tolist(), strict=True):
        state, written = step.init(), []
        for token in prompt:
            state, logits = step(model.params, state, np.array([token]))
        while len(written) < 6:
            written.append(int(logits[0].argmax()))
            state, logits = step(model.params, state, np.array(written[-1:]))
        assert tokens == written


def test_two_masks_of_pairs_are_a_choice():
    """One may stand for a window, so neither is filled."""
    model = jaxops.onnx.load(graph("float", "N, 1, S, T", ", float[N, 1, S, T] sliding_mask"))
    step = jaxops.onnx.decoder(model, length=16)
    with pytest.raises(SignatureError, match="'attention_mask' is missing"):
        step(model.params, step.init(), PROMPT[:1])
    step = jaxops.onnx.decoder(
        jaxops.onnx.load(renamed(graph("float", "N, 1, S, T"), attention_mask="a.bias")), length=16
    )
    with pytest.raises(
        SignatureError, match=r"'a.bias' is missing: .*\n.*by name at .* \*\*{'a.bias': …}\), or to gen"
    ):
        step(model.params, step.init(), PROMPT[:1])
