"""`load` names what a bound cannot serve, if the inputs declare enough for a trace."""

import jax
import numpy as np
import pytest
from graphs import model

from jaxops.errors import ArgumentError, StaticError, UnsupportedError
from jaxops.onnx import load


def test_what_needs_more_than_the_count_is_named_with_the_bound():
    """`load` names the node if the inputs declare all sizes; else the first call does."""
    proto, named = (
        model(
            """main (float[5] x, float[SIZE] w) => (float y) {
                at = NonZero(x) two = Constant<value_ints = [2]>() f = Cast<to = 1>(at) flat = Reshape(f, minus)
                n = Shape(flat) halves = Div(n, two) shape = Concat<axis = 0>(two, halves) r = Reshape(w, shape)
                y = ReduceSum<keepdims = 0>(r) }""".replace("SIZE", size),
            initializers={"minus": np.array([-1])},
        )
        for size in ("6", "k")
    )
    for net_, sizes in ((proto, None), (named, {"k": 6})):
        with pytest.raises(
            UnsupportedError, match=r"(?s)reshape: .*counted_0 is the size of 'at', of at most 4\n"
        ) as raised:
            load(net_, bounds={"at": 4}, sizes=sizes)
        assert any("node 'r'" in note for note in raised.value.__notes__)
    net_ = load(named, bounds={"at": 4})
    for call in (jax.jit(net_.apply), net_.apply):
        with pytest.raises(UnsupportedError, match=r"(?s)reshape: .*counted_0 is the size of 'at', of at most 4\n"):
            call({}, np.ones(5, np.float32), np.ones(6, np.float32))
    with pytest.raises(StaticError, match=r"load\(path, bounds={'at': n}\)"):
        jax.jit(load(proto).apply)({}, np.ones(5, np.float32), np.ones(6, np.float32))


def test_every_other_fault_waits_for_the_call():
    proto = model("main (float[5] x) => (int64[1,K] y) { r = RandomNormalLike(x) s = Add(x, r) y = NonZero(s) }")
    net = load(proto, bounds={"y": 5})
    assert net(np.ones(5, np.float32), rng=jax.random.key(0)).shape == (1, 5)
    with pytest.raises(ArgumentError, match="rng"):
        net(np.ones(5, np.float32))
