"""The notebooks run from top to bottom, use public names only, and their committed output is what they print.

A cell tagged `varies` prints numbers or programs that differ between machines and versions of JAX. The code blocks of
text cells run where they stand if their packages are installed, and print what the comments in them say; the commands
of text cells run, too.
"""

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# Not in the extra `test`.
OPTIONAL = {"jax2onnx", "libtpu", "skl2onnx", "sklearn", "tensorflow", "tf2onnx", "torch", "torchvision"}


def text(cell) -> str:
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def blocks(cell, language: str) -> list[str]:
    """The code blocks of a text cell."""
    return re.findall(rf"```{language}\n(.*?)```", cell.source, re.DOTALL) if cell.cell_type == "markdown" else []


def can_run(block: str) -> bool:
    """Tells whether the imports of a block are installed; what follows a command in a comment needs its files."""
    tree = ast.walk(ast.parse(block))
    names = [name for node in tree if isinstance(node, ast.Import | ast.ImportFrom) for name in imported(node)]
    missing = {name for name in names if importlib.util.find_spec(name) is None}
    assert missing <= OPTIONAL
    return not missing and not block.startswith("# python -m ")


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    paths = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return [path.split(".")[0] for path in paths]


def with_blocks(notebook):
    """A copy of a notebook with a code cell behind each text cell for each of its code blocks."""
    copy = nbformat.from_dict(notebook)
    copy.cells = []
    for cell in nbformat.from_dict(notebook).cells:
        code = [block for block in blocks(cell, "python") if can_run(block)]
        copy.cells += [cell, *(nbformat.v4.new_code_cell(block, metadata={"tags": ["block"]}) for block in code)]
    return copy


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs_and_prints_what_is_committed(path, monkeypatch):
    one = "--xla_force_host_platform_device_count=1"  # as a reader has; the last of two flags holds
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} {one}")
    committed = nbformat.read(path, as_version=4)
    fresh = with_blocks(committed)
    NotebookClient(fresh, timeout=600, kernel_name="python3", resources={"metadata": {"path": FOLDER}}).execute()
    compared = 0
    ran = [cell for cell in fresh.cells if "block" not in cell.metadata.get("tags", ())]
    for before, after in zip(committed.cells, ran, strict=True):
        if before.cell_type != "code":
            continue
        assert not any(o.output_type == "error" for o in before.outputs)
        assert bool(text(before)) == bool(text(after))
        if "varies" not in before.metadata.get("tags", ()):
            assert text(before) == text(after)
            compared += 1
    assert compared >= 5
    for block in (cell for cell in fresh.cells if "block" in cell.metadata.get("tags", ())):
        printed = "".join(o.text for o in block.outputs if o.get("name") == "stdout").splitlines()
        comments = [line.removeprefix("# ") for line in block.source.splitlines() if line.startswith("# ")]
        assert [line for line in printed if not line.startswith("[torch.onnx]")] == comments
        assert comments


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_uses_public_names_only(path):
    code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    names = {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
    assert not [name for name in names if name.startswith("_") and not name.endswith("__")]


COMMANDS = [
    line
    for path in NOTEBOOKS
    for cell in nbformat.read(path, as_version=4).cells
    for block in blocks(cell, "sh")
    for line in block.splitlines()
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_text_cells(command, tmp_path):
    for path in FOLDER.iterdir():
        (tmp_path / path.name).symlink_to(path)
    python, *arguments = shlex.split(command, comments=True)
    assert python == "python"
    done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_is_one_to_begin_with():
    assert "first_steps" in [path.stem for path in NOTEBOOKS]
