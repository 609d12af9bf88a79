"""The guards that make "the newest adapter not above the model's opset" safe, against the whole history of ONNX."""

import collections
import inspect
from typing import Annotated

import numpy as np
import pytest
from onnx import defs, helper

from jaxops import ops
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.onnx import registry
from jaxops.onnx.registry import RESERVED, Operator
from jaxops.static import ELEMENT_TYPE, STATIC, Static, foldable

SINGLE = defs.OpSchema.FormalParameterOption.Single
VARIADIC = defs.OpSchema.FormalParameterOption.Variadic

HISTORY = collections.defaultdict(list)
for _schema in defs.get_all_schemas_with_history():
    if not _schema.domain:
        HISTORY[_schema.name].append(_schema.since_version)


def function(name):
    """The function of `jaxops.ops` with the newest meaning, or None where adapters say it all."""
    return {n.replace("_", ""): getattr(ops, n) for n in ops.__all__}.get(name.lower())


def split_parameters(fn):
    parameters = inspect.signature(fn).parameters.values()
    return (
        [p for p in parameters if p.kind is not p.KEYWORD_ONLY],
        {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY},
    )


def plain(name):
    return name.lower().replace("_", "")


def misfits(operator):
    """What of a version's inputs and attributes the function chosen for it does not take as they are."""
    schema = operator.schema
    positional, keywords = split_parameters(operator.fn)
    if len(positional) < len(schema.inputs):
        return [f"takes {len(positional)} inputs of {len(schema.inputs)}"]
    found = [f"needs more inputs: {p.name}" for p in positional[len(schema.inputs) :] if p.default is p.empty]
    for position, (formal, parameter) in enumerate(zip(schema.inputs, positional, strict=False)):
        # Split-1 has an input and an attribute of one name; a variadic input is one parameter, of any name.
        # The binary operators of opset 1 share one adapter, whose operands are `a` and `b`.
        ours = formal.option == VARIADIC or formal.name in schema.attributes or operator.name == "Pow-1"
        if not ours and plain(parameter.name) != plain(formal.name):
            found.append(f"input {formal.name} is named {parameter.name}")
        # One before a variadic input arrives as None.
        last = all(p.default is not p.empty for p in positional[position + 1 :])
        if formal.option not in (SINGLE, VARIADIC) and last and parameter.default is not None:
            found.append(f"optional input {formal.name} has not the default None")
    attributes = set(schema.attributes) - registry._DROPPED
    found += [f"does not take attribute {name}" for name in sorted(attributes - set(keywords))]
    for name, parameter in keywords.items():
        if name not in attributes | RESERVED and parameter.default is parameter.empty:
            found.append(f"needs {name}, which the version does not have")
        optional = name in attributes and not schema.attributes[name].required and name not in operator.defaults
        if optional and parameter.default is parameter.empty:
            found.append(f"needs {name}, which has no default in the version")
    return found


def wrong_marks(adapter, fn):
    """Operands that only one of the two wants static, or only the sizes of."""
    marks = [{p.name: registry._marks(p.annotation) for p in split_parameters(each)[0]} for each in (adapter, fn)]
    found = [name for name in marks[0].keys() & marks[1].keys() if marks[0][name] != marks[1][name]]
    return found + (["foldable"] if registry._foldable(adapter) != registry._foldable(fn) else [])


# Attributes whose default stands in the text of the standard alone: a fill of float zero, float, no words.
IN_THE_TEXT = {("ConstantOfShape", "value"), ("SequenceEmpty", "dtype"), ("StringNormalizer", "stopwords")}


def wrong_defaults(schema, fn):
    """Attributes whose default in the function is not that of the schema."""
    parameters = inspect.signature(fn).parameters
    found = []
    for name, attribute in schema.attributes.items():
        parameter = parameters.get(name)
        default = parameter.default if parameter else inspect.Parameter.empty
        wanted = inspect.Parameter.empty if attribute.required else Operator(schema, fn).defaults.get(name)
        if parameter and isinstance(wanted, int) and ELEMENT_TYPE in registry._marks(parameter.annotation):
            wanted = helper.tensor_dtype_to_np_dtype(wanted)
        if isinstance(wanted, float) and isinstance(default, float):
            default = float(np.float32(default))  # as the schema stores it
        if default != wanted:
            found.append(f"{name}: {default!r}, not {wanted!r}")
    return found


def supported():
    for name in sorted(HISTORY):
        for since in sorted(HISTORY[name]):
            try:
                operator = registry.find(name, "", since)
            except UnsupportedError:
                continue
            if operator.fn is not None:
                yield pytest.param(operator, id=operator.name)


OPERATORS = list(supported())
NEWEST = [s for s in defs.get_all_schemas() if not s.domain and not s.deprecated and function(s.name)]


def test_there_is_something_to_guard():
    assert len(OPERATORS) > 450
    assert len(NEWEST) > 100


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_function_takes_the_inputs_and_attributes_of_the_version(operator):
    assert misfits(operator) == []


@pytest.mark.parametrize("name", sorted(registry.adapters()))
def test_each_since_is_a_version_and_the_first_is_covered(name):
    if "." in name:
        domain, op = name.rsplit(".", 1)
        schemas = [s for s in defs.get_all_schemas_with_history() if (s.domain, s.name) == (domain, op)]
        history = [s.since_version for s in schemas]
    else:
        history = HISTORY[name]
    assert set(registry.adapters()[name]) <= set(history)
    assert min(registry.adapters()[name]) == min(history)


@pytest.mark.parametrize("name", sorted(name for name in registry.adapters() if function(name)))
def test_the_marks_of_the_adapters_agree_with_the_function(name):
    for since, adapter in registry.adapters()[name].items():
        assert wrong_marks(adapter, function(name)) == [], since


@pytest.mark.parametrize("schema", NEWEST, ids=lambda s: s.name)
def test_the_defaults_of_the_function_are_those_of_the_newest_version(schema):
    found = wrong_defaults(schema, function(schema.name))
    assert [p for p in found if (schema.name, p.partition(":")[0]) not in IN_THE_TEXT] == []


def test_numbers_and_names_of_element_types_become_dtypes():
    assert registry.find("Cast", "", 5).complete({"to": "FLOAT16"})["to"] == np.float16
    assert registry.find("Cast", "", 28).complete({"to": 7})["to"] == np.int64
    assert registry.find("LayerNormalization", "", 17).complete({})["stash_type"] == np.float32
    with pytest.raises(ArgumentError, match="LayerNormalization-17: `stash_type` is 99, which is no element type"):
        registry.find("LayerNormalization", "", 17).complete({"stash_type": 99})


# What follows shows that each guard can fail.


def _split(input, split: Static = None, *, axis, n_outputs): ...


def _wrong_name(input, lengths: Static = None, *, axis, n_outputs): ...


def _wrong_option(input, split: Static, *, axis, n_outputs): ...


def _wrong_attribute(input, split: Static = None, *, ax, n_outputs): ...


def _wrong_need(input, split: Static = None, *, axis, n_outputs, num_outputs): ...


def _wrong_count(input, *, axis, n_outputs): ...


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        (_split, []),
        (_wrong_name, ["input split is named lengths"]),
        (_wrong_option, ["optional input split has not the default None"]),
        (_wrong_attribute, ["does not take attribute axis", "needs ax, which the version does not have"]),
        (_wrong_need, ["needs num_outputs, which the version does not have"]),
        (_wrong_count, ["takes 1 inputs of 2"]),
    ],
)
def test_a_wrong_adapter_is_caught(adapter, expected):
    assert misfits(Operator(defs.get_schema("Split", 13), adapter)) == expected


def test_a_wrong_adapter_is_caught_once_it_is_registered(monkeypatch):
    monkeypatch.setitem(registry._ADAPTERS, "Split", dict(registry.adapters()["Split"]))
    registry.version("Split", 12)(_wrong_name)
    with pytest.raises(AssertionError):
        test_each_since_is_a_version_and_the_first_is_covered("Split")
    with pytest.raises(AssertionError):
        test_the_marks_of_the_adapters_agree_with_the_function("Split")
    registry.version("Split", 13)(_wrong_name)
    with pytest.raises(AssertionError):
        test_the_function_takes_the_inputs_and_attributes_of_the_version(registry.find.__wrapped__("Split", "", 13))


def test_a_wrong_mark_is_caught():
    @foldable
    def right(input, split: Annotated[object, STATIC] = None): ...

    @foldable
    def wrong(input, split=None): ...

    assert wrong_marks(right, ops.split) == []
    assert wrong_marks(wrong, ops.split) == ["split"]
    assert wrong_marks(_split, ops.split) == ["foldable"]


def test_a_wrong_default_is_caught():
    def wrong(input, *, axis=0): ...

    def absent(input): ...

    schema = defs.get_schema("Flatten", 25)
    assert wrong_defaults(schema, ops.flatten) == []
    assert wrong_defaults(schema, wrong) == ["axis: 0, not 1"]
    assert wrong_defaults(schema, absent) == ["axis: <class 'inspect._empty'>, not 1"]


def test_an_attribute_that_nobody_reads_is_refused():
    operator = Operator(defs.get_schema("Reshape", 14), lambda data, shape: data)
    with pytest.raises(UnsupportedError, match="Reshape-14: jaxops does not implement the attribute `allowzero`"):
        operator.complete({"allowzero": 1})
