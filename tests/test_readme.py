"""The README's snippets run one after another, and print what their comments say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT.joinpath("README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(snippet, names, capsys):
    """Runs a snippet with the names of those before it, and compares what it prints."""
    exec(snippet, names)
    printed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("[torch.onnx]")]
    comments = [line.rsplit("  # ", 1)[1] for line in snippet.splitlines() if line.startswith("print(")]
    assert len(printed) == len(comments)
    for line, comment in zip(printed, comments, strict=True):
        assert comment.startswith(line)
    return len(printed)


def test_snippets(capsys, tmp_path, monkeypatch):
    tmp_path.joinpath("notebooks").symlink_to(ROOT / "notebooks")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    counts = [run(snippet, names, capsys) for snippet in SNIPPETS if "import torch" not in snippet]
    assert sum(counts) == 5
    assert set(names["grads"]) == set(names["model"].params)
    assert tmp_path.joinpath("tuned.onnx").exists()


def test_the_snippet_of_pytorch(capsys):
    pytest.importorskip("torch", reason="PyTorch is not in the extra `test`: half a gigabyte for one snippet")
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")
    (snippet,) = [snippet for snippet in SNIPPETS if "import torch" in snippet]
    run(snippet, {"jaxops": __import__("jaxops.onnx")}, capsys)


def test_snippets_are_short():
    assert len(SNIPPETS) == 5
    for snippet in SNIPPETS:
        assert len([line for line in snippet.splitlines() if line]) <= 6


def test_each_guide_is_listed():
    listed = re.findall(r"\| `(\w+)` \|", README)
    assert sorted(listed) == sorted(path.stem for path in ROOT.joinpath("notebooks").glob("*.ipynb"))


def test_it_is_one_page():
    assert len(README.splitlines()) <= 130
