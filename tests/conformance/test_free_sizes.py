"""The standard's cases for each operator, their sizes free: exported once, they agree with the model at several sizes,
and so they do with sizes that are rounded up to buckets.

An axis of more than one element that is as long as one of an input before gets its name, as in a model whose author
names them; operands that must be known are initializers. `python tests/conformance/test_free_sizes.py` prints a table.
"""

import collections
import re
import sys
import warnings
from typing import Any

import jax
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

import jaxops.onnx
from jaxops.errors import JaxopsError

DATA = "how large the result is depends on data"
LEFT_OUT = {
    **dict.fromkeys(("Compress", "NonZero", "NonMaxSuppression", "Unique", "If", "Loop"), DATA),
    **dict.fromkeys(("Bernoulli", "RandomNormalLike", "RandomUniformLike", "Dropout"), "it draws random numbers"),
}  # fmt: skip
# (operator, input) → its axes whose sizes are numbers in any model: sizes of filters, of heads, of tuples of indices.
ALL = "all"
NUMBERS: dict[tuple[str, int], Any] = {
    ("GatherND", 1): (-1,),
    ("ScatterND", 1): (-1,),
    ("ConvTranspose", 1): ALL,
    ("CausalConvWithState", 1): ALL,
    ("DFT", 0): (-1,),
    ("STFT", 1): ALL,
}
# Cases that no program can serve, or that may mean several things, and what the error says.
REFUSED = {
    "test_split_to_sequence_1": r"sequence is unknown, as an axis of size data_1 is split into pieces of 2",
}
MOST = 2  # cases of each operator


def cases() -> dict[str, Any]:
    """Name → case, for those of one node on tensors of numbers."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return {case.name: case for case in found if _fits(case)}


def _fits(case: Any) -> bool:
    if case.model is None or len(case.model.graph.node) != 1 or case.model.graph.node[0].op_type in LEFT_OUT:
        return False
    values = case.model.graph.input
    return (
        0 < len(values) == len(case.data_sets[0][0])
        and all(v.type.WhichOneof("value") == "tensor_type" for v in values)
        and all(v.type.tensor_type.elem_type != TensorProto.STRING for v in values)
    )


CASES = cases()


def few() -> list[str]:
    """The first cases of each operator."""
    seen: collections.Counter[str] = collections.Counter()
    found = []
    for name, case in sorted(CASES.items()):
        operator = case.model.graph.node[0].op_type
        seen[operator] += 1
        found += [name] if seen[operator] <= MOST else []
    return found


def array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def freed(case: Any) -> tuple[ModelProto, list[np.ndarray]]:
    """The model of a case with names for sizes, and the values of its inputs."""
    model = ModelProto.FromString(case.model.SerializeToString())
    operator = model.graph.node[0].op_type
    known = {value.name for value in jaxops.onnx.load(model).inputs if value.static}
    names: dict[int, str] = {}
    values = []
    for info, value in zip(list(model.graph.input), map(array, case.data_sets[0][0]), strict=True):
        if info.name in known:
            model.graph.initializer.append(numpy_helper.from_array(value, info.name))
            model.graph.input.remove(info)
            continue
        fixed = NUMBERS.get((operator, len(values)))
        numbers = range(value.ndim) if fixed == ALL else [i % value.ndim for i in fixed or ()]
        here = [names.get(size, f"{info.name}_{axis}") for axis, size in enumerate(value.shape)]
        info.type.tensor_type.shape.ClearField("dim")
        for axis, (name, size) in enumerate(zip(here, value.shape, strict=True)):
            dim = info.type.tensor_type.shape.dim.add()
            if size < 2 or axis in numbers:
                dim.dim_value = size
            else:
                dim.dim_param = name
                names.setdefault(size, name)
        values.append(value)
    for info in model.graph.output:
        if info.type.WhichOneof("value") == "tensor_type":
            info.type.tensor_type.ClearField("shape")
    return model, values


def problem(name: str) -> str:
    """What is wrong with the program of a case; empty if it gives what the model gives."""
    model, values = freed(CASES[name])
    loaded = jaxops.onnx.load(model)
    wanted = loaded(*values)
    try:
        program = loaded.export()
    except JaxopsError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    for factor in (1, 2):
        shapes = [value.shape for value in loaded.inputs]
        given = [np.tile(x, [factor ** isinstance(d, str) for d in s]) for x, s in zip(values, shapes, strict=True)]
        try:
            wanted = loaded(*given)
        except JaxopsError:
            continue  # twice these sizes fit nothing
        with jax.enable_x64(any(aval.dtype.itemsize == 8 for aval in program.in_avals) or jax.config.jax_enable_x64):
            try:
                found = program.call(loaded.params, *given)
            except ValueError as error:
                if factor > 1:
                    continue  # beyond a limit of the model
                return f"ValueError: {str(error).splitlines()[0]}"
        for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            if got.shape != want.shape:
                return f"the shape is {got.shape}, not {want.shape}"
            if not np.allclose(*(np.asarray(y).astype(np.complex128) for y in (got, want)), 1e-3, 1e-4, True):
                return "other values"
    return ""


@pytest.mark.grid
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", few())
def test_free_sizes(name):
    found = problem(name)
    assert re.search(REFUSED[name], found) if name in REFUSED else found == ""


def problem_in_buckets(name: str) -> str:
    """What is wrong with a case whose sizes are rounded up to multiples of 7; empty if it gives the model's values."""
    model, values = freed(CASES[name])
    plain = jaxops.onnx.load(model)
    names = {d for value in plain.inputs for d in value.shape or () if isinstance(d, str)}
    try:
        found = jaxops.onnx.load(model, buckets=dict.fromkeys(names, 7))(*values)
    except JaxopsError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    for got, want in zip(*map(jax.tree.leaves, (found, plain(*values))), strict=True):
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            return f"the shape is {got.shape}, not {want.shape}, or {got.dtype} is not {want.dtype}"
        if not np.allclose(*(np.asarray(y).astype(np.complex128) for y in (got, want)), 1e-3, 1e-4, True):
            return "other values"
    return ""


REFUSED_IN_BUCKETS = dict.fromkeys(
    ("test_convinteger_with_padding", "test_convinteger_without_padding"),
    r"UnsupportedError: the size max\(x_\d - w_\d \+ \d, 0\) may be larger for smaller inputs",
)


@pytest.mark.grid
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", few())
def test_in_buckets(name):
    found = problem_in_buckets(name)
    assert re.search(REFUSED_IN_BUCKETS[name], found) if name in REFUSED_IN_BUCKETS else found == ""


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_value_in_a_bucket_is_noticed(monkeypatch):
    monkeypatch.setattr("jaxops.compiler.padded.values.Padded.masked", lambda x, *_: x.array)
    assert problem_in_buckets("test_softmax_axis_1") == "other values"


def test_there_are_cases_of_most_operators():
    assert len(few()) > 300
    assert (
        sum(
            any(isinstance(d, str) for v in jaxops.onnx.load(freed(CASES[name])[0]).inputs for d in v.shape or ())
            for name in few()[:40]
        )
        > 30
    )


@pytest.mark.parametrize(("wrong", "said"), [(lambda x: x, "other values"), (lambda x: x[:1], "the shape is")])
def test_a_wrong_program_is_noticed(wrong, said, monkeypatch):
    monkeypatch.setattr(jax.export.Exported, "call", lambda program, params, x: wrong(x))
    assert problem("test_abs").startswith(said)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    rows: dict[str, list[str]] = collections.defaultdict(list)
    for name in sys.argv[1:] or few():
        rows[problem(name)].append(name)
    for text, names in sorted(rows.items(), key=lambda row: -len(row[1])):
        print(len(names), text or "right", "" if not text else ", ".join(names[:3]))
