"""Only `jaxops.jax_internals` reads what JAX keeps private: attributes, texts of errors, locals of its frames."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted((ROOT / "jaxops").rglob("*.py"))}
INTERNALS = "jaxops/jax_internals.py"
# Texts of NumPy and Python, for errors about a call's operands.
OTHER_TEXTS = {"jaxops/signature_errors.py"}
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make"}
SEARCHING = {"search", "match", "fullmatch", "findall", "split", "startswith", "endswith", "find", "index"}


def members(tree):
    """The names that the classes of a file give to attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    yield item.name
                else:
                    yield from (
                        n.id for n in ast.walk(item) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                    )
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


OWN = {name for tree in FILES.values() for name in members(tree)} | NAMED_TUPLE


def private_attributes(tree):
    """The private attributes that a file reads or writes, and that no class of jaxops has; and locals of frames."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            private = node.attr.startswith("_") and not node.attr.startswith("__") and node.attr not in OWN
            if private or node.attr == "f_locals":
                yield ast.unparse(node)


def parsed_texts(tree):
    """The expressions that look for something in the text of an exception."""
    errors = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    errors |= {
        node.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.arg)
        and node.annotation
        and ast.unparse(node.annotation).endswith(("Error", "Exception"))
    }

    def is_text(node):
        calls = [call for call in ast.walk(node) if isinstance(call, ast.Call) and len(call.args) == 1]
        names = [
            call.args[0].id for call in calls if getattr(call.func, "id", "") == "str" and hasattr(call.args[0], "id")
        ]
        return not errors.isdisjoint(names)

    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            found = any(map(is_text, node.comparators))
        else:
            method = node.func if isinstance(node, ast.Call) else None
            found = isinstance(method, ast.Attribute) and method.attr in SEARCHING and is_text(node)
        if found:
            yield ast.unparse(node)


def test_private_attributes_are_those_of_jaxops():
    found = {name: list(private_attributes(tree)) for name, tree in FILES.items() if name != INTERNALS}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_no_text_of_an_error_is_parsed():
    found = {name: list(parsed_texts(tree)) for name, tree in FILES.items() if name != INTERNALS}
    assert {name for name, texts in found.items() if texts} == OTHER_TEXTS


@pytest.mark.parametrize(
    "source",
    [
        "scope._bounds_cache = {}",
        "size._sorted_terms",
        "def f(size):\n    return size._evaluate({})",
        "frame.f_locals.get('eqn')",
    ],
)
def test_a_private_attribute_is_caught(source):
    assert list(private_attributes(ast.parse(source))) != []


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept ValueError as e:\n    if 'RESOURCE_EXHAUSTED' not in str(e):\n        raise",
        "try:\n    f()\nexcept ValueError as e:\n    found = PATTERN.search(str(e))",
        "try:\n    f()\nexcept ValueError as e:\n    found = str(e).startswith('division')",
        "def f(error: BaseException):\n    return 'division' in str(error)",
    ],
)
def test_a_parsed_text_is_caught(source):
    assert len(list(parsed_texts(ast.parse(source)))) == 1


def test_the_rules_find_what_is_there():
    assert len(list(private_attributes(FILES[INTERNALS]))) > 5
    assert list(parsed_texts(FILES[INTERNALS])) == ["'RESOURCE_EXHAUSTED' in str(error)"]
