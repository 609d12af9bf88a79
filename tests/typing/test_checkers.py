"""Type checkers accept the programs of users, the README's and the guides' among them, and refuse wrong ones."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("users_program.py")
WRONG = """
import jax.numpy as jnp
import jaxops as jo

x = jnp.ones(3)
jo.relu({"a": 1})
jo.add(None, 1)
jo.add(x, object())
jo.softmax(x, axis="last")
jo.softmax(x, -1)
jo.sofmax(x)
jo.gelu(x, approximate="yes")
jo.onnx.laod("m.onnx")
jo.shape(x).at[0]
jo.add(1, 2).at[0]
""".lstrip()
FIRST_WRONG = WRONG.splitlines().index('jo.relu({"a": 1})') + 1
# Errors that other packages cause: (guide, part of the message).
OF_OTHERS = [
    ("README", 'Import "torch"'),  # PyTorch is not in the extra `test`
    ("detectors", '"Rectangle" is not exported from module "matplotlib.pyplot"'),
    ("export_and_shard", 'attribute "spec" for class "Sharding"'),  # `Array.sharding` may be any kind of sharding
    ("fine_tune", "_ConvertibleToFloat"),  # to NumPy's stubs np.float32([1]) is a number
    ("fine_tune", '"floating._32Bit." cannot be assigned'),
    ("fine_tune", 'not defined on type "signedinteger._64Bit."'),
    ("fine_tune", '"statistics" is possibly unbound'),  # by a loop
    ("from_other_frameworks", "SparseTensor|list.Unknown|dict.Unknown"),  # what a session of onnxruntime may return
    ("from_other_frameworks", 'Argument of type "int"'),  # a dictionary of options, given by **
    ("generate_text", 'cannot be assigned to parameter "outputs"'),  # a dictionary of caches, given by **
    ("how_it_is_built", "_ConvertibleToFloat"),
    ("how_it_is_built", '"split" is not a known attribute of "None"'),  # a docstring
    ("openvino", '"__all__" is not a known attribute'),  # the list is made while importing
    ("openvino", '"None"'),  # the shape of an input, which a file may leave out
    ("openvino", '"int" is not callable'),  # a name that two cells use
    ("own_program", 'not assignable to declared type "\\(model'),  # a name that two cells use
    ("performance", "overloads? for|of type .Overload"),  # max(…, key=ratios.get)
    ("quantized", "SparseTensor|list.Unknown|dict.Unknown"),
    ("surrogate", '"findall"|"str . None"'),
]


def pyright(folder, *files):
    """Runs pyright on files; returns (file, line, message) for each error."""
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed; it is in the extra `test`")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, files)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] >= len(files)
    return [
        (Path(e["file"]).stem, e["range"]["start"]["line"] + 1, e["message"])
        for e in found["generalDiagnostics"]
        if e["severity"] == "error"
    ]


def mypy(folder, *files):
    """Runs mypy on files; returns (file, line, message) for each error."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed; it is in the extra `test`")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "mypy"), *map(str, files)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].startswith(("Success", "Found"))
    return [
        (Path(file).stem, int(line), text) for file, line, text in re.findall(r"(\S+):(\d+): error: (.*)", done.stdout)
    ]


def snippets():
    """The Python code of the README and of each guide: {name: code}."""
    code = {"README": re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        code[path.stem] = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return {name: re.sub(r"^ *[%!].*", "", "\n".join(parts), flags=re.MULTILINE) for name, parts in code.items()}


def is_of_others(name, text):
    return any(name == f"guide_{guide}" and re.search(part, text) for guide, part in OF_OTHERS)


@pytest.mark.parametrize("checker", [pyright, mypy])
def test_a_users_program(checker, tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    code = {tmp_path / f"guide_{name}.py": text for name, text in snippets().items()} if checker is pyright else {}
    for file, text in code.items():
        file.write_text(text)
    errors = checker(tmp_path, PROGRAM, wrong, *code)
    assert [e for e in errors if e[0] != "wrong" and not is_of_others(e[0], e[2])] == []
    lines = range(FIRST_WRONG, len(WRONG.splitlines()) + 1)
    assert sorted({line for name, line, _ in errors if name == "wrong"}) == list(lines)


def test_a_users_program_runs():
    names: dict = {}
    exec(compile(PROGRAM.read_text(), PROGRAM, "exec"), names)
    assert names["total"](np.eye(3, dtype=np.float32)).shape == ()
    notebooks = ROOT / "notebooks"
    assert names["digit"](notebooks / "digits.onnx", np.load(notebooks / "seven.npy")) == 7
