"""The hints of calls that give an operator arguments that it has no parameters for."""

import re
from typing import Any

import numpy as np
import pytest

import jaxops
from jaxops.errors import SignatureError

X = np.ones((2, 3), np.float32)
jo: Any = jaxops  # the calls are wrong on purpose

WRONG = {
    "attribute by position": (
        lambda: jo.softmax(X, -1),
        "softmax: 2 operands are given; it takes `input`\n",
        "softmax(input, axis=-1)",
    ),
    "a name by position": (lambda: jo.cast(X, "float16"), "cast: 2 operands", "cast(input, to='float16')"),
    "several": (lambda: jo.gemm(X, X, X, 1.0, 2.0), "gemm: 5 operands", "gemm(a, b, c, alpha=1.0, beta=2.0)"),
    "beside a keyword": (
        lambda: jo.gather(X, [0], 1, axis=1),
        "gather: 3 operands are given; it takes `data`, `indices`",
        "",
    ),
    "no list": (
        lambda: jo.concat(X, X, axis=0),
        "concat: 2 operands are given",
        "in one list: concat([a, b, …], axis=0)",
    ),
    "a string first": (
        lambda: jo.einsum("ij,jk->ik", X, X),
        "einsum: 3 operands",
        "einsum([a, b, …], equation='ij,jk->ik')",
    ),
    "one operand": (lambda: jo.relu(X, X), "relu: 2 operands are given; it takes `x`", ""),
    "NumPy's name": (
        lambda: jo.reduce_sum(X, axis=1),
        "reduce_sum: got an unexpected argument 'axis'; similar: 'axes'",
        "",
    ),
    "PyTorch's name": (lambda: jo.flatten(X, dim=1), "flatten: got an unexpected argument 'dim'; similar: 'axis'", ""),
    "misspelt": (
        lambda: jo.transpose(X, perms=(1, 0)),
        "transpose: got an unexpected argument 'perms'; similar: 'perm'",
        "",
    ),
    "unlike any": (lambda: jo.relu(X, inplace=True), "relu: got an unexpected argument 'inplace'; it takes `x`", ""),
    "twice": (lambda: jo.clip(X, 0.0, min=1.0), "clip: `min` is given twice: by its position and by its name", ""),
    "missing": (lambda: jo.gather(X), "gather: `indices` is missing; it takes `data`, `indices`, `axis`", ""),
    "two missing": (lambda: jo.one_hot(X), "one_hot: `depth`, `values` are missing; it takes `indices`", ""),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_call_that_was_meant_is_shown(case):
    call, problem, hint = WRONG[case]
    with pytest.raises(SignatureError, match=f"^{re.escape(problem)}") as caught:
        call()
    text = str(caught.value)
    assert hint in text if hint else "hint" not in text
