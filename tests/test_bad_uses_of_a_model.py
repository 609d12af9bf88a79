"""Whatever `load`, a model's methods and `opset(n)` are given, they take it or refuse it with an error of jaxops."""

import runpy
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

import jaxops.onnx
from jaxops.errors import ArgumentError, DTypeError, JaxopsError, SignatureError
from jaxops.onnx import check, decoder, load, opset

OTHER = runpy.run_path(str(Path(__file__).parent / "ops/test_bad_calls_of_every_operator.py"))
escaped, VALUES = OTHER["escaped"], {**OTHER["STRANGE"], **OTHER["UNUSUAL"]}
PROTO = model(
    "main (float[N,3] x, int64[K] s) => (float[M] y) { h = MatMul(x, w) r = Add(h, b) y = Reshape(r, s) }",
    initializers={"w": np.ones((3, 3), np.float32), "b": np.ones(3, np.float32)},
)
M, OP = load(PROTO), opset(18)
X, S, PADS = np.ones((2, 3), np.float32), np.int64([6]), np.int64([0, 0, 0, 0])
USES: dict[str, Any] = {
    "input": lambda v: M(v, S),
    "static input": lambda v: M(X, v),
    "params": lambda v: M.apply(v, X, S),
    "a parameter": lambda v: M.apply({**M.params, "w": v}, X, S),
    "outputs": lambda v: M(X, S, outputs=v),
    "an output": lambda v: M(X, S, outputs=[v]),
    "rng": lambda v: M(X, S, rng=v),
    "load": load,
    "check": check,
    "load static": lambda v: load(PROTO, static=v),
    "load trainable": lambda v: load(PROTO, trainable=v),
    "load operators": lambda v: load(PROTO, operators=v),
    "load an operator": lambda v: load(PROTO, operators={("my", "Op"): v}),
    "load names": lambda v: load(PROTO, names=v),
    "load sizes": lambda v: load(PROTO, sizes=v),
    "load a size": lambda v: load(PROTO, sizes={"N": v}),
    "load sharding": lambda v: load(PROTO, sharding=v),
    "what a rule of sharding gives": lambda v: load(PROTO, sharding=lambda *a: v),
    "nest": M.nest,
    "flatten": M.flatten,
    "export sizes": lambda v: M.export(sizes=v),
    "export a size": lambda v: M.export(sizes={"N": v}),
    "export platforms": lambda v: M.export(platforms=v),
    "astype": M.astype,
    "astype keep": lambda v: M.astype(jnp.bfloat16, keep=v),
    "save params": lambda v: M.save("nowhere/a.onnx", v),
    "save a parameter": lambda v: M.save("nowhere/a.onnx", {**M.params, "w": v}),
    "to_python params": lambda v: M.to_python("nowhere/p", v),
    "compare": lambda v: M.compare(v, S),
    "compare rtol": lambda v: M.compare(X, S, rtol=v),
    "summary": lambda v: M.summary(v, S),
    "summary depth": lambda v: M.summary(X, S, depth=v),
    "summary sizes": lambda v: M.summary(sizes=v),
    "show grep": lambda v: M.show(grep=v),
    "show head": lambda v: M.show(head=v),
    "plot depth": lambda v: M.plot(depth=v),
    "decoder cache": lambda v: decoder(M, cache=v, length=3),
    "decoder length": lambda v: decoder(M, length=v),
    "opset": opset,
    "attribute of an opset": lambda v: OP.Flatten(X, axis=v),
    "list of an opset": lambda v: OP.Transpose(X, perm=v),
    "word of an opset": lambda v: OP.Pad(X, PADS, mode=v),
    "type of an opset": lambda v: OP.Cast(X, to=v),
    "tensor of an opset": lambda v: OP.Constant(value=v),
    "strings of an opset": lambda v: OP.Constant(value_strings=v),
    "input of an opset": lambda v: OP.Add(X, v),
    "inputs of an opset": lambda v: OP.Concat(v, axis=0),
    "sequence of an opset": lambda v: OP.SequenceAt(v, 0),
    "static input of an opset": lambda v: OP.Reshape(X, v),
    "n_outputs of an opset": lambda v: OP.Split(X, n_outputs=v),
    "rng of an opset": lambda v: OP.Bernoulli(X, rng=v),
}


@pytest.mark.parametrize("use", USES)
def test_only_errors_of_jaxops_get_out(use, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nowhere").mkdir()
    start = zlib.crc32(use.encode()) % 16
    for label in list(VALUES)[start::16]:
        if not callable(VALUES[label]) and not (
            use == "load" and label == "generator"
        ):  # what is called is the caller's
            error = escaped(lambda value: USES[use](value), {"value": VALUES[label]})
            assert error is None, f"{label}: {error!r}"


NAMED = [
    (lambda: M.summary(X, S, depth="a"), DTypeError, "summary: `depth` must be integers, got str"),
    (lambda: M.nest([3]), ArgumentError, r"nest: `params` is \[3\]; it must be a dictionary"),
    (lambda: load(PROTO, static=3), ArgumentError, "load: `static` is 3; it must be Mapping or Collection or Callable"),
    (lambda: M.astype(np.datetime64), ArgumentError, "astype: .*datetime64.* is not one of bfloat16, float16, float64"),
    (lambda: M(X, S, outputs="y"), SignatureError, "`outputs` is 'y'; give a list of names"),
    (lambda: M.apply(3, X, S), SignatureError, "params is 3; give a dictionary like model.params"),
    (lambda: M(X, S, rng=3), ArgumentError, "apply: `rng` is 3; it must be one random key"),
    (
        lambda: M(X, S, rng=np.zeros(3, np.uint32)),
        ArgumentError,
        r"apply: `rng` is uint32\[3\].*; it must be one random key",
    ),
    (
        lambda: M.apply({**M.params, "w": [[1], [2, 3]]}, X, S),
        ArgumentError,
        r"params: `w` is \[\[1\], \[2, 3\]\], which",
    ),
    (lambda: M(jax.random.key(0), S), DTypeError, r"input 'x' is key<fry>\[\], but the model expects x: float32"),
    (
        lambda: OP.SequenceAt([1, 2], 0),
        SignatureError,
        r"input 0 `input_sequence` is \[1, 2\]; it must be a list of array",
    ),
    (lambda: OP.Add(X, jax.random.key(0)), DTypeError, "Add-14: input 1 `B` holds key<fry>, which are not numbers"),
    (lambda: OP.Split(X, n_outputs="a"), DTypeError, "Split-18: `n_outputs` must be integers, got str"),
    (
        lambda: OP.Add(X, [[1], [2, 3]]),
        ArgumentError,
        r"Add-14: input `B` is \[\[1\], \[2, 3\]\], which is not an array of nu",
    ),
]


@pytest.mark.parametrize(("use", "error", "match"), NAMED)
def test_the_argument_is_named(use, error, match):
    with pytest.raises(error, match=match):
        use()


def test_another_error_would_be_seen():
    assert isinstance(escaped(lambda value: M.graph.nodes[value], {"value": "a"}), TypeError)
    assert issubclass(jaxops.JaxopsError, JaxopsError)
