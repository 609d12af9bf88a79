"""The README's example runs, and prints what its comments say."""

import re
from pathlib import Path

README = Path(__file__).parents[1].joinpath("README.md").read_text()


def test_example(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line and "import" not in line]) <= 10
    names: dict = {}
    exec(code, names)
    printed = capsys.readouterr().out.splitlines()
    said = [match.split("  # ")[1] for match in re.findall(r"print\(.*  # .*", code)]
    assert len(printed) == len(said) == 4
    for line, comment in zip(printed, said, strict=True):
        assert comment.startswith(line)
    assert set(names["grads"]) == set(names["model"].params)
