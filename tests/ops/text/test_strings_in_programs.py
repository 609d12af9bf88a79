"""Strings that traced numbers choose pass the operators that move, map or join them, under `jit` and in an export."""

import jax
import numpy as np
import pytest
from graphs import model

import jaxops.onnx
from jaxops.errors import StaticError

X = np.array([3, -1, 2, np.nan, np.inf], np.float32)
# "yes" for a number above zero, else "no"; `i` is 1 or 0.
CHOSEN = """a = Constant<value_strings=["no", "yes"]>() z = Constant<value_float=0.0>() g = Greater(x, z)
    i = Cast<to=7>(g) c = Gather(a, i) five = Constant<value_strings=["p", "q", "r", "s", "t"]>() """
PLACES = "k = Constant<value_ints=[2, 0, 1, 4, 3]>() "
CASES = {
    "StringConcat, a prefix": ('p = Constant<value_string="p_">() y = StringConcat(p, c)', "string"),
    "StringConcat, both chosen": ("y = StringConcat(c, c)", "string"),
    "StringConcat, a column": (
        'u = Constant<value_strings=["u", "v"]>() s = Constant<value_ints=[2, 1]>() w = Reshape(u, s) '
        "y = StringConcat(c, w)",
        "string",
    ),
    "StringConcat, more of it": ("d = StringConcat(c, five) y = StringConcat(d, c)", "string"),
    "OneHot": (
        'd = Constant<value_int=3>() v = Constant<value_strings=["off", "on"]>() y = OneHot(i, d, v)',
        "string",
    ),
    "ScatterElements": (PLACES + "y = ScatterElements(five, k, c)", "string"),
    "ScatterElements, computed places": (
        'w = ArgMax<axis=0, keepdims=1>(i) o = Constant<value_strings=["o"]>() y = ScatterElements(five, w, o)',
        "string",
    ),
    "ScatterND": ("k = Constant<value=int64[2, 1]{2, 0}>() t = Slice(c, z1, two) y = ScatterND(five, k, t)", "string"),
    "Cast to numbers": (
        'w = Constant<value_strings=["1.5", "-2"]>() o = Gather(w, i) y = Cast<to=1>(o)',
        "float",
    ),
    "Cast to strings": ("y = Cast<to=8>(c)", "string"),
    "StringNormalizer": ('y = StringNormalizer<case_change_action="UPPER">(c)', "string"),
    "RegexFullMatch": ('y = RegexFullMatch<pattern="y.*">(c)', "bool"),
}


def loaded(body, kind="string"):
    more = "z1 = Constant<value_ints=[0]>() two = Constant<value_ints=[2]>() "
    return jaxops.onnx.load(model(f"m (float[n] x) => ({kind} y) {{ {CHOSEN} {more} {body} }}", opset=20))


@pytest.mark.parametrize("name", CASES)
def test_as_called(name):
    net = loaded(*CASES[name])
    expected = net(X)
    assert np.asarray(expected).dtype.kind == ("O" if CASES[name][1] == "string" else expected.dtype.kind)
    found = jax.jit(net.apply)({}, X)
    exported = net.export(sizes={"n": 5}).call({}, X)
    for y in (found, exported):
        np.testing.assert_array_equal(np.asarray(y), np.asarray(expected))


def test_strings_that_are_added_or_removed_under_jit():
    """A reduction reads the elements, and stop words remove some, so neither may see numbers in place."""
    for body in (
        PLACES + 'y = ScatterElements<reduction="add">(five, k, c)',
        'y = StringNormalizer<stopwords=["no"]>(c)',
    ):
        net = loaded(body)
        with pytest.raises(StaticError, match="strings that depend on traced numbers"):
            jax.jit(net.apply)({}, X)
