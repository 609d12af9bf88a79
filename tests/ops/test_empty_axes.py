"""Each operator with one axis of an operand empty, or all axes of one size: it is taken or refused by an error of ours.

A usual run takes one of many trials for each operator; `python FILE` takes all (two minutes), eagerly and as NumPy's.
"""

import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import gradient_cases
import microsoft_gradient_cases  # noqa: F401 - adds its cases

import jaxops as jo
from jaxops.errors import BoundsError, JaxopsError, ShapeError
from jaxops.onnx.lenient import tolerant

NEWEST = {"": 24, "ai.onnx.ml": 4, "com.microsoft": 1}


def emptied(x: Any, axes: Any) -> Any:
    return x[tuple(slice(0) if i in axes else slice(None) for i in range(x.ndim))]


def trials(name: str) -> list[tuple[Any, list[Any]]]:
    """(case, operands) for each axis that can be emptied, and for each size that several axes share."""
    found = []
    for case in gradient_cases.CASES[name][:3]:
        if any(isinstance(x, list) for x in case.inputs):
            continue  # a sequence
        inputs = [x if x is None or x.dtype != np.float64 else x.astype(np.float32) for x in case.inputs]
        arrays = {k: x for k, x in enumerate(inputs) if isinstance(x, np.ndarray)}
        each = [{k: (i,)} for k, x in arrays.items() for i in range(x.ndim)]
        sizes = sorted({d for x in arrays.values() for d in x.shape if d})
        each += [{k: [i for i, d in enumerate(x.shape) if d == n] for k, x in arrays.items()} for n in sizes]
        found += [(case, [emptied(x, how[k]) if k in how else x for k, x in enumerate(inputs)]) for how in each]
    return found


NAMES = [name for name in gradient_cases.CASES if name.rpartition(".")[0] in NEWEST and trials(name)]


def escaped(name: str, case: Any, inputs: list[Any], *, static: bool = False) -> Exception | None:
    """The exception that is none of jaxops."""
    domain, _, op = name.rpartition(".")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            operator = tolerant(op, domain, case.opset or NEWEST[domain])
            operator.check_arity([x is not None for x in inputs], case.outputs)
            given = [
                x if static or not isinstance(x, np.ndarray) or operator.mark(k) else jnp.asarray(x)
                for k, x in enumerate(inputs)
            ]
            operator.check(given)
            operator.call(given, operator.complete(dict(case.attributes)), n_outputs=case.outputs, rng=None)
    except JaxopsError:
        return None
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", NAMES)
def test_only_errors_of_jaxops_get_out(name):
    found = trials(name)
    case, inputs = found[zlib.crc32(name.encode()) % len(found)]
    error = escaped(name, case, inputs)
    assert error is None, f"{[getattr(x, 'shape', x) for x in inputs]} {case.attributes}: {error!r}"


def zeros(*sizes: int) -> Any:
    return jnp.zeros(sizes, jnp.float32)


def places(*sizes: int) -> Any:
    return jnp.zeros(sizes, jnp.int32)


REFUSED = [
    (lambda: jo.gather_elements(zeros(0, 4), places(1, 4)), "gather_elements: `data` of .0, 4. is empty along axis 0"),
    (lambda: jo.gather_nd(zeros(3, 0), places(3, 2)), r"gather_nd: `data` of \(3, 0\) is empty along axis 1, but"),
    (lambda: jo.grid_sample(zeros(1, 1, 0, 4), zeros(1, 2, 3, 2)), "grid_sample: `x` of .* is empty along axis 2"),
    (lambda: jo.roi_align(zeros(0, 2, 5, 5), zeros(2, 4), places(2)), "roi_align: `x` of .* is empty along axis 0"),
    (
        lambda: jo.max_roi_pool(zeros(0, 2, 5, 5), zeros(2, 5), pooled_shape=(1, 1)),
        "max_roi_pool: `x` of .* is empty along axis 0",
    ),
    (
        lambda: jo.microsoft.crop_and_resize(zeros(1, 2, 0, 5), zeros(1, 4), places(1), (2, 3)),
        "crop_and_resize: x of .* is empty along axis 2",
    ),
    (
        lambda: jo.negative_log_likelihood_loss(zeros(2, 0), places(2), zeros(0)),
        r"`weights` of \(0,\) is empty along axis 0, but elements are read from it",
    ),
    (
        lambda: jo.microsoft.rotary_embedding(zeros(1, 2, 3, 4), places(1, 3), zeros(0, 2), zeros(0, 2)),
        r"rotary_embedding: a table of \(0, 2\) is empty along axis 0",
    ),
    (lambda: jo.microsoft.rfft(zeros(2, 0)), r"rfft: a signal of \(0,\) has no elements"),
    (
        lambda: jo.conv_transpose(zeros(1, 2, 0), zeros(2, 3, 2), strides=(2,)),
        r"conv_transpose: spatial axis 0 of the data, \(0,\), is empty",
    ),
    (
        lambda: jo.microsoft.word_conv_embedding(places(2, 3), zeros(2, 1, 0, 3), zeros(2), zeros(4, 3)),
        "word_conv_embedding: `w` has .*; filters must be at least one letter wide",
    ),
]


@pytest.mark.parametrize(("call", "match"), REFUSED)
def test_what_asks_for_elements_that_there_are_not(call, match):
    with pytest.raises((BoundsError, ShapeError), match=match):
        call()


def test_nothing_asked_for_of_nothing():
    assert jo.gather_elements(zeros(0, 4), places(0, 4)).shape == (0, 4)
    assert jo.gather_nd(zeros(0, 4), places(0, 1)).shape == (0, 4)
    assert jo.max_roi_pool(zeros(0, 1, 3, 2), zeros(0, 5), pooled_shape=(1, 2)).shape == (0, 1, 1, 2)
    packed = gradient_cases.CASES["com.microsoft.PackedAttention"][0]
    inputs = [emptied(packed.inputs[0], (0,)), *packed.inputs[1:]]
    assert escaped("com.microsoft.PackedAttention", packed, inputs) is None


def test_another_error_would_be_seen(monkeypatch):
    monkeypatch.setattr(type(tolerant("Relu", "", 24)), "call", lambda *a, **k: [][0])
    assert isinstance(escaped("Relu", gradient_cases.CASES["Relu"][0], [np.zeros(0, np.float32)]), IndexError)


def main(names: list[str]) -> None:
    total = 0
    for name in names or NAMES:
        for case, inputs in trials(name):
            for static in (False, True):
                total += 1
                error = escaped(name, case, inputs, static=static)
                if error is not None:
                    print(f"{name} {[getattr(x, 'shape', x) for x in inputs]} {static=}: {error!r:.200}", flush=True)
        jax.clear_caches()
    print(f"{total} calls")


if __name__ == "__main__":
    main(sys.argv[1:])
