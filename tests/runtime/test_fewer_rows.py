"""Rows that a model cuts off at the end do not count: in buckets, behind sizes that depend on data, in decoders."""

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import model

from jaxops.errors import UnsupportedError
from jaxops.onnx import decoder, load

RNG = np.random.default_rng(4)
ROWS = RNG.integers(-4, 5, (12, 4)).astype(np.float32)

# x: (rows, 4) → a with fewer rows, or with rows of another array.
CUTS = {
    "but the last": "a = Slice(x, zero, minus_one, zero)",
    "half": "n = Shape<start = 0, end = 1>(x)  half = Div(n, two)  a = Slice(x, zero, half, zero)",
    "the first piece": """n = Shape<start = 0, end = 1>(x)  rest = Sub(n, one)  parts = Concat<axis = 0>(rest, one)
        a, last = Split<axis = 0>(x, parts)""",
    "a row before": "longer = Concat<axis = 0>(row, x)  a = Slice(longer, zero, minus_one, zero)",
    "rows of a table": "n = Shape<start = 0, end = 1>(x)  a = Slice(table, zero, n, zero)",
}
# What combines the rows of a; y has one number of each.
READERS = """
    columns = Transpose<perm = [1, 0]>(a)  image = Unsqueeze(columns, zero)
    y1 = ReduceSum(a, zero)
    y2 = ReduceMean(a, zero)
    products = MatMul(columns, a)  y3 = Tanh(products)
    others = Einsum<equation = "ij,ik->k">(a, a)  y4 = Tanh(others)
    y5 = CumSum<reverse = 1>(a, zero)
    y6 = Conv<pads = [1, 1]>(image, w)
    y7 = AveragePool<kernel_shape = [3], pads = [1, 1], count_include_pad = 1>(image)
    negative = Neg(a)  whole = Cast<to = 6>(negative)  turned = Transpose<perm = [1, 0]>(whole)
    flat = Flatten<axis = 0>(turned)  total = ReduceSum(flat)  y8 = Cast<to = 1>(total)
"""
READERS += "  ".join(f"s{k} = ReduceMax<keepdims = 0>(y{k})  r{k} = Unsqueeze(s{k}, zero)" for k in range(1, 9))
READERS += f"  y = Concat<axis = 0>({', '.join(f'r{k}' for k in range(1, 9))})"
NUMBERS = {name: np.int64([number]) for name, number in {"zero": 0, "one": 1, "two": 2, "minus_one": -1}.items()}
TENSORS = {
    **NUMBERS,
    "embedding": ROWS,
    "places": np.int64([0, 1]),
    "nine": np.int64([9]),
    "four": np.int64([4]),
    "unit": np.float32([1]),
    "row": ROWS[:1] + 1,
    "table": ROWS[::-1] + 1,
    "w": np.float32([[[1, 2, 3]] * 4]),
}


def graph(text):
    used = {name: value for name, value in TENSORS.items() if f"{name}," in text or f"{name})" in text}
    return model(text, initializers=used)


def expected(proto, **inputs):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


@pytest.mark.grid
@pytest.mark.parametrize("cut", CUTS)
def test_in_buckets(cut):
    proto = graph(f"main (float[k,4] x) => (float[8] y) {{ {CUTS[cut]} {READERS} }}")
    loaded = load(proto, buckets={"k": 8})
    for count in (3, 6):
        np.testing.assert_allclose(loaded(ROWS[:count]), expected(proto, x=ROWS[:count]), rtol=1e-5, atol=1e-5)


@pytest.mark.grid
@pytest.mark.parametrize("cut", CUTS)
def test_behind_a_size_that_depends_on_data(cut, monkeypatch):
    monkeypatch.setattr("jaxops.runtime.compiled_pieces._MANY", 0)  # otherwise NumPy computes the first nodes
    proto = graph(
        f"""main (float[k,4] all, bool[k] q) => (float[8] y) {{
            x = Compress<axis = 0>(all, q)  {CUTS[cut]} {READERS} }}"""
    )
    loaded = load(proto)
    for count in (3, 7, 5, 4):
        chosen = np.arange(12) % 8 < count
        want = expected(proto, all=ROWS, q=chosen)
        np.testing.assert_allclose(loaded(ROWS, chosen), want, rtol=1e-5, atol=1e-5)


@pytest.mark.grid
@pytest.mark.parametrize("cut", CUTS)
def test_caches_of_a_decoder(cut):
    proto = graph(
        f"""main (int64[b,n] input_ids, float[b,p,4] past_key) => (float[1,1,8] logits, float[b,t,4] present_key) {{
            new = Gather(embedding, input_ids)  present_key = Concat<axis = 1>(past_key, new)
            x = Squeeze(present_key, zero)  {CUTS[cut]} {READERS}  logits = Unsqueeze(y, places) }}"""
    )
    loaded = load(proto)
    step = decoder(loaded, length=9)
    state, past = step.init(), np.zeros((1, 0, 4), np.float32)
    for tokens in ([[3, 1]], [[5]], [[2]], [[7]]):
        state, logits = step(loaded.params, state, jnp.array(tokens))
        want = expected(proto, input_ids=np.int64(tokens), past_key=past)
        past = np.concatenate([past, ROWS[tokens]], 1)
        np.testing.assert_allclose(logits, want, rtol=1e-5, atol=1e-5)


def test_a_size_that_shrinks_as_the_caches_grow():
    """Its array would have no room for it."""
    proto = graph(
        """main (int64[b,n] input_ids, float[b,p,4] past_key) => (float[1,1,4] logits, float[b,t,4] present_key) {
            new = Gather(embedding, input_ids)  present_key = Concat<axis = 1>(past_key, new)
            x = Squeeze(present_key, zero)  n = Shape<start = 0, end = 1>(x)  more = Sub(nine, n)
            parts = Concat<axis = 0>(more, four)  ones = Expand(unit, parts)  full = Concat<axis = 0>(x, ones)
            mean = ReduceMean(full, zero)  logits = Unsqueeze(mean, zero) }"""
    )
    loaded = load(proto)
    step = decoder(loaded, length=9)
    with pytest.raises(UnsupportedError, match=r"the size - s \+ 9 may be larger for smaller inputs") as caught:
        step(loaded.params, step.init(), jnp.array([[3]]))
    assert "with a symbolic number of tokens, s" in "".join(caught.value.__notes__)
