"""The notebooks run from top to bottom, use public names only, and their committed output is what they print.

A cell tagged `varies` prints numbers or programs that differ between machines and versions of JAX.
"""

import ast
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def text(cell) -> str:
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs_and_prints_what_is_committed(path, monkeypatch):
    one = "--xla_force_host_platform_device_count=1"  # as a reader has; the last of two flags holds
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} {one}")
    committed = nbformat.read(path, as_version=4)
    fresh = nbformat.from_dict(committed)
    NotebookClient(fresh, timeout=600, kernel_name="python3", resources={"metadata": {"path": FOLDER}}).execute()
    compared = 0
    for before, after in zip(committed.cells, fresh.cells, strict=True):
        if before.cell_type != "code":
            continue
        assert not any(o.output_type == "error" for o in before.outputs)
        assert bool(text(before)) == bool(text(after))
        if "varies" not in before.metadata.get("tags", ()):
            assert text(before) == text(after)
            compared += 1
    assert compared >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_uses_public_names_only(path):
    code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    names = {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
    assert not [name for name in names if name.startswith("_") and not name.endswith("__")]


def test_there_is_one_to_begin_with():
    assert "first_steps" in [path.stem for path in NOTEBOOKS]
