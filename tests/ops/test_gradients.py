"""Every differentiable operator at every version: forward- and reverse-mode derivatives against differences."""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import microsoft_gradient_cases  # noqa: F401 - adds its cases to the table
import numpy as np
import pytest
from gradient_cases import CASES, Case

from jaxops.errors import JaxopsError, UnsupportedError
from jaxops.onnx import registry
from jaxops.onnx.schemas import operators, versions

# Why operators that take and give floats have no case.
REASONS = {
    "it draws numbers": "Bernoulli com.microsoft.Sampling",
    "the size of its result depends on data: see there": "Compress Unique com.microsoft.Unique",
    "it rounds to integers": "DynamicQuantizeLinear com.microsoft.DynamicQuantizeLSTM "
    "com.microsoft.DynamicQuantizeMatMul",
    "its data are integers": "com.microsoft.QAttention com.microsoft.QGemm com.microsoft.QMoE "
    "com.microsoft.QEmbedLayerNormalization",
    "it is piecewise constant": "ai.onnx.ml.Binarizer ai.onnx.ml.LabelEncoder ai.onnx.ml.OneHotEncoder "
    "ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier ai.onnx.ml.TreeEnsembleRegressor",
    "it reads a cache that beams permute, and multiplies as Attention": "com.microsoft.DecoderMaskedSelfAttention",
    "it runs graphs: see there": "Loop Scan SequenceMap ai.onnx.preview.FlexAttention com.microsoft.BeamSearch "
    "com.microsoft.WhisperBeamSearch "
    "ai.onnx.preview.training.Gradient",
    "it is a step of training: see there": "ai.onnx.preview.training.Adagrad ai.onnx.preview.training.Adam "
    "ai.onnx.preview.training.Momentum",
}
REASONS = {name: why for why, names in REASONS.items() for name in names.split()}

STEP = 1e-2


class Run(NamedTuple):
    """A case at a version, as the operator takes it."""

    operator: Any
    inputs: list[Any]
    attributes: dict[str, Any]
    outputs: int
    narrow: bool  # computes in float32, where differences need a longer step

    def __call__(self, moving: list[Any]) -> list[Any]:
        """The floats that come out, for these in place of the floats that go in."""
        values = iter(moving)
        given = [self._entered(k, value, values) for k, value in enumerate(self.inputs)]
        found = self.operator.call(given, self.attributes, n_outputs=self.outputs, rng=None)
        return [y for y in jax.tree.leaves(found[: self.outputs]) if jnp.issubdtype(y.dtype, jnp.floating)]

    def _entered(self, position: int, value: Any, moving: Any) -> Any:
        if isinstance(value, list):
            return [self._entered(position, item, moving) for item in value]
        if value is None or self.operator.mark(position):
            return value
        return next(moving) if value.dtype.kind == "f" else jnp.asarray(value)

    @property
    def moving(self) -> list[Any]:
        """The floats that go in."""
        free = [value for k, value in enumerate(self.inputs) if not self.operator.mark(k)]
        return [jnp.asarray(x) for x in jax.tree.leaves(free) if x.dtype.kind == "f"]


def functions(name: str) -> list[Any]:
    """The operator at the newest version of each function that does it."""
    domain, _, op = name.rpartition(".")
    found: dict[Callable[..., Any], Any] = {}
    for since in versions(op, domain):
        try:
            operator = registry.find(op, domain, since)
        except UnsupportedError:
            continue
        if operator.fn is not None:
            found[operator.fn] = operator
    return list(found.values())


def fitted(operator: Any, case: Case) -> Run | None:
    """The case at a version, where an input may be an attribute; None where the version cannot say it."""
    schema, inputs, attributes = operator.schema, list(case.inputs), dict(case.attributes)
    if case.opset is not None:
        found = registry.find(schema.name, schema.domain, case.opset)
        if found.fn is not operator.fn:
            return None
        operator, schema = found, found.schema
    variadic = bool(schema.inputs) and schema.inputs[-1].option == "variadic"
    if not variadic:
        newest = functions(f"{schema.domain}.{schema.name}".lstrip("."))[-1]
        for formal, value in list(zip(newest.formals, inputs, strict=False))[schema.input_counts[1] :]:
            if value is not None:
                attributes[formal] = value.tolist()
        inputs = inputs[: schema.input_counts[1]]
    if not set(attributes) <= set(schema.attributes) or case.outputs > (schema.output_counts[1] or case.outputs):
        return None
    try:
        operator.check_arity([x is not None for x in inputs], case.outputs)
        return Run(operator, inputs, operator.complete(attributes), case.outputs, case.narrow)
    except JaxopsError:
        return None


def runs(name: str) -> list[Run]:
    found = [fitted(operator, case) for operator in functions(name) for case in CASES[name]]
    return [run for run in found if run is not None]


def directions(shapes: list[Any], start: float) -> list[Any]:
    """A direction for each array, without zeros."""
    return [jnp.cos(start + jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape) + 0.1 for x in shapes]


def derivatives(run: Callable[..., Any], moving: list[Any]) -> tuple[Any, ...]:
    """(results, their derivatives along a direction, and both modes along a second direction)."""
    along = directions(moving, 0.5)
    out, push = jax.linearize(lambda *xs: run(list(xs)), *moving)
    forward, across = push(*along), directions(out, 1.5)
    back = jax.linear_transpose(push, *moving)(across)
    return out, forward, _dot(forward, across), _dot(back, along)


def _dot(a: Any, b: Any) -> Any:
    return sum(jnp.sum(x.astype(float) * y.astype(float)) for x, y in zip(a, b, strict=True))


def check(cases: list[Run]) -> None:
    """All cases of an operator, in one program that runs at three points."""
    with jax.enable_x64(True):
        moving = [run.moving for run in cases]
        program = jax.jit(lambda points: [derivatives(*pair) for pair in zip(cases, points, strict=True)])
        # Not optimized, as compiling is what takes the time here.
        program = program.lower(moving).compile(compiler_options={"xla_backend_optimization_level": 0})
        found = program(moving)
        narrow = [
            r.narrow or any(y.dtype == jnp.float32 for y in out) for r, (out, *_) in zip(cases, found, strict=True)
        ]
        steps = [STEP if is_narrow else STEP / 1e4 for is_narrow in narrow]
        ends = [
            [
                [x + s * h * t for x, t in zip(xs, directions(xs, 0.5), strict=True)]
                for xs, h in zip(moving, steps, strict=True)
            ]
            for s in (-1, 1)
        ]
        before, after = map(program, ends)
    for run, step, (low, *_), (high, *_), (_, forward, ahead, back) in zip(
        cases, steps, before, after, found, strict=True
    ):
        what = f"{run.operator.version} {run.attributes}"
        limit = 1e-2 if step == STEP else 1e-6
        for ours, left, right in zip(forward, low, high, strict=True):
            expected = (np.asarray(right, float) - np.asarray(left, float)) / (2 * step)
            np.testing.assert_allclose(ours, expected, rtol=limit, atol=limit, err_msg=what)
        np.testing.assert_allclose(back, ahead, rtol=limit / 10, atol=limit / 10, err_msg=f"{what}, reverse mode")


@pytest.mark.grid
@pytest.mark.parametrize("name", sorted(CASES))
def test_derivatives(name):
    check(runs(name))


def floats(operator: Any) -> bool:
    """Whether floats come out that may depend on floats that come in."""
    schema = operator.schema
    taken = [f for k, f in enumerate(schema.inputs) if operator.mark(k) is None]
    return all(any("tensor(float)" in kind for f in formals for kind in f.types) for formals in (taken, schema.outputs))


@functools.cache
def differentiable() -> list[str]:
    names = [f"{domain}.{name}".lstrip(".") for domain in registry.DOMAINS for name in operators(domain)]
    return [name for name in names if any(map(floats, functions(name)))]


def test_each_operator_has_a_case_or_a_reason():
    assert len(differentiable()) > 200
    assert [name for name in differentiable() if name not in CASES and name not in REASONS] == []
    assert [name for name in {*CASES, *REASONS} if name not in differentiable()] == []
    assert REASONS.keys().isdisjoint(CASES)


def test_each_case_is_run_and_each_version_has_one():
    unused, without = [], []
    for name, cases in CASES.items():
        found = [(case, operator) for operator in functions(name) for case in cases if fitted(operator, case)]
        unused += [(name, case.attributes) for case in cases if not any(case is c for c, _ in found)]
        without += [o.version for o in functions(name) if floats(o) and not any(o is operator for _, operator in found)]
    assert unused == []
    assert without == []


# What follows shows that the checks can fail.


def test_a_wrong_derivative_is_caught():
    def half(inputs: Any, attributes: Any, **rest: Any) -> Any:
        return (inputs[0] + jax.lax.stop_gradient(inputs[0]),)

    wrong = SimpleNamespace(version="Wrong-1", mark=lambda position: None, call=half)
    with pytest.raises(AssertionError, match="Wrong-1"):
        check([runs("Sin")[0]._replace(operator=wrong)])


def test_an_operator_without_a_case_is_caught(monkeypatch):
    monkeypatch.delitem(CASES, "Sin")
    with pytest.raises(AssertionError, match="Sin"):
        test_each_operator_has_a_case_or_a_reason()


def test_a_version_without_a_case_is_caught(monkeypatch):
    monkeypatch.setitem(CASES, "Gemm", [case for case in CASES["Gemm"] if case.opset == 13])
    with pytest.raises(AssertionError, match="Gemm-6"):
        test_each_case_is_run_and_each_version_has_one()
