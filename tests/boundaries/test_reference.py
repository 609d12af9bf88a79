"""The reference: `help(jaxops)` lists the operators by family, and each public name has an example that runs."""

import functools
import importlib
import inspect
import pydoc
import types

import pytest

import jaxops.errors
import jaxops.onnx
import jaxops.openvino
from jaxops.jaxprs import lax_only
from jaxops.memory import max_bytes
from jaxops.runtime.specialized_pair import Pair
from jaxops.signature import operator
from jaxops.tools.inspect.compare import Comparison
from jaxops.tools.inspect.summary import Summary
from jaxops.tools.plot.drawing import Plot

NAMESPACES = ["", ".microsoft", ".ml", ".preview", ".training", ".onnx", ".openvino", ".openvino.ops"]
NAMESPACES += [".openvino.opset1", ".sharding", ".jaxprs"]
# What has no namespace of its own, or is returned by a method.
FURTHER = [Comparison, Pair, Plot, Summary, lax_only, max_bytes, operator]


def public():
    """Each public function and class, and each public method and property, by its full name."""
    values = dict(vars(jaxops.errors))
    objects = {f"errors.{n}": v for n, v in values.items() if getattr(v, "__module__", "") == "jaxops.errors"}
    objects = {name: value for name, value in objects.items() if inspect.isclass(value)}
    for namespace in NAMESPACES:
        module = importlib.import_module(f"jaxops{namespace}")
        objects |= {f"{namespace}.{name}".lstrip("."): getattr(module, name) for name in module.__all__}
    objects |= {value.__name__: value for value in FURTHER}
    objects = {name: value for name, value in objects.items() if not isinstance(value, types.ModuleType)}
    for name, value in list(objects.items()):
        if inspect.isclass(value) and not issubclass(value, Exception):
            objects |= {f"{name}.{member}": method for member, method in members(value).items()}
    return objects


def members(cls):
    """The public methods and properties of a class, as its own modules define them."""
    named = {name: inspect.getattr_static(cls, name) for name in dir(cls) if name[0] != "_" or name == "__call__"}
    ours = [base for base in cls.__mro__ if base.__module__.startswith("jaxops.")]
    named = {name: value for name, value in named.items() if any(name in vars(base) for base in ours)}
    kinds = types.FunctionType | classmethod | staticmethod | property | functools.cached_property
    return {name: value for name, value in named.items() if isinstance(value, kinds)}


def has_example(docstring):
    """Returns True if a docstring has an example that the tests run."""
    return "\n>>> " in (docstring or "") and "+SKIP" not in docstring


PUBLIC = public()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_has_an_example(name):
    assert has_example(inspect.getdoc(PUBLIC[name]))


def test_the_names_are_there():
    assert len(PUBLIC) > 400
    assert {"reshape", "microsoft.bias_gelu", "onnx.load", "onnx.Model.apply", "onnx.Model.params"} <= PUBLIC.keys()
    assert {"onnx.Decoder.__call__", "Plot.save", "errors.SizeError", "onnx.Check.missing"} <= PUBLIC.keys()


def test_a_docstring_without_an_example_is_seen():
    assert has_example("Adds.\n\n>>> 1 + 1\n2")
    assert not has_example("Adds.")
    assert not has_example("Adds.\n\n>>> 1 + 1  # doctest: +SKIP")
    assert not has_example(None)


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
