"""What an operator does to each sample of a batch alone, it does for a symbolic number of them.

Which operands have a batch is found by trying: where twice the samples give twice the results.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import SymbolicScope, export, symbolic_shape
from operators import NAMES, drawn
from random_nodes import decoded, difference

from jaxops.errors import JaxopsError
from jaxops.onnx.lenient import tolerant

LEFT_OUT = {
    "Compress": "the size of its result depends on data",
    "SequenceConstruct": "it gives a sequence",
    "SequenceInsert": "it gives a sequence",
    "SplitToSequence": "it gives a sequence",
    "ai.onnx.ml.CategoryMapper": "it gives strings",
}


class Call:
    """A node as a function of the operands that may be traced."""

    def __init__(self, case):
        self.case, self.operator = case, tolerant(case.op, case.domain, case.opset)
        self.operator.check_arity([x is not None for x in case.inputs], case.n_outputs)
        self.attributes = self.operator.complete(decoded(case.attributes))
        self.free = [
            k
            for k, x in enumerate(case.inputs)
            if isinstance(x, np.ndarray) and not self.operator.mark(k) and x.dtype.kind in "fiub"
        ]
        self.operands = [case.inputs[k] for k in self.free]
        self.results = self.values(self.operands) if self.operands else []

    def __call__(self, *operands):
        given = list(self.case.inputs)
        for k, x in zip(self.free, operands, strict=True):
            given[k] = x
        self.operator.check(given)
        found = self.operator.call(given, self.attributes, n_outputs=self.case.n_outputs, rng=None)
        return [jnp.asarray(y) for y in found[: self.case.n_outputs] if y is not None]

    def values(self, operands):
        return [np.asarray(y) for y in self(*map(jnp.asarray, operands))]


def twice(arrays, which):
    return [np.concatenate([x, x]) if k in which else x for k, x in enumerate(arrays)]


def batched(call):
    """(the places of the operands that have a batch, the results for twice the samples), or None."""
    first = call.operands[0] if call.operands else np.zeros(())
    if not first.ndim or not first.shape[0]:
        return None
    alike = tuple(k for k, x in enumerate(call.operands) if x.ndim and x.shape[0] == first.shape[0])
    for which in dict.fromkeys([(0,), alike]):
        try:
            found = call.values(twice(call.operands, which))
        except JaxopsError:  # the samples of these operands belong together with those of others
            continue
        scalars = any(not y.ndim for y in call.results)
        if not scalars and not difference(found, twice(call.results, range(len(call.results)))):
            return which, found
    return None


def call_of(name):
    for k in range(8):
        try:
            return Call(drawn(np.random.default_rng([6, k]), name))
        except (LookupError, JaxopsError):  # a node that this opset does not have, or not of these types
            continue
    return None


def exported(call, which):
    scope = SymbolicScope()
    sizes = [
        symbolic_shape(", ".join(["b", *map(str, x.shape[1:])]), scope=scope) if k in which else x.shape
        for k, x in enumerate(call.operands)
    ]
    return export(jax.jit(call))(
        *[jax.ShapeDtypeStruct(size, x.dtype) for size, x in zip(sizes, call.operands, strict=True)]
    )


@pytest.mark.grid
@pytest.mark.parametrize("name", [name for name in NAMES if name not in LEFT_OUT])
def test_a_symbolic_batch(name):
    with jax.enable_x64(True), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        call = call_of(name)
        found = call and batched(call)
        if found:
            which, expected = found
            got = exported(call, which).call(*twice(call.operands, which))
            assert not difference([np.asarray(y) for y in got], expected)


def test_the_search_finds_batches():
    with jax.enable_x64(True):
        calls = {name: call_of(name) for name in ("Conv", "Gemm", "com.microsoft.Attention", "GatherElements")}
        found = {name: call and batched(call) for name, call in calls.items()}
    assert {name: places and places[0] for name, places in found.items()} == {
        "Conv": (0,), "GatherElements": (0, 1), "Gemm": (0, 2), "com.microsoft.Attention": (0,)
    }  # fmt: skip
