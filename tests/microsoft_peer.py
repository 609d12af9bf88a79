"""Operators of com.microsoft as onnxruntime's CPU kernels compute them, and as a model would call ours."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peer import run_node

from jaxops.onnx import registry

DOMAIN = "com.microsoft"


def runtime(op: str, inputs: Sequence[Any], outputs: Sequence[Any] = (True,), **attributes: Any) -> list[Any]:
    """The outputs of onnxruntime; for `outputs` and narrow types see `run_node`."""
    domain = attributes.pop("domain", DOMAIN)
    return run_node(op, inputs, outputs, attributes, {"": 21, DOMAIN: 1}, domain)


def ours(op: str, inputs: Sequence[Any], n_outputs: int = 1, rng: Any = None, **attributes: Any) -> tuple[Any, ...]:
    """The outputs, with attributes checked and completed as in a model."""
    found = registry.find(op, DOMAIN, 1)
    found.check_arity([x is not None for x in inputs], n_outputs)
    found.check(inputs)
    return found.call(inputs, found.complete(attributes), n_outputs=n_outputs, rng=rng)


def agree(
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[bool] = (True,),
    *,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    compiled: bool = False,
    static: Sequence[int] = (),
    **attributes: Any,
) -> tuple[Any, ...]:
    """Asserts that ours and onnxruntime's outputs agree in type, shape and value; returns ours.

    compiled: also under `jit`. static: the positions of the inputs that stay NumPy arrays.
    """
    expected = runtime(op, inputs, outputs, **attributes)
    traced = [x if x is None or i in static else jnp.asarray(x) for i, x in enumerate(inputs)]
    found = ours(op, traced, len(outputs), **attributes)
    compare([y for y, wanted in zip(found, outputs, strict=False) if wanted], expected, rtol, atol)
    if compiled:
        free = [i for i, x in enumerate(inputs) if x is not None and i not in static]

        def fn(*values: Any) -> Any:
            given = dict(zip(free, values, strict=True))
            return ours(op, [given.get(i, x) for i, x in enumerate(inputs)], len(outputs), **attributes)

        results = jax.jit(fn)(*(traced[i] for i in free))
        compare([y for y, wanted in zip(results, outputs, strict=False) if wanted], expected, rtol, atol)
    return found


def compare(found: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> None:
    """Asserts that arrays agree; 64-bit types may be those of 32 bits while x64 is off."""
    for ours_, theirs in zip(found, expected, strict=True):
        wanted = theirs.dtype if theirs.dtype.kind == "O" else jax.dtypes.canonicalize_dtype(theirs.dtype)
        assert ours_.dtype in (theirs.dtype, wanted), f"{ours_.dtype}, not {theirs.dtype}"
        assert ours_.shape == theirs.shape, f"{ours_.shape}, not {theirs.shape}"
        if theirs.dtype.kind in "fc":
            wide = np.float64 if theirs.dtype.kind == "f" else np.complex128
            np.testing.assert_allclose(np.asarray(ours_).astype(wide), theirs.astype(wide), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(np.asarray(ours_), theirs)
