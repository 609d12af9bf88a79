"""Tables of rotary embeddings are no parameters to train, and one array for all layers."""

import numpy as np
import pytest
from decoders import MODELS
from graphs import model
from language_models import language_model

import jaxops.onnx
from jaxops.onnx import load

RNG = np.random.default_rng(0)
FREQUENCIES = {"f": RNG.normal(size=4).astype(np.float32)}
# Each reads the frequencies `f`, and makes `y` of them: the positions are integers.
TABLES = {
    "times positions": "c = Cast<to=1>(at) u = Unsqueeze(c, last) p = Mul(u, f) y = Cos(p)",
    "a product of matrices": """c = Cast<to=1>(at) u = Unsqueeze(c, last) r = Unsqueeze(f, first) p = MatMul(u, r)
        j = Concat<axis=-1>(p, p) s = Sin(j) y = Mul(s, x)""",
    "counted positions": """n = Shape<start=1>(x) k = Squeeze(n) r = Range(none, k, one) q = Add(r, one)
        c = Cast<to=1>(q) u = Unsqueeze(c, last) p = Mul(u, f) y = Cos(p)""",
}
# The same, where training the frequencies may be meant.
OTHERS = {
    "of data": "p = Mul(x, f) y = Sin(p)",
    "read elsewhere": "c = Cast<to=1>(at) u = Unsqueeze(c, last) p = Mul(u, f) s = Cos(p) y = Add(s, f)",
    "returned": "c = Cast<to=1>(at) u = Unsqueeze(c, last) y = Mul(u, f)",
    "another function": "c = Cast<to=1>(at) u = Unsqueeze(c, last) p = Mul(u, f) y = Tanh(p)",
}


@pytest.mark.parametrize("name", [*TABLES, *OTHERS])
def test_frequencies(name):
    net = load(
        model(
            f"""main (float[B,4] x, int64[N] at) => (float[N,K] y) {{
                first = Constant<value_ints = [0]>() last = Constant<value_ints = [-1]>()
                none = Constant<value = int64 {{0}}>() one = Constant<value = int64 {{1}}>()
                {(TABLES | OTHERS)[name]} }}""",
            initializers=FREQUENCIES,
        )
    )
    assert net.trainable == {"f": name in OTHERS}


def test_caches_of_angles_are_one_parameter():
    net = load(language_model((0, 0, 0)))
    tables = {name: trained for name, trained in net.trainable.items() if "_cache" in name}
    assert tables == {"cos_cache": False, "sin_cache": False}
    chosen = load(language_model((0, 0)), trainable={"cos_cache": True})
    assert chosen.trainable["cos_cache"]
    apart = load(language_model((0, 0)), tied=False)
    assert [name for name in apart.params if "cos_cache" in name] == ["cos_cache", "model.layers.1.attn.cos_cache"]


def test_an_export_of_pytorch():
    net = jaxops.onnx.load(MODELS / "llama.dynamo.onnx")
    assert [name for name, trained in net.trainable.items() if "inv_freq" in name and not trained]
    assert sum(net.trainable.values()) == len(net.trainable) - 1
