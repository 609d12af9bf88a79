"""That no files import one another in a circle, imports inside functions and for annotations included."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def sources():
    """The text of each module of the package, by name."""
    for path in (ROOT / "jaxops").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path.read_text()


def imported(name, modules):
    """The module that an import of a name reads; None for one outside of the package."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def circle(modules):
    """The modules of a circle of imports; empty if there is none."""
    graph = {}
    for module, text in modules.items():
        names = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
        graph[module] = {imported(name, modules) for name in names} - {module, None}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_circle():
    assert circle(dict(sources())) == []


@pytest.mark.parametrize("inside", ["", "def f():\n    ", "if TYPE_CHECKING:\n    "])
def test_a_circle_is_caught(inside):
    modules = {"jaxops.a": "from jaxops.b import x", "jaxops.b": f"{inside}from jaxops.a import y"}
    assert set(circle(modules)) == set(modules)
