"""Language models as onnxruntime-genai writes them: calls, generation and gradients, beside onnxruntime."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoders import agree, fixed, growing, session
from language_models import GROUPS, HEAD, VOCABULARY, language_model

import jaxops.onnx
from jaxops.errors import ModelError, ShapeError

PROMPT = np.array([[1, 2, 3, 4, 9, 30, 7], [5, 6, 7, 8, 40, 2, 11]])
MODELS = {
    "all tokens": {"windows": (0,)},
    "a window in one layer": {"windows": (4, 0), "softcap": 5.0},
    "a window in each layer": {"windows": (5,), "sinks": True},
    "4 bits": {"windows": (4,), "four_bits": True},
    "norms": {"windows": (0,), "norms": True},
    "float16": {"windows": (4,), "half": True},
}


def masks(batch, past, new):
    return {"attention_mask": np.ones((batch, past + new), np.int64)}


def nothing(proto, windows, batch, more=0):
    """Empty caches; sliding ones have the rows of their window, and `more`."""
    kind = np.float16 if any(w.data_type == 10 for w in proto.graph.initializer) else np.float32
    sizes = {f"past_key_values.{k}.{part}": w and w + more for k, w in enumerate(windows) for part in ("key", "value")}
    return {name: np.zeros((batch, GROUPS, rows, HEAD), kind) for name, rows in sizes.items()}


@pytest.mark.parametrize(("name", "batch"), [(name, 1 if name in ("all tokens", "float16") else 2) for name in MODELS])
def test_generation(name, batch):
    options = MODELS[name]
    proto, windows = language_model(**options), options["windows"]
    model = jaxops.onnx.load(proto)
    step = jaxops.onnx.decoder(model, length=24)
    state, prompt = step.init(batch), PROMPT[:batch]
    for cache in step.caches:
        rows = windows[int(cache.past.name.split(".")[1])]
        assert state.caches[cache.past.name].shape == (batch, GROUPS, rows or 24, HEAD)
    caches = {c.past.name: c.present.name for c in step.caches}
    feeds = {"input_ids": prompt, **nothing(proto, windows, batch, more=3)}
    expected = growing(proto, caches, feeds, 14, others=masks)
    agree(fixed(step, model.params, state, prompt, 14), expected, 1e-2 if options.get("half") else 3e-5)


@pytest.mark.optimized
@pytest.mark.parametrize("batch", [1, 3])
def test_two_programs_that_write_caches_in_place(batch):
    """A donated cache is never copied nor cleared: a token writes its own row."""
    proto = language_model()
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(proto), length=24)
    run = jax.jit(step, donate_argnums=1)
    state, logits = run(model.params, step.init(batch), np.tile(PROMPT[:1], (batch, 1)))
    for _ in range(3):
        state, logits = run(model.params, state, logits.reshape(batch, -1, VOCABULARY)[:, -1].argmax(-1))
    assert run._cache_size() == 2
    compiled = run.lower(model.params, state, logits.argmax(-1)).compile()
    caches = list(state.caches.values())
    assert compiled.memory_analysis().alias_size_in_bytes >= sum(x.nbytes for x in caches)
    (cache,) = {",".join(map(str, x.shape)) for x in caches}
    passes = [
        line
        for line in compiled.as_text().splitlines()
        if re.search(rf" = f32\[{cache.replace(f'{batch},', f'{batch},(1,)?', 1)}\]\S* (copy|select)\(", line)
    ]
    assert not passes


@pytest.mark.parametrize("name", ["all tokens", "a window in each layer", "float16"])
def test_calls(name):
    """Two steps, in one program each, with caches of more rows than the window."""
    options = MODELS[name]
    proto, windows = language_model(**options), options["windows"]
    model, run = jaxops.onnx.load(proto), session(proto)
    past = nothing(proto, windows, 2, more=2)
    tolerance = 1e-2 if options.get("half") else 1e-5
    for tokens, total in ((PROMPT, 7), (PROMPT[:, :1], 8)):
        feeds = {"input_ids": tokens, "attention_mask": np.ones((2, total), np.int64), **past}
        expected, found = [np.asarray(y) for y in run.run(None, feeds)], model(feeds)
        scale = max(1, np.abs(expected[0]).max())
        np.testing.assert_allclose(found[0] / scale, expected[0] / scale, rtol=0, atol=tolerance)
        assert [x.shape for x in found] == [x.shape for x in expected]
        past = dict(zip(past, expected[1:], strict=True))


@pytest.mark.parametrize("name", ["a window in each layer", "4 bits", "float16"])
def test_gradients(name):
    """All floats get one, of a loss over all tokens; the packed integers stay."""
    options = MODELS[name]
    proto, windows = language_model(**options), options["windows"]
    model = jaxops.onnx.load(proto)
    trained = {k: v for k, v in model.params.items() if jnp.issubdtype(v.dtype, jnp.floating)}
    rest = {k: v for k, v in model.params.items() if k not in trained}
    assert any(name.endswith("Q4") for name in rest) == bool(options.get("four_bits"))
    feeds = {"input_ids": PROMPT, **masks(2, 0, 7), **nothing(proto, windows, 2)}

    @jax.jit
    @jax.value_and_grad
    def loss_and_grads(trained):
        logits = model.apply({**rest, **trained}, feeds)[0].astype(np.float32)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), (PROMPT[..., None] * 7) % VOCABULARY, -1)
        return -picked.mean()

    _, grads = loss_and_grads(trained)
    for name, grad in grads.items():
        assert np.isfinite(grad).all(), name
        assert np.abs(grad).max() > 0, name
    if not options.get("half"):
        direction = {k: g / jnp.sqrt(sum((g**2).sum() for g in grads.values())) for k, g in grads.items()}
        moved = [loss_and_grads({k: v + s * direction[k] for k, v in trained.items()})[0] for s in (1e-3, -1e-3)]
        slope = sum((direction[k] * g).sum() for k, g in grads.items())
        np.testing.assert_allclose((moved[0] - moved[1]) / 2e-3, slope, rtol=2e-2)


def test_a_prompt_in_parts():
    model = jaxops.onnx.load(language_model((4, 0)))
    step = jaxops.onnx.decoder(model, length=16)
    whole, logits = step(model.params, step.init(2), PROMPT)
    parts = step.init(2)
    for tokens in (PROMPT[:, :5], PROMPT[:, 5], PROMPT[:, 6]):
        parts, last = step(model.params, parts, tokens)
    np.testing.assert_allclose(last, logits[:, -1], rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), parts, whole)


def test_caches_of_another_model():
    """The state goes on where a call of the model ended; the window may have more rows."""
    proto = language_model((4, 0))
    model = jaxops.onnx.load(proto)
    step = jaxops.onnx.decoder(model, length=16)
    feeds = {"input_ids": PROMPT, **masks(2, 0, 7), **nothing(proto, (4, 0), 2, more=2)}
    _, *presents = model(feeds)
    past = {c.past.name: x for c, x in zip(step.caches, presents, strict=True)}
    state, _ = step(model.params, step.init(2), PROMPT)
    found = step(model.params, step.init(past=past), PROMPT[:, 0])[1]
    np.testing.assert_allclose(found, step(model.params, state, PROMPT[:, 0])[1], rtol=1e-4, atol=1e-5)
    alone = jaxops.onnx.decoder(jaxops.onnx.load(language_model((4, 4))), length=16)
    assert alone.init(past=nothing(proto, (0, 0), 2)).position.tolist() == [0, 0]
    with pytest.raises(ModelError, match=r"all caches slide, so the number of tokens is not(.|\n)*init\(batch\)"):
        alone.init(past=nothing(proto, (4, 4), 2))


def test_a_cache_of_fewer_rows_than_the_window():
    proto = language_model((4, 0))
    model = jaxops.onnx.load(proto)
    feeds = {"input_ids": PROMPT, **masks(2, 0, 7), **nothing(proto, (3, 0), 2)}
    with pytest.raises(ShapeError, match=r"`past_key` has 3 rows; .* it needs 4, the window, or more"):
        model(feeds)


def exported(model, sizes=None):
    """What an export gives, read again from its bytes: for inputs by name, the outputs."""
    program = jax.export.deserialize(model.export(sizes).serialize())

    def call(feeds):
        with jax.enable_x64(model.x64):
            return program.call(model.params, *(jnp.asarray(feeds[v.name]) for v in model.inputs))

    return call


BUFFER = {"past_sequence_length": "p", "total_sequence_length": "t, t <= p"}
EXPORTS = {
    "any past": ((4, 0), None, [(1, 6, 1, 5), (2, 9, 1, 4), (1, 9, 3, 8)]),
    "a prompt": ((4, 0), {"past_sequence_length": 0}, [(1, 0, 5, 6), (2, 0, 7, 4)]),
    "a buffer": ((0,), BUFFER, [(1, 0, 5, 6), (2, 9, 1, 4)]),
    "nothing slides": ((0,), None, [(1, 6, 1, 0), (2, 9, 1, 0)]),
    "all slide": ((4,), None, [(2, 0, 7, 4), (1, 9, 3, 8)]),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_exports(name):
    """One program for any batch, tokens, past and rows of sliding caches; the file does not say the width of a head."""
    windows, sizes, steps = EXPORTS[name]
    proto = language_model(windows)
    model, run = jaxops.onnx.load(proto), session(proto)
    call, rng = exported(model, sizes), np.random.default_rng(1)
    for batch, past, new, rows in steps:
        feeds = {"input_ids": rng.integers(0, VOCABULARY, (batch, new)), **masks(batch, past, new)}
        for k, window in enumerate(windows):
            room = rows if window else past + new + 3 if name == "a buffer" else past
            for part in ("key", "value"):
                feeds[f"past_key_values.{k}.{part}"] = rng.normal(size=(batch, GROUPS, room, HEAD)).astype(np.float32)
        expected = [np.asarray(y) for y in run.run(None, feeds)]
        found = call(feeds)
        np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=2e-6 * np.abs(expected[0]).max())
        assert [x.shape for x in found] == [x.shape for x in expected]


def test_an_export_wants_a_window_in_its_caches():
    model = jaxops.onnx.load(proto := language_model((4, 4)))
    program, feeds = model.export(), {"input_ids": PROMPT, **masks(2, 0, 7), **nothing(proto, (4, 4), 2, more=-1)}
    with jax.enable_x64(model.x64):
        given = [jnp.asarray(feeds[v.name]) for v in model.inputs]
        with pytest.raises(ValueError, match="past_sliding_length >= 4"):
            program.call(model.params, *given)
