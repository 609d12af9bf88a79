"""Models whose sizes are rounded up to buckets: values of exact sizes, by one program for each bucket."""

import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, model, node
from onnx import TensorProto

from jaxops.errors import ArgumentError, ShapeError, SignatureError, StaticError, UnsupportedError
from jaxops.onnx import load
from jaxops.runtime import compiled_pieces

RNG = np.random.default_rng(5)


def image(width, batch=1):
    return RNG.standard_normal((batch, 3, 8, width)).astype(np.float32)


def weights(*shape):
    return (np.random.default_rng(6).standard_normal(shape) / 4).astype(np.float32)


def text_model():
    """As a model reads a line of text: convolutions, pools, an LSTM in both directions and attention over the width."""
    return model(
        """main (float[N,3,8,width] x) => (float[T,N,C] scores, int64[4] sizes) {
            a = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)  b = HardSwish(a)
            c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
            d = Conv<pads = [1, 1, 1, 1], group = 8>(c, w2)  e = Relu(d)
            gate_mean = GlobalAveragePool(e)  gate = Sigmoid(gate_mean)  f = Mul(e, gate)
            g = AveragePool<kernel_shape = [3, 3], strides = [2, 1], pads = [1, 1, 1, 1]>(f)
            sizes = Shape(g)
            h = ReduceMean<keepdims = 0>(g, two)
            i = Transpose<perm = [2, 0, 1]>(h)
            j, last_state, last_cell = LSTM<hidden_size = 4, direction = "bidirectional">(i, lstm_w, lstm_r)
            k = Transpose<perm = [2, 0, 1, 3]>(j)
            l = Reshape(k, tokens)
            keys = Transpose<perm = [0, 2, 1]>(l)
            products = MatMul(l, keys)  attention = Softmax(products)  m = MatMul(attention, l)
            normal = LayerNormalization(m, scale)
            n = Transpose<perm = [1, 0, 2]>(normal)
            o = MatMul(n, w3)  scores = Softmax(o)
        }""",
        initializers={
            **{"w1": weights(8, 3, 3, 3), "b1": weights(8) + 1, "w2": weights(8, 1, 3, 3), "w3": weights(8, 5)},
            **{"two": np.int64([2]), "tokens": np.int64([0, -1, 8]), "scale": weights(8) + 1},
            **{"lstm_w": weights(2, 16, 8), "lstm_r": weights(2, 16, 4)},
        },
    )


def small_model():
    """A convolution, a pool, and a softmax over the width."""
    return model(
        """main (float[N,3,8,width] x) => (float[N,4,8,W] y, int64[4] sizes) {
            a = Conv<pads = [1, 1, 1, 1], strides = [1, 2]>(x, w)  e = Relu(a)
            b = MaxPool<kernel_shape = [1, 2], pads = [0, 1, 0, 0]>(e)  sizes = Shape(b)  y = Softmax(b)
        }""",
        initializers={"w": weights(4, 3, 3, 3)},
    )


@pytest.fixture
def traces(monkeypatch):
    """Gains an element for each program that is traced."""
    found = []
    for name in ("_piece", "run_rounded"):
        function = getattr(compiled_pieces, name)
        monkeypatch.setattr(
            compiled_pieces, name, lambda *args, name=name, function=function: (found.append(name), function(*args))[1]
        )
    return found


def agree(proto, inputs, buckets, *, rtol=1e-4):
    """Asserts that calls give the same as without buckets; returns the model with buckets."""
    plain, loaded = load(proto), load(proto, buckets=buckets)
    for x in inputs:
        x = x if isinstance(x, tuple) else (x,)
        expected, got = (jax.tree.leaves(f(*x)) for f in (plain, loaded))
        assert len(expected) == len(got)
        for a, b in zip(expected, got, strict=True):
            assert (type(a), a.dtype, a.shape) == (type(b), b.dtype, b.shape)
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-5)
    return loaded


def test_a_model_that_reads_text():
    agree(text_model(), [image(width) for width in (5, 16, 33)], {"width": 16})


def test_values_of_each_width():
    agree(small_model(), [image(width) for width in range(1, 19)], {"width": 8})


def test_one_program_for_a_bucket(traces):
    loaded = load(small_model(), buckets={"width": 16})
    for width in (17, 25, 32, 20, 18):
        loaded(image(width))
    assert traces == ["run_rounded"]
    loaded(image(33))
    loaded(image(48))
    assert len(traces) == 2
    loaded.apply(loaded.params, image(32))
    loaded.apply(loaded.params, image(30))
    assert len(traces) == 2


def test_nan_and_infinity_stay_in_their_place():
    proto = model(
        """main (float[N,3,8,width] x) => (float[N,4,8,W] y, float[N,4,8,V] z) {
            a = Conv<pads = [1, 1, 1, 1]>(x, w)  y = Sigmoid(a)
            z = MaxPool<kernel_shape = [1, 2], strides = [1, 2]>(a)
        }""",
        initializers={"w": weights(4, 3, 3, 3)},
    )
    x = image(13)
    x[0, 0, 3, 12], x[0, 1, 5, 4], x[0, 2, 0, 0] = np.nan, np.inf, -np.inf
    agree(proto, [x, image(16)], {"width": 8})


def test_a_size_without_a_name():
    proto = build(node("Relu", ["x"], ["y"]), inputs=[info("x", [None, 3])])
    loaded = agree(proto, [np.float32(RNG.standard_normal((n, 3))) for n in (1, 2, 5)], {"x_0": 4})
    assert loaded.inputs[0].shape == ("x_0", 3)


def test_sizes_of_several_inputs(traces):
    proto = model(
        """main (float[N,K] x, float[K,M] y) => (float[N,M] z, float[K2] s) {
            z = MatMul(x, y)  e = Exp(x)  s = ReduceSum<keepdims = 0>(e, zero)
        }""",
        initializers={"zero": np.int64([0])},
    )
    sizes = [(1, 1, 1), (3, 4, 5), (4, 4, 4), (2, 3, 4), (5, 9, 1), (8, 12, 2)]
    pairs = [(weights(n, k), weights(k, m)) for n, k, m in sizes]
    agree(proto, pairs, {"N": 4, "K": 4, "M": 4})
    assert traces.count("run_rounded") == 3
    match = r"buckets: the size 'K' is 3 in input 'x', but 4 in 'y'(.|\n)*without buckets"
    with pytest.warns(UserWarning, match="the size 'K' is 3"), pytest.raises(ShapeError, match=match):
        load(proto, buckets={"K": 4})(weights(2, 3), weights(4, 2))


def test_without_elements():
    proto = model("main (float[N] x) => (float[N] y, float s) { y = Neg(x) s = ReduceSum<keepdims = 0>(x) }")
    agree(proto, [np.zeros(0, np.float32), np.ones(3, np.float32)], {"N": 4})


def test_a_bucket_of_one_is_exact(traces):
    proto = model("main (float[N] x) => (float[N] y) { y = Neg(x) }")
    agree(proto, [np.ones(n, np.float32) for n in (1, 2, 3)], {"N": 1})
    assert traces.count("run_rounded") == 3


def test_transformations_see_exact_sizes(traces):
    loaded = load(small_model(), buckets={"width": 16})
    x = image(5, batch=2)
    expected = load(small_model())(x)[0]
    traces.clear()
    np.testing.assert_allclose(jax.jit(loaded.apply)(loaded.params, x)[0], expected, rtol=1e-4, atol=1e-5)
    prepare, run = loaded.specialize(x)
    np.testing.assert_allclose(run(prepare(loaded.params), x)[0], expected, rtol=1e-4, atol=1e-5)
    gradients = jax.grad(lambda params: (loaded.apply(params, x)[0] ** 2).sum())(loaded.params)
    assert all(np.isfinite(g).all() for g in gradients.values())
    assert jax.eval_shape(loaded.apply, loaded.params, jax.ShapeDtypeStruct(x.shape, x.dtype))[0].shape == (2, 4, 8, 3)
    assert "run_rounded" not in traces


def test_copies_keep_the_buckets(traces):
    loaded = load(small_model(), buckets={"width": 16})
    for again in (pickle.loads(pickle.dumps(loaded)), loaded.with_params(loaded.params), loaded.astype(jnp.bfloat16)):
        again(image(5).astype(again.inputs[0].dtype))
    assert traces == ["run_rounded"] * len(traces)


def test_other_outputs():
    loaded, plain = load(small_model(), buckets={"width": 16}), load(small_model())
    x = image(9)
    np.testing.assert_allclose(loaded(x, outputs=["e"]), plain(x, outputs=["e"]), rtol=1e-4, atol=1e-5)


def test_a_sequence_of_as_many_pieces_as_a_size_says():
    proto = model(
        "main (float[N] x) => (seq(float[M]) y) { y = SplitToSequence(x, two) }", initializers={"two": np.int64(2)}
    )
    with pytest.warns(UserWarning, match="output 'y': the length of the sequence is unknown"):
        pieces = load(proto, buckets={"N": 4})(weights(3))
    assert [piece.shape for piece in pieces] == [(2,), (1,)]


def test_a_model_of_64_bits():
    proto = model(
        "main (double[N] x, int64[N] i) => (double y, int64[N] z, int64[1] n) {"
        "e = Exp(x) y = ReduceSum<keepdims = 0>(e) z = Add(i, i) n = Shape(z) }"
    )
    pairs = [(np.linspace(0, 1, n), np.arange(n) + 2**40) for n in (1, 3, 5)]
    loaded = agree(proto, pairs, {"N": 4}, rtol=1e-12)
    assert loaded(*pairs[1])[1].tolist() == [2**41, 2**41 + 2, 2**41 + 4]


def test_strings_and_dictionaries():
    """A classifier of any batch size: labels, and scores as dictionaries."""
    proto = build(
        node(
            "LinearClassifier",
            ["x"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            coefficients=[1.0, -1.0, 0.5, -1.0, 1.0, 0.5],
            intercepts=[0.1, 0.2],
            classlabels_strings=["no", "yes"],
            post_transform="SOFTMAX",
        ),
        node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"]),
        outputs=[info("label", ["N"], TensorProto.STRING), info("maps", None)],
        opsets=(("", 18), ("ai.onnx.ml", 3)),
    )
    del proto.graph.output[1:]
    proto.graph.output.add(name="maps")
    plain, loaded = load(proto), load(proto, buckets={"N": 4})
    for n in (1, 2, 5):
        x = weights(n, 3)
        (labels, maps), (expected, theirs) = loaded(x), plain(x)
        assert labels.tolist() == expected.tolist()
        assert [list(m) for m in maps] == [list(m) for m in theirs]
        np.testing.assert_allclose([list(m.values()) for m in maps], [list(m.values()) for m in theirs], rtol=1e-5)


def test_the_next_process_finds_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_pieces, "run_rounded", run := CountedCalls(compiled_pieces.run_rounded))
    before = jax.config.jax_compilation_cache_dir
    try:
        expected = [load(small_model(), buckets={"width": 16}, cache=tmp_path)(image(5)) for _ in range(2)]
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert len(expected) == 2
    assert run.count <= 2


class CountedCalls:
    def __init__(self, function):
        self.function, self.count = function, 0

    def __call__(self, *args):
        self.count += 1
        return self.function(*args)


@pytest.mark.parametrize(
    ("buckets", "kind", "match"),
    [
        ({"height": 4}, ArgumentError, "buckets: no input has a size named 'height'; the names are 'N', 'width'"),
        ({"width": 0}, ArgumentError, "buckets: 'width' is 0; it must be an integer of at least 1"),
        ({"width": 2.5}, ArgumentError, "buckets: 'width' is 2.5; it must be an integer of at least 1"),
        ({"width": True}, ArgumentError, "buckets: 'width' is True; it must be an integer"),
        (["width"], SignatureError, r"buckets: \['width'\] is not a dictionary"),
    ],
)
def test_buckets_that_cannot_be(buckets, kind, match):
    with pytest.raises(kind, match=match):
        load(small_model(), buckets=buckets)


def test_a_part_of_a_size():
    proto = model("main (float[N] x, float[M] y) => (float[N] z, float[K] w) { z = Neg(x) w = Neg(y) }")
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "N + 1"
    with pytest.raises(ArgumentError, match=r"buckets: 'N' is a part of the size 'N \+ 1'; only whole sizes"):
        load(proto, buckets={"N": 4})


@pytest.mark.parametrize(
    ("body", "kind", "match"),
    [
        ("n = NonZero(x)  y = Cast<to = 1>(n)", StaticError, "depends on `X`|depends on `x`"),
        (
            "s = Shape(x)  t = Sub(nine, s)  y = Expand(one, t)",
            UnsupportedError,
            r"the size - N \+ 9 may be larger for smaller inputs",
        ),
    ],
)
def test_what_cannot_be_rounded_up_says_so(body, kind, match):
    proto = model(
        f"main (float[N] x) => (float[M] y) {{ {body} }}",
        initializers={"one": np.ones(1, np.float32), "nine": np.int64([9])},
    )
    with pytest.raises(kind, match=match) as raised:
        load(proto, buckets={"N": 4})(np.ones(3, np.float32), rng=jax.random.key(0))
    assert any("for 'N' from 1 to 4, as `buckets` asks for" in note for note in raised.value.__notes__)


def test_a_bucket_without_a_program_is_halved(traces):
    """Five scores at least, of which TopK takes five; so many are known where there are at least five."""
    proto = model(
        "main (float[N] x) => (float[K] y, int64[K] i) { y, i = TopK(x, five) }", initializers={"five": np.int64([5])}
    )
    loaded = load(proto, buckets={"N": 32})
    x = weights(40)
    with pytest.warns(
        UserWarning, match="buckets: no program serves 'N' from 1 to 32, so each half gets its own: TopK"
    ):
        np.testing.assert_array_equal(loaded(x[:20])[0], np.sort(x[:20])[:-6:-1])
    assert len(traces) == 2
    for n in (17, 32, 33, 40):
        np.testing.assert_array_equal(loaded(x[:n])[0], np.sort(x[:n])[:-6:-1])
    assert len(traces) == 3
    loaded = load(proto, buckets={"N": 6})
    with pytest.warns(UserWarning, match="no program serves 'N' from") as caught:
        loaded(x[:5])
    assert [re.search(r"from (\d to \d)", str(w.message))[1] for w in caught] == ["1 to 6", "4 to 6", "4 to 5"]
    loaded(x[:5])


def test_sizes_that_must_be_equal():
    """One may be 1, too, and then stand for all of the other."""
    proto = model("main (float[N,4] x, float[M,4] y) => (float[K,4] z) { z = Add(x, y) }")
    for n, m in ((3, 3), (1, 4)):
        with pytest.warns(UserWarning, match="no program serves 'N' from"):
            assert load(proto, buckets={"N": 4, "M": 4})(weights(n, 4), weights(m, 4)).shape == (max(n, m), 4)
    loaded = load(proto, buckets={"N": 4, "M": 4})
    with pytest.warns(UserWarning, match="no program"), pytest.raises(ShapeError, match="broadcast") as raised:
        loaded(weights(2, 4), weights(3, 4))
    assert any("'N' from 2 to 2 and 'M' from 3 to 3" in note for note in raised.value.__notes__)


def test_a_static_input_of_such_a_size():
    proto = model("main (float[A,B] x, int64[N] shape) => (float[C,D] y) { y = Reshape(x, shape) }")
    loaded = load(proto, buckets={"N": 4})
    with pytest.raises(UnsupportedError, match=r"'N' is a size of input 'shape', which must be known(.|\n)*needed"):
        loaded(np.ones((2, 3), np.float32), np.int64([3, 2]))


def test_strings_of_such_a_size():
    proto = model("main (string[N] s) => (string[N] y) { y = StringConcat(s, s) }", opset=20)
    words = np.array(["a", "b", "c"], object)
    with pytest.raises(UnsupportedError, match=r"'N' is a size of input 's', which must be known(.|\n)*holds strings"):
        load(proto, buckets={"N": 4})(words)


def test_a_wrong_size_is_caught(monkeypatch):
    """A program that takes what is behind for elements does not pass these tests."""
    monkeypatch.setattr("jaxops.compiler.padded.values.Padded.masked", lambda x, *_: x.array)
    with pytest.raises(AssertionError):
        agree(small_model(), [image(5)], {"width": 16})
