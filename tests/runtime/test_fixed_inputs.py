"""Inputs that decide which branch is taken: their numbers of NumPy are known, and `load` may fix them."""

import importlib
import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import model
from programs import equations

from jaxops.__main__ import main
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError
from jaxops.onnx import load

# As voice detectors are exported: a branch for each sampling rate, and each takes its own length only.
TWO_RATES = model(
    """main (float[N,L] x, float[N,2] state, int64 sr) => (float[N,4] y, float[N,2] after) {
        rate = Constant<value = int64 {16000}>()  c = Equal(sr, rate)
        y, after = If(c) <
            then_branch = t () => (float[N,4] a, float[N,2] b) {
                s = Constant<value_ints = [-1, 4, 2]>()  r = Reshape(x, s)  m = Constant<value_ints = [2]>()
                a = ReduceSum<keepdims = 0>(r, m)  h = MatMul(x, w16)  b = Add(h, state) },
            else_branch = e () => (float[N,4] a8, float[N,2] b8) {
                a8 = Tanh(x)  h8 = MatMul(x, w8)  b8 = Add(h8, state) }>
    }""",
    opset=18,
    initializers={
        "w16": np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32),
        "w8": np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32),
    },
)
STATE = np.float32([[0.5, -1]] * 3)
LENGTHS = {16000: 8, 8000: 4}


def sound(rate):
    return np.random.default_rng(rate).normal(size=(3, LENGTHS[rate])).astype(np.float32)


def peer(x, state, sr):
    session = onnxruntime.InferenceSession(TWO_RATES.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x, "state": state, "sr": np.array(sr)})


def agree(found, rate):
    for got, expected in zip(found, peer(sound(rate), STATE, rate), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rate", LENGTHS)
@pytest.mark.parametrize("given", [np.array, np.int64, int, lambda rate: np.array(rate, np.int32)])
def test_a_number_of_numpy_decides_while_tracing(rate, given):
    loaded, x, sr = load(TWO_RATES), sound(rate), given(rate)
    for _ in range(3):
        agree(loaded(x, STATE, sr), rate)
    assert not loaded.cuts
    agree(loaded.apply(loaded.params, x, STATE, sr=sr), rate)
    agree(jax.jit(lambda x, state: loaded(x, state, sr))(x, STATE), rate)
    assert "cond" not in {e.primitive.name for e in equations(jax.make_jaxpr(lambda x: loaded(x, STATE, sr))(x).jaxpr)}
    with jax.disable_jit():
        agree(loaded(x, STATE, sr), rate)
    _, rows = jax.lax.scan(lambda state, x: loaded(x, state, sr)[::-1], STATE, np.stack([x, x]))
    np.testing.assert_allclose(rows[0], peer(x, STATE, rate)[0], rtol=1e-5, atol=1e-6)
    grads = jax.grad(lambda params: loaded.apply(params, x, STATE, sr)[1].sum())(loaded.params)
    used, other = ("w16", "w8") if rate == 16000 else ("w8", "w16")
    np.testing.assert_allclose(grads[used], np.repeat(x.sum(0)[:, None], 2, 1), rtol=1e-4)
    assert not grads[other].any()
    mapped = jax.vmap(lambda x: loaded(x[None], STATE[:1], sr)[0][0])(x)
    np.testing.assert_allclose(mapped, peer(x, STATE, rate)[0], rtol=1e-5, atol=1e-6)
    assert str(loaded.summary(x, STATE, sr))


def test_both_values_one_after_the_other():
    loaded = load(TWO_RATES)
    for rate in (16000, 8000, 16000, 8000):
        agree(loaded(sound(rate), STATE, np.array(rate)), rate)


def test_a_traced_one_may_take_both_branches():
    loaded = load(TWO_RATES)
    agree(loaded(sound(8000), STATE, jnp.int32(8000)), 8000)  # in pieces
    assert list(loaded.cuts) == ["y"]
    with pytest.raises(ShapeError, match=r"reshape|matmul") as raised:
        jax.jit(loaded)(sound(8000), STATE, np.array(8000))
    remedy = "input 'sr' may decide it: load(path, values={'sr': value}) loads one branch; or give a NumPy value"
    assert any(note.endswith(remedy) for note in raised.value.__notes__)


def test_only_numbers_decide():
    """A larger input of a condition is data: a program for each of its values would be too many."""
    loaded = load(
        model("""main (float[N] x, int64[N] i, int64 n, bool b) => (float[N] y) {
            zero = Constant<value = int64 {0}>()  s = ReduceSum<keepdims = 0>(i)  g = Greater(s, n)  c = And(g, b)
            y = If(c) <then_branch = t () => (float[N] a) { a = Neg(x) },
                       else_branch = e () => (float[N] d) { d = Abs(x) }>
        }""")
    )
    assert [v.name for v in loaded.inputs if v.decides] == ["n", "b"]
    x = np.float32([-1, 2])
    np.testing.assert_array_equal(loaded(x, np.array([1, 2]), np.array(2), True), -x)
    np.testing.assert_array_equal(loaded(x, np.array([1, 2]), np.array(3), True), abs(x))


def test_threads_are_started_for_reading_only(tmp_path, monkeypatch):
    path = tmp_path / "rates.onnx"
    path.write_bytes(TWO_RATES.SerializeToString())
    loaded, x = load(path), sound(8000)
    loaded(x, STATE, jnp.int32(8000))
    started = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread) or start(thread))
    loaded(x, STATE, jnp.int32(8000))
    assert not started


@pytest.mark.parametrize("rate", LENGTHS)
def test_a_value_for_good(rate, tmp_path, monkeypatch):
    path = tmp_path / "rates.onnx"
    path.write_bytes(TWO_RATES.SerializeToString())
    loaded, x = load(path, values={"sr": rate}), sound(rate)
    assert [v.name for v in loaded.inputs] == ["x", "state"]
    assert set(loaded.params) == {"w16", "w8"}
    agree(loaded(x, STATE), rate)
    agree(jax.jit(loaded)(x, STATE), rate)
    agree(pickle.loads(pickle.dumps(loaded))(x, STATE), rate)
    assert not loaded.cuts
    program = loaded.export({"L": LENGTHS[rate]})
    agree(program.call(loaded.params, x, STATE), rate)
    assert loaded.compare(x, STATE).agrees
    assert str(loaded.summary(sizes={"N": 2, "L": LENGTHS[rate]}))
    loaded.to_python(tmp_path / f"rates_{rate}")
    monkeypatch.syspath_prepend(tmp_path)
    written = importlib.import_module(f"rates_{rate}")
    agree(written.apply(written.load_params(), x, STATE), rate)
    loaded.save(tmp_path / "tuned.onnx", {k: v * 2 for k, v in loaded.params.items()})
    tuned = load(tmp_path / "tuned.onnx")
    assert [v.name for v in tuned.inputs] == ["x", "state", "sr"]
    np.testing.assert_allclose(tuned(x, 2 * STATE, rate)[1], 2 * loaded(x, STATE)[1], rtol=1e-5)
    narrow = loaded.astype(jnp.bfloat16)(x.astype(jnp.bfloat16), STATE.astype(jnp.bfloat16))
    np.testing.assert_allclose(np.float32(narrow[1]), loaded(x, STATE)[1], atol=0.1)


def test_any_tensor_may_have_a_value():
    loaded = load(TWO_RATES, values={"state": STATE, "sr": np.int32(8000)})
    assert [v.name for v in loaded.inputs] == ["x"]
    assert set(loaded.params) == {"w16", "w8"}
    agree(loaded(sound(8000)), 8000)


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({"rs": 1}, ArgumentError, "`values`: the model has no input 'rs'; its inputs are "),
        ({"stat": 1}, ArgumentError, "`values`: the model has no input 'stat'; similar: 'state'"),
        ({"sr": 1.5}, ArgumentError, "input 'sr' is 1.5, but the model expects sr: int64"),
        ({"sr": np.float32(1)}, DTypeError, "input 'sr' is float32.*, but the model expects sr: int64"),
        ({"state": np.zeros((3, 5), np.float32)}, ShapeError, r"input 'state' has shape \(3, 5\)"),
    ],
)
def test_a_value_that_does_not_fit(values, error, text):
    with pytest.raises(error, match=text):
        load(TWO_RATES, values=values)


def test_a_traced_value_is_refused():
    with pytest.raises(StaticError, match=r"`values`: 'sr' is traced: .*\n.*load the model outside of jax.jit"):
        jax.jit(lambda sr: load(TWO_RATES, values={"sr": sr})(sound(8000), STATE))(8000)


def test_a_sequence_has_no_value():
    proto = model("main (seq(float[N]) s, float[N] x) => (float[M] y) { y = ConcatFromSequence<axis = 0>(s) }")
    with pytest.raises(ArgumentError, match="`values`: input 's' is not a tensor"):
        load(proto, values={"s": [np.zeros(3, np.float32)]})


def test_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "rates.onnx"
    path.write_bytes(TWO_RATES.SerializeToString())
    assert main(["compare", str(path), "--value", "sr=16000", "--size=N=3", "--size=L=8"]) == 0
    assert main(["export", str(path), str(tmp_path / "e"), "--value=sr=8000", "--size=L=4"]) == 0
    assert "wrote" in capsys.readouterr().out
    for value, text in (("sr=many", "--value sr=many: write a number"), ("rs=1", "has no input 'rs'")):
        assert main(["run", str(path), "--value", value, "--cache="]) == 1
        assert text in capsys.readouterr().err
