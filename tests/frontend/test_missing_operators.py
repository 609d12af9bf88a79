"""What a model needs and jaxops does not have comes in one error."""

import re

import pytest

from jaxops.errors import UnsupportedError
from jaxops.frontend.missing_operators import MissingOperators


def test_nothing_is_missing():
    assert MissingOperators().report() is None


def test_reasons_nodes_and_a_hint():
    missing = MissingOperators()
    for label in ("d", "a", "b", "e", "c"):
        missing.add("Pow: no such operator", label, ("opset9", "Pow"))
    missing.add("Add: inside a body", "x")
    missing.add("Sub: no such operator", "y", ("ext", "Sub"))
    text = (
        "net.xml uses operators that jaxops does not have:\n"
        "  Add: inside a body  (layer 'x')\n"
        "  Pow: no such operator  (layer 'd', 'a', 'b' and 2 more)\n"
        "  Sub: no such operator  (layer 'y')\n"
        "  hint    give a function for each: load(path, operators={('opset9', 'Pow'): fn, ('ext', 'Sub'): fn})"
    )
    with pytest.raises(UnsupportedError, match=f"^{re.escape(text)}$"):
        missing.report("net.xml", "layer")


def test_there_is_no_hint_where_no_function_helps():
    missing = MissingOperators()
    missing.add("Add: inside a body", "x")
    with pytest.raises(UnsupportedError, match=r"^the model uses .*\n  Add: inside a body  \(node 'x'\)$"):
        missing.report()
