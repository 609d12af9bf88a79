"""The reference: `help(jaxops)` lists the operators by family."""

import inspect
import pydoc

import pytest

import jaxops.microsoft
import jaxops.openvino.ops


@pytest.mark.parametrize(("module", "lines"), [(jaxops, 64), (jaxops.microsoft, 64), (jaxops.openvino.ops, 48)])
def test_help_begins_with_the_operators_by_family(module, lines):
    text = pydoc.plain(pydoc.render_doc(module)).partition("\nPACKAGE CONTENTS")[0].partition("\nDATA")[0]
    text = text.partition("\nCLASSES")[0].partition("\nFUNCTIONS")[0]
    assert len(text.splitlines()) <= lines
    assert max(map(len, text.splitlines())) <= 114
    functions = [name for name in module.__all__ if inspect.isfunction(getattr(module, name))]
    words = text.replace(",", " ").split()
    assert [name for name in functions if name not in words and name != "compiler_options"] == []
    assert "{operators}" not in text
