"""A decoder with a cache of fixed size gives, token by token, what onnxruntime gives with growing caches."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from decoder_graphs import (
    attention_23,
    decoder as graph,
    fused_attention,
    group_query,
    merged,
    no_mask,
    renamed,
    sliced_table,
    stacked,
    tokens_before_heads,
    window,
)
from decoders import MODELS, agree, fixed, growing, session

import jaxops.onnx
from jaxops.errors import DTypeError, ModelError, ShapeError, SignatureError, StaticError
from jaxops.tools.generate.table_bounds import first_beyond

PROMPT = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])


def caches_of(step):
    return {c.past.name: c.present.name for c in step.caches}


def nothing_past(step, batch=2):
    return {c.past.name: np.zeros(c.shape(batch, 0), np.float32) for c in step.caches}


@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_exported_models(name, exporter):
    """Prompts of different lengths, padded on either side, give what onnxruntime gives each of them alone."""
    path, count = MODELS / f"{name}.{exporter}.onnx", 26
    model = jaxops.onnx.load(path)
    step = jaxops.onnx.decoder(model, length=32)
    alone = []
    for prompt in (PROMPT[:1], PROMPT[1:, 2:]):
        feeds = {"input_ids": prompt, "attention_mask": np.ones_like(prompt), **nothing_past(step, 1)}
        alone.append(growing(path, caches_of(step), feeds, count, others=masks))
    expected = [np.concatenate([both[k] for both in alone], k) for k in (0, 1)]
    got = fixed(
        step,
        model.params,
        step.init(2),
        PROMPT,
        count,
        prompted={"attention_mask": np.array([[1, 1, 1, 1], [0, 0, 1, 1]])},
    )
    agree(got, expected)


def first_of_t5(exporter):
    """What the decoder of the first tokens gives to the one of later tokens, by onnxruntime, and what both take."""
    data = np.load(MODELS / "t5_first.npz")
    fixed_inputs = {"encoder_attention_mask": data["in:encoder_attention_mask"]}
    feeds = {"input_ids": PROMPT, **fixed_inputs, "encoder_hidden_states": data["in:encoder_hidden_states"]}
    run = session(MODELS / f"t5_first.{exporter}.onnx")
    found = dict(zip((o.name for o in run.get_outputs()), run.run(None, feeds), strict=True))
    given = {
        name.replace("present", "past_key_values"): value for name, value in found.items() if name.startswith("present")
    }
    own = {name: value for name, value in given.items() if ".decoder." in name}
    cross = {name: value for name, value in given.items() if ".encoder." in name}
    return feeds, found["logits"][:, -1:].argmax(-1), own, {**cross, **fixed_inputs}


@pytest.mark.parametrize("exporter", ["script", "dynamo"])
def test_t5(exporter):
    """Its own caches grow; those of the encoder's output are given. Positions are relative, computed from sizes."""
    path = MODELS / f"t5_decoder.{exporter}.onnx"
    model = jaxops.onnx.load(path)
    step = jaxops.onnx.decoder(model, length=40)
    _, token, own, given = first_of_t5(exporter)
    assert sorted(caches_of(step)) == sorted(own)
    expected = growing(path, caches_of(step), {"input_ids": token, **own, **given}, 30)
    agree(fixed(step, model.params, step.init(past=own), token, 30, **given), expected)


def test_t5_merged():
    """Decoders of first and later tokens in one file, by If."""
    proto = merged(*(onnx.load(MODELS / f"t5_{part}.script.onnx") for part in ("first", "decoder")))
    model = jaxops.onnx.load(proto)
    step = jaxops.onnx.decoder(model, length=40)
    feeds, token, own, given = first_of_t5("script")
    given["encoder_hidden_states"] = feeds["encoder_hidden_states"]
    assert sorted(caches_of(step)) == sorted(own)
    feeds = {"input_ids": token, **own, **given, "use_cache_branch": np.array([True])}
    expected = growing(proto, caches_of(step), feeds, 12)
    agree(fixed(step, model.params, step.init(past=own), token, 12, **given), expected)


def masks(batch, past, new):
    return {"attention_mask": np.ones((batch, past + new), np.int64)}


def positions(batch, past, new):
    return {**masks(batch, past, new), "position_ids": np.tile(np.arange(past, past + new), (batch, 1))}


def lengths(batch, past, new):
    total = past + new
    return {"seqlens_k": np.full(batch, total - 1, np.int32), "total_sequence_length": np.array([total], np.int32)}


SIDES = ("past_k", "past_v", "present_k", "present_v")
NAMES = {
    "cache_k_0": ("cache_k_0", "cache_v_0", "new_cache_k_0", "new_cache_v_0"),
    "in and out": ("kv_cache_k.in", "kv_cache_v.in", "k.out", "v.out"),
    "without meaning": ("a1", "a2", "1234", "1240"),
}


def with_names(names):
    return lambda: renamed(no_mask(), **dict(zip(SIDES, names, strict=True)))


GRAPHS = {
    "no mask, positions from sizes": (no_mask, {}),
    "mask cut out of a table": (sliced_table, {}),
    "a window": (window, {}),
    "keys and values in one": (stacked, {}),
    "tokens before heads, position_ids": (tokens_before_heads, {"others": positions}),
    "GroupQueryAttention": (group_query, {"others": masks}),
    "GroupQueryAttention, lengths given": (lambda: group_query(given=True), {"others": lengths}),
    "Attention of opset 23": (attention_23, {}),
    "Attention of com.microsoft": (fused_attention, {}),
    **{name: (with_names(names), {}) for name, names in NAMES.items()},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_ways_to_write_a_decoder(name):
    make, options = GRAPHS[name]
    proto, count = make(), 12
    model = jaxops.onnx.load(proto)
    step = jaxops.onnx.decoder(model, length=16)
    expected = growing(proto, caches_of(step), {"input_ids": PROMPT, **nothing_past(step)}, count, **options)
    agree(fixed(step, model.params, step.init(2), PROMPT, count), expected, 3e-5)


def test_a_prompt_in_parts_and_token_by_token():
    model = jaxops.onnx.load(no_mask())
    step = jaxops.onnx.decoder(model, length=8)
    whole, logits = step(model.params, step.init(2), PROMPT)
    assert logits.shape == (2, 4, 40)
    parts = step.init(2)
    for tokens in (PROMPT[:, :2], PROMPT[:, 2], PROMPT[:, 3]):
        parts, last = step(model.params, parts, tokens)
    assert last.shape == (2, 40)
    np.testing.assert_allclose(last, logits[:, -1], rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_close(parts, whole, rtol=1e-4, atol=1e-5)


def test_too_many_tokens_give_nan_or_an_error():
    """Each row has its own number of tokens. A traced program cannot raise an error."""
    model = jaxops.onnx.load(no_mask())
    step = jaxops.onnx.decoder(model, length=5)
    state, _ = step(model.params, step.init(2), PROMPT)
    state = step.rewind(state, np.array([0, 1]))
    run = jax.jit(step)
    state, logits = run(model.params, state, PROMPT[:, 0])
    assert not jnp.isnan(logits).any()
    _, logits = run(model.params, state, PROMPT[:, 0])
    assert jnp.isnan(logits).all(1).tolist() == [True, False]
    with pytest.raises(ShapeError, match="6 tokens are more than the length 5 of the decoder"):
        step(model.params, state, PROMPT[:, 0])


def test_a_length_beyond_the_table_of_positions():
    model = jaxops.onnx.load(MODELS / "gpt2.dynamo.onnx")
    step = jaxops.onnx.decoder(model, length=33)
    with pytest.raises(ShapeError, match=r"33 tokens are more than a table .* index 32 .* of size 32 .*\n.*length="):
        step(model.params, step.init(), np.array([[1, 2, 3]]))
    model = jaxops.onnx.load(tokens_before_heads())  # whose positions are an input
    step = jaxops.onnx.decoder(model, length=66)
    with pytest.raises(ShapeError, match=r"last of 66 .* row 65 of a table of 64 rows, in .*\n.*length=64\)"):
        step(model.params, step.init(), PROMPT[:1])


def test_a_table_that_ends_before_the_positions_that_a_program_computes():
    def read(positions, table, tokens):
        return jax.jit(lambda at: table[at])(jnp.cumsum(positions) + 1) + table[tokens]

    closed = jax.make_jaxpr(read)(np.ones(4, np.int32), np.ones((5, 2), np.float32), np.ones(4, np.int32))
    assert first_beyond(closed, [np.ones(4, np.int32)])[:2] == (5, 5)
    assert first_beyond(closed, [np.array([1, 1, 1, 0], np.int32)]) is None


def test_one_program_serves_all_tokens():
    model = jaxops.onnx.load(no_mask())
    step = jaxops.onnx.decoder(model, length=16)
    traced = []
    run = jax.jit(lambda *args: traced.append(1) or step(*args))
    state, token = step.init(2), PROMPT[:, 0]
    for _ in range(4):
        state, logits = run(model.params, state, token)
        token = logits.argmax(-1)
    assert len(traced) == 1


@pytest.mark.optimized
@pytest.mark.parametrize(("prepares", "rows"), [(False, 1), (True, 1), (True, 2)])
def test_caches_are_written_in_place(prepares, rows):
    """Scaled keys are computed from the written cache, not from the one before, which would be copied for it."""
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(MODELS / "gpt2.script.onnx"), length=32)

    def generate(params, state, token):
        def one(carry, _):
            state, logits = step(params, *carry)
            return (state, logits.argmax(-1)), carry[1]

        return jax.lax.scan(one, (state, token), length=20)

    state, params = step.init(rows), step.prepare(model.params, batch=rows) if prepares else model.params
    text = jax.jit(generate).lower(params, state, jnp.zeros(rows, np.int32)).compile().as_text()
    (shape,) = {x.shape for x in state.caches.values()}
    copies = re.findall(re.escape(f"f32[{','.join(map(str, shape))}]") + r"\S* copy\(", text)
    assert len(copies) == len(state.caches)  # of the arguments, before the first step


def test_other_platforms_may_inline_what_writes_a_cache():
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(no_mask()), length=16)
    traced = jax.jit(step).trace(model.params, step.init(2), PROMPT[:, 0])
    assert "inlineable" in traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "inlineable" not in traced.lower(lowering_platforms=("cuda",)).as_text()


def test_transformations():
    """`vmap` over separate states, and the gradient of a loss over generated tokens."""
    model = jaxops.onnx.load(no_mask())
    step = jaxops.onnx.decoder(model, length=8)

    def total(params, prompt):
        _, logits = step(params, step.init(1), prompt)
        return logits.sum()

    together = jax.vmap(total, (None, 0))(model.params, jnp.asarray(PROMPT)[:, None])
    apart = [total(model.params, prompt[None]) for prompt in PROMPT]
    np.testing.assert_allclose(together, apart, rtol=1e-4, atol=1e-4)

    def plain(params, prompt):
        empty = nothing_past(step, 1)
        return model.apply(params, input_ids=prompt, **empty)[0].sum()

    got, expected = (jax.grad(f)(model.params, jnp.asarray(PROMPT[:1])) for f in (total, plain))
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-3, atol=1e-3, err_msg=name)


def test_x64(x64):
    proto = no_mask()
    model = jaxops.onnx.load(proto)
    step = jaxops.onnx.decoder(model, length=16)
    expected = growing(proto, caches_of(step), {"input_ids": PROMPT, **nothing_past(step)}, 8)
    agree(fixed(step, model.params, step.init(2), PROMPT, 8), expected, 3e-5)


def test_a_wrong_mask_is_caught():
    """The comparison can fail: padding that is attended to gives other tokens."""
    proto = tokens_before_heads()
    model = jaxops.onnx.load(proto)
    step = jaxops.onnx.decoder(model, length=16)
    feeds = {"input_ids": PROMPT, **nothing_past(step)}
    expected = growing(proto, caches_of(step), feeds, 6, others=positions)
    kept = {"attention_mask": np.array([[1, 1, 1, 1], [0, 0, 1, 1]])}
    with pytest.raises(AssertionError):
        agree(fixed(step, model.params, step.init(2), PROMPT, 6, prompted=kept), expected)


@pytest.fixture
def small():
    model = jaxops.onnx.load(tokens_before_heads())
    return model, jaxops.onnx.decoder(model, length=8)


def test_errors_of_a_step(small):
    model, step = small
    state = step.init(2)
    with pytest.raises(DTypeError, match=r"tokens are integers \(B,\) or \(B, n\), not float32\[2\]"):
        step(model.params, state, np.zeros(2, np.float32))
    with pytest.raises(ShapeError, match="9 tokens are more than the length 8"):
        step(model.params, state, np.zeros((2, 9), int))
    with pytest.raises(ShapeError, match=r"the tokens are 3 samples, but the state has 2\n.*step.init\(batch=3\)"):
        step(model.params, state, np.zeros((3, 2), int))
    with pytest.raises(SignatureError, match=r"the state is a dict; give that of step.init\(…\) or of"):
        step(state, model.params, np.zeros((2, 2), int))
    with pytest.raises(SignatureError, match=r"unknown input 'mask'; besides tokens, .* \['position_ids', 'attention"):
        step(model.params, state, PROMPT, mask=1)
    _, _, own, _ = first_of_t5("script")
    t5 = jaxops.onnx.load(MODELS / "t5_decoder.script.onnx")
    step = jaxops.onnx.decoder(t5, length=8)
    with pytest.raises(
        SignatureError, match=r"input 'encoder_attention_mask' is missing: .*\n.*give it by name at each"
    ):
        step(t5.params, step.init(past=own), PROMPT[:, 0])
    with pytest.raises(SignatureError, match=r"past: 'past_key_values.0.decoder.key' is missing"):
        step.init(past={name: value for name, value in own.items() if "0.decoder.key" not in name})
    with pytest.raises(SignatureError, match="past: 'other' is unknown"):
        step.init(past={**own, "other": 1})
    with pytest.raises(ShapeError, match=r"has 4 tokens, more than the length 3"):
        jaxops.onnx.decoder(t5, length=3).init(past=own)
    uneven = {name: value[:, :, :2] if "0.decoder.key" in name else value for name, value in own.items()}
    with pytest.raises(ShapeError, match=r"different numbers of tokens: \[2, 4\]"):
        step.init(past=uneven)


def test_errors_of_models():
    model = jaxops.onnx.load(no_mask())
    with pytest.raises(SignatureError, match=r"no input 'past_x'; its inputs are input_ids, past_k, past_v"):
        jaxops.onnx.decoder(model, {"past_x": "present_k"})
    with pytest.raises(SignatureError, match=r"no output 'now'; its outputs are logits, present_k, present_v"):
        jaxops.onnx.decoder(model, {"past_k": "now"})
    bert = jaxops.onnx.load(MODELS / "bert.script.onnx")
    with pytest.raises(ModelError, match=r"no cache that grows was found(.|\n)*input_ids(.|\n)*name the pairs"):
        jaxops.onnx.decoder(bert)
    vit = jaxops.onnx.load(MODELS / "vit.script.onnx")
    with pytest.raises(ModelError, match=r"no input for tokens was found, integers \(B, n\): .*pixel_values"):
        jaxops.onnx.decoder(vit)


def test_a_cache_that_does_not_grow():
    """Of fixed size, or the present of another: found when a step is traced."""
    body = """
        present_k = Identity(past_k)  present_v = Identity(past_v)  logits = MatMul(x, wo)
    """
    model = jaxops.onnx.load(graph(body))
    step = jaxops.onnx.decoder(model, length=8)
    with pytest.raises(ModelError, match=r"'present_k' has size s - 1 along axis 2, not s(.|\n)*of fixed size"):
        step(model.params, step.init(1), np.array([1]))


def test_a_model_without_logits():
    body = "present_k = Concat<axis = 2>(past_k, past_k)  present_v = Concat<axis = 2>(past_v, past_v)"
    proto = graph(body + " logits = MatMul(x, wo)")
    del proto.graph.output[0]
    with pytest.raises(ModelError, match="no output beside its caches"):
        jaxops.onnx.decoder(jaxops.onnx.load(proto))


def free_heads(body=None):
    """A model that names the number of heads, and maybe leaves it open."""
    proto = no_mask() if body is None else graph(body)
    for value in proto.graph.input[1:]:
        value.type.tensor_type.shape.dim[1].dim_param = "heads"
    return proto


def test_a_size_that_the_nodes_say():
    """Keys of two heads are put behind the past, so it has two."""
    model = jaxops.onnx.load(free_heads())
    step = jaxops.onnx.decoder(model, length=8)
    state = step.init(2)
    assert {cache.shape for cache in state.caches.values()} == {(2, 2, 8, 8)}
    _, logits = step(model.params, state, PROMPT)
    empty = {name: np.zeros((2, 2, 0, 8), np.float32) for name in ("past_k", "past_v")}
    np.testing.assert_array_equal(logits, step(model.params, step.init(past=empty), PROMPT)[1])


def test_an_unknown_size():
    grown = """
        twice = Constant<value_ints = [0, 0, 0, 0, 0, 0, 1, 0]>()  present_k = Pad(past_k, twice)
        present_v = Pad(past_v, twice)  logits = MatMul(x, wo)
    """
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(free_heads(grown)), length=8)
    with pytest.raises(ModelError, match=r"does not say the size heads of its cache past_k(.|\n)*init\(past="):
        step.init(2)
    empty = {name: np.zeros((2, 3, 0, 8), np.float32) for name in ("past_k", "past_v")}
    state, logits = step(model.params, step.init(past=empty), PROMPT[:, 0])
    assert logits.shape == (2, 40)
    assert state.caches["past_k"].shape == (2, 3, 8, 8)


def test_what_cannot_be_traced_with_a_symbol_says_so():
    mask = """
        most = ReduceMax<keepdims = 0>(present_k)  rounded = Cast<to = 7>(most)  found = Range(zero, rounded, one)
        counted = Size(found)  few = Sub(t, counted)  causal = LessOrEqual(columns, rows)  more = Less(few, zero)
        mask = Or(causal, more)
    """
    step = jaxops.onnx.decoder(model := jaxops.onnx.load(no_mask(mask=mask)), length=8)
    with pytest.raises(StaticError, match="range") as caught:
        step(model.params, step.init(1), np.array([1]))
    notes = "\n".join(caught.value.__notes__)
    assert "in node 'found'" in notes
    assert "with a symbolic number of tokens, s: s - 1 past and 1 new" in notes
