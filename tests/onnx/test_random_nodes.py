"""Random single nodes beside onnxruntime, and the reference evaluator where onnxruntime has no such node.

The nodes are made in `random_nodes`; a node is wrong if it agrees with neither. `JAXOPS_RANDOM_NODES=5000` runs
so many, `JAXOPS_RANDOM_SEED=1` others, `JAXOPS_RANDOM_ONLY=Resize,LSTM` those operators only.
They run eagerly with x64 on; `JAXOPS_RANDOM_COMPILED` of them (40) are loaded as models and run compiled with x64 off.
"""

import os
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from random_nodes import Case, case, difference

from jaxops.errors import JaxopsError, OutOfRangeError
from jaxops.onnx import load, registry

COUNT = int(os.environ.get("JAXOPS_RANDOM_NODES", "140"))
COMPILED = int(os.environ.get("JAXOPS_RANDOM_COMPILED", "40"))
SEED = int(os.environ.get("JAXOPS_RANDOM_SEED", "0"))
ONLY = tuple(filter(None, os.environ.get("JAXOPS_RANDOM_ONLY", "").split(",")))
PIECES = 16
PACE = 7  # from one compiled case to the next; no divisor of the number of operators


def model(given: Case) -> Any:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(given.inputs)]
    outputs = [f"y{i}" for i in range(given.n_outputs)]
    node = helper.make_node(given.op, names, outputs, domain=given.domain, **given.attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, given.inputs, strict=True)
        if x is not None
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in outputs])
    imports = [helper.make_opsetid(given.domain, given.opset)]
    imports += [helper.make_opsetid("", 20)] if given.domain else []
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def peers(given: Case) -> dict[str, Any]:
    """The outputs of the peers that have such a node."""
    proto, found = model(given), {}
    named = {f"x{i}": x for i, x in enumerate(given.inputs) if x is not None}
    onnxruntime.set_default_logger_severity(4)
    runs = {
        "onnxruntime": lambda: onnxruntime.InferenceSession(proto.SerializeToString()).run(None, named),
        "reference": lambda: ReferenceEvaluator(proto).run(None, named),
    }
    for name, run in runs.items():
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                found[name] = [None if y is None else np.asarray(y) for y in run()]
            except Exception:  # not every peer has every node
                continue
    return found


def ours(given: Case) -> list[Any]:
    operator = registry.find(given.op, given.domain, given.opset)
    operator.check_arity([x is not None for x in given.inputs], given.n_outputs)
    traced = [
        x if x is None or operator.mark(i) or x.dtype.kind in "UO" else jnp.asarray(x)
        for i, x in enumerate(given.inputs)
    ]
    operator.check(traced)
    found = operator.call(traced, operator.complete(given.attributes), n_outputs=given.n_outputs, rng=None)
    return [None if y is None else np.asarray(y) for y in found[: given.n_outputs]]


def compiled(given: Case) -> list[Any]:
    """The outputs of a model of the node, as they come with x64 off."""
    found = load(model(given))(*(x for x in given.inputs if x is not None))
    found = found if isinstance(found, tuple) else (found,)
    return [None if y is None else np.asarray(y) for y in found]


def narrowed(theirs: list[Any], found: list[Any]) -> list[Any]:
    """What is expected with x64 off: only a result that is static keeps 64 bits."""
    with np.errstate(over="ignore"):
        return [
            y if y is None or x is None or x.dtype == y.dtype else y.astype(jax.dtypes.canonicalize_dtype(y.dtype))
            for y, x in zip(theirs, found, strict=False)
        ]


def problem(given: Case, *, compiles: bool = False) -> str:
    expected = peers(given)
    if not expected:
        return ""
    try:
        with jax.enable_x64(not compiles):
            found = compiled(given) if compiles else ours(given)
            expected = {name: narrowed(y, found) for name, y in expected.items()} if compiles else expected
    except OutOfRangeError as error:
        return "" if compiles else f"{type(error).__name__}: {error}"  # a constant that takes 64 bits
    except JaxopsError as error:
        # The reference evaluator checks little: what only it takes may be refused.
        return f"{type(error).__name__}: {error}" if "onnxruntime" in expected else ""
    wrong = {name: difference(found, theirs) for name, theirs in expected.items()}
    return "" if not all(wrong.values()) else "; ".join(f"{name}: {text}" for name, text in wrong.items())


@pytest.mark.parametrize("piece", range(PIECES))
def test_random_nodes(piece):
    report(case(SEED, number, ONLY) for number in range(piece, COUNT, PIECES))


@pytest.mark.parametrize("piece", range(PIECES // 4))
def test_random_nodes_compiled_with_x64_off(piece):
    numbers = range(piece, COMPILED, PIECES // 4)
    report((case(SEED + 1, PACE * number, ONLY) for number in numbers), compiles=True)


def report(cases: Any, **how: bool) -> None:
    wrong = {str(given): text for given in cases if (text := problem(given, **how))}
    assert not wrong, "\n".join(f"{given}\n    {text}" for given, text in wrong.items())


def test_a_wrong_result_is_found(monkeypatch):
    given = Case("Add", "", 14, [np.ones(2, np.float32), np.ones(2, np.float32)], {})
    assert problem(given) == ""
    for name in ("ours", "compiled"):
        monkeypatch.setitem(globals(), name, lambda given: [np.zeros(2, np.float32)])
    assert problem(given).startswith("onnxruntime: output 0 is")
    assert problem(given, compiles=True).startswith("onnxruntime: output 0 is")
