"""Strings: NumPy arrays of dtype object, known while tracing."""

import sys
import time

import jax
import numpy as np
import pytest

import jaxops.onnx
from jaxops import ops
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, UnsupportedError
from jaxops.ops import microsoft


def words(*items):
    return np.array(items, object)


def test_string_concat():
    assert ops.string_concat(words("a", "b"), words("c", "")).tolist() == ["ac", "b"]
    assert ops.string_concat(words(["a"], ["b"]), np.array(["x", "y"])).tolist() == [["ax", "ay"], ["bx", "by"]]
    scalar = ops.string_concat(np.array("ä", object), np.array("ö"))
    assert isinstance(scalar, np.ndarray)
    assert (scalar.shape, scalar.item()) == ((), "äö")
    assert ops.string_concat(words("a")[:0], words("b")).shape == (0,)


SPLITS = [
    ({"delimiter": ","}, [["a", "b", ""], ["", "", ""], ["  x  y  ", "", ""], ["", "", "c"]], [2, 0, 1, 3]),
    ({}, [["a,b", ""], ["", ""], ["x", "y"], [",,c", ""]], [1, 0, 2, 1]),
    ({"delimiter": "", "maxsplit": 0}, [["a,b"], [""], ["x  y"], [",,c"]], [1, 0, 1, 1]),
    ({"delimiter": ",", "maxsplit": 1}, [["a", "b"], ["", ""], ["  x  y  ", ""], ["", ",c"]], [2, 0, 1, 2]),
    ({"maxsplit": -1}, [["a,b", ""], ["", ""], ["x", "y"], [",,c", ""]], [1, 0, 2, 1]),
]


@pytest.mark.parametrize(("attributes", "pieces", "counts"), SPLITS, ids=str)
def test_string_split(attributes, pieces, counts):
    x = words("a,b", "", "  x  y  ", ",,c")
    for shape in ((4,), (2, 2)):
        found, numbers = ops.string_split(x.reshape(shape), **attributes)
        assert found.shape == (*shape, len(pieces[0]))
        assert found.reshape(4, -1).tolist() == pieces
        assert numbers.reshape(-1).tolist() == counts
        assert numbers.dtype == np.int64


def test_string_split_of_nothing():
    found, counts = ops.string_split(words("a")[:0])
    assert (found.shape, counts.shape) == ((0, 0), (0,))
    found, counts = ops.string_split(np.array("a b", object))
    assert (found.tolist(), counts.tolist()) == (["a", "b"], 2)


NORMAL = [
    ({}, ["The", "cat", "THE"]),
    ({"stopwords": ["the"]}, ["cat"]),
    ({"stopwords": ["the"], "is_case_sensitive": 1}, ["The", "cat", "THE"]),
    ({"stopwords": ("THE",), "is_case_sensitive": 1, "case_change_action": "LOWER"}, ["the", "cat"]),
    ({"stopwords": ["the"], "case_change_action": "UPPER", "locale": "en_US"}, ["CAT"]),
    ({"stopwords": ["the", "CAT"]}, [""]),
]
LOCALES = [
    (None, "istanbul IĞDIR", "ISTANBUL IĞDIR", "istanbul iğdir"),
    ("en_US.UTF-8", "istanbul IĞDIR", "ISTANBUL IĞDIR", "istanbul iğdir"),
    ("de-DE", "Fuß", "FUSS", "fuß"),
    ("tr_TR", "istanbul IĞDIR", "İSTANBUL IĞDIR", "istanbul ığdır"),
    ("az", "İı", "İI", "iı"),
]


@pytest.mark.parametrize(("locale", "text", "upper", "lower"), LOCALES, ids=str)
def test_the_case_of_a_locale(locale, text, upper, lower):
    for action, expected in (("UPPER", upper), ("LOWER", lower)):
        assert ops.string_normalizer(words(text), locale=locale, case_change_action=action).tolist() == [expected]


@pytest.mark.parametrize(("attributes", "expected"), NORMAL, ids=str)
def test_string_normalizer(attributes, expected):
    x = words("The", "cat", "THE")
    assert ops.string_normalizer(x, **attributes).tolist() == expected
    assert ops.string_normalizer(x[None], **attributes).tolist() == [expected]


PATTERNS = [
    (r"a.c", ["abc"], ["abcd", "a\nc", "xabc"]),
    (r"a|ab", ["a", "ab"], ["abb"]),
    (r"[[:alpha:][:digit:]]+\z", ["ab3"], ["ä", ""]),
    (r"\w\d", ["a1"], ["ä1", "a٣"]),
    (r"(?i)ÄB", ["äb", "Äb"], ["b"]),
    (r"(?P<one>x)(?:y)??", ["x", "xy"], ["y"]),
    (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb"]),
    (r"\(?=\\1", [r"=\1", r"(=\1"], ["1"]),
    (r"", [""], ["a"]),
    (r"\pL+", ["aäж"], ["a1", ""]),
    (r"[\p{Lu}\d]\P{N}", ["Äb", "1-"], ["ab", "A1"]),
    (r"\p{^L}", ["1"], ["a"]),
    (r"\p{Greek}+", ["λό"], ["a"]),
    (r".", ["😀"], ["ab"]),
    (r"(?i)ä\d\w", ["Ä1a"], ["ä٣a", "ä1ä"]),
    (r"\s\S\D", [" ab", "\tab"], ["\vab", " a1"]),
    (r"a$\n?", ["a"], ["a\n"]),
    (r"(?m)a$\nb", ["a\nb"], ["a"]),
    (r"[[*+$\]]+", ["[*+$]"], ["a"]),
    (r"(?U)a+|(?<name>b)", ["aa", "b"], [""]),
    (r"(?iU)a(?U:b+)(?s-U:.)", ["Abb\n"], ["Ab"]),
]


@pytest.mark.parametrize(("pattern", "yes", "no"), PATTERNS, ids=str)
def test_regex_full_match(pattern, yes, no):
    found = ops.regex_full_match(words(*yes, *no), pattern=pattern)
    assert found.dtype == bool
    assert found.tolist() == [True] * len(yes) + [False] * len(no)


def test_a_regular_expression_takes_time_linear_in_the_text():
    # An engine that tries one way after the other takes 2^40 steps for each.
    assert not ops.regex_full_match(words("a" * 40 + "b"), pattern="(a|a)*").item()
    assert not ops.regex_full_match(words("a" * 2000), pattern="(a?){40}a{40}b").item()
    tokens = microsoft.tokenizer(words("a" * 40 + "!"), mark=0, mincharnum=1, pad_value="", tokenexp="(a|aa)+$")
    assert tokens.shape == (1, 0)


def test_text_that_is_not_unicode():
    assert ops.regex_full_match(words("\ud800"), pattern="a").tolist() == [False]


def test_without_google_re2(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(
        UnsupportedError, match=r"google-re2; install the extra `onnx` of jaxops: pip install '\.\[onnx\]'"
    ):
        ops.regex_full_match(words("a"), pattern="a")


def test_strings_are_known_while_tracing():
    def f(x):
        return x.reshape(ops.string_split(words("2 3"))[1][0], 3)

    assert jax.jit(f)(np.ones(6)).shape == (2, 3)


def test_by_opset():
    op = jaxops.onnx.opset(20)
    assert op.StringConcat(["a", "b"], ["c"]).tolist() == ["ac", "bc"]
    pieces, counts = op.StringSplit(words("a-b"), delimiter="-")
    assert (pieces.tolist(), counts.tolist()) == ([["a", "b"]], [2])
    assert op.RegexFullMatch(words("a", "b"), pattern="a").tolist() == [True, False]
    assert op.StringNormalizer(words("a"), case_change_action="UPPER").tolist() == ["A"]


ERRORS = [
    (
        lambda: ops.string_concat(np.array([1, 2], object), np.array([3, 4], object)),
        DTypeError,
        "string_concat: `x` must be strings, .* int64",
    ),
    (lambda: ops.string_concat(np.ones(2), words("a")), DTypeError, "string_concat: `x` must be strings, .* float64"),
    (lambda: ops.string_concat(words("a", "b"), words("a", "b", "c")), ShapeError, "string_concat: "),
    (lambda: ops.string_normalizer(words(["a"], ["b"])), ShapeError, r"x of \(2, 1\) must be \(C,\) or \(1, C\)"),
    (
        lambda: ops.string_normalizer(words("a"), case_change_action="up"),
        ArgumentError,
        "'up'; it must be one of 'LOWER'",
    ),
    (lambda: ops.string_normalizer(words("a"), is_case_sensitive=3), ArgumentError, "`is_case_sensitive` is 3"),
    (lambda: ops.regex_full_match(words("a")), SignatureError, "`pattern` is missing"),
    (lambda: ops.regex_full_match(words("a"), pattern="(a"), ArgumentError, r"'\(a' is not valid"),
    (lambda: ops.regex_full_match(words("a"), pattern=r"a(?=b)"), ArgumentError, r"invalid perl operator: \(\?="),
    (
        lambda: ops.regex_full_match(words("a"), pattern=r"(a)\1"),
        ArgumentError,
        r"RE2's notation: invalid escape sequence: \\1",
    ),
    (lambda: ops.regex_full_match(words("a"), pattern="[[:^x:]]"), ArgumentError, "invalid character class range"),
    (lambda: ops.regex_full_match(words("a"), pattern="a++"), ArgumentError, r"bad repetition operator: \+\+"),
    (lambda: ops.regex_full_match(words("a"), pattern=r"a\Z"), ArgumentError, r"invalid escape sequence: \\Z"),
    (lambda: ops.regex_full_match(words("a"), pattern="(?x) a"), ArgumentError, r"invalid perl operator: \(\?x"),
    (lambda: ops.string_normalizer(words("a"), locale="no such"), ArgumentError, "`locale` is 'no such'; it must be"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_groups_of_a_pattern_take_no_memory():
    from jaxops.ops.text.regular_expressions import compiled

    assert compiled("pattern", "(a)(b)").groups == 0
    started = time.monotonic()
    assert ops.regex_full_match(np.array(["a" * 100]), pattern="(((((a*)*)*)*)*)" * 3000).all()
    assert time.monotonic() - started < 5
