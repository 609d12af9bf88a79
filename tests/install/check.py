"""Installs each extra alone in an environment of its own, and tries all that it promises: `python FILE`.

The environment of the tests has every package, and so hides what one extra lacks. Here nothing but the extra is
installed, in a temporary folder, and each command of the command line, and each snippet of the README that the extra
is for, runs there; what needs another extra must say so. Names of extras on the command line restrict it to these; ""
is no extra at all.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIGITS, SEVEN = f"{ROOT}/notebooks/digits.onnx", f"{ROOT}/notebooks/seven.npy"

# What runs, by the extra that promises it, and a text that it prints; the environment of "onnx,plot" has both.
COMMANDS = {
    "onnx": [
        (f"-m jaxops run {DIGITS} --input image={SEVEN} --top 1 --cache programs", "0, 7"),
        (f"-m jaxops check {DIGITS}", "jaxops has them all"),
        (f"-m jaxops show {DIGITS} --head 2", "Conv"),
        (f"-m jaxops summary {DIGITS} --size batch=2", "FLOPs"),
        (f"-m jaxops export {DIGITS} digits.jaxexport --size batch=b", "wrote digits.jaxexport"),
        (f"-m jaxops to-python {DIGITS} written", "__init__.py"),
        ("-m jaxops operators --grep reshape", "Reshape"),
        ("-m jaxops run light_squeezenet --repeat 1 --cache programs", "first call"),
    ],
    "plot": [(f"-m jaxops plot {DIGITS} digits.svg", "wrote digits.svg")],
    "image": [(f"-m jaxops run {DIGITS} grey.pgm --cache programs", "image = pixels / 255")],
    "notebooks": [(f"-m jaxops compare {DIGITS} --size batch=2", "agree")],
}
# What another extra is needed for, and what is said where it lacks.
MISSING = {
    "onnx": (f"-m jaxops check {DIGITS}", "pip install '.[onnx]'"),
    "plot": (f"-m jaxops plot {DIGITS} digits.svg", "pip install '.[plot]'"),
    "image": (f"-m jaxops run {DIGITS} grey.pgm --cache programs", "pip install '.[image]'"),
    "notebooks": (f"-m jaxops compare {DIGITS}", "pip install onnxruntime"),
}
EXTRAS = {
    "": (),
    "onnx": ("onnx",),
    "onnx,plot": ("onnx", "plot"),
    "onnx,image": ("onnx", "image"),
    "notebooks": ("onnx", "plot", "image", "notebooks"),  # matplotlib brings Pillow
}

WITHOUT = """
import jax.numpy as jnp
import jaxops as jo
assert jo.flatten(jnp.ones((2, 3, 4))).shape == (2, 12)
assert jo.ml.scaler(jnp.ones((1, 2)), offset=[1.0], scale=[2.0]).tolist() == [[0, 0]]
import jaxops.openvino, jaxops.sharding, jaxops.memory
try:
    import jaxops.onnx
except ModuleNotFoundError as error:
    assert "pip install '.[onnx]'" in str(error), error
else:
    raise AssertionError("onnx is there")
print("imports")
"""
EXPORTED = f"""
import jax.export, numpy as np
from safetensors.flax import load_file
program = jax.export.deserialize(bytearray(open("digits.jaxexport", "rb").read()))
assert program.call(load_file("digits.jaxexport.safetensors"), np.load({SEVEN!r})).argmax() == 7
import written
assert written.apply(written.load_params(), np.load({SEVEN!r})).argmax() == 7
import jaxops.onnx
model = jaxops.onnx.load({DIGITS!r})
model.save("again.onnx")
assert jax.export.deserialize(model.export().serialize()).call(model.params, np.load({SEVEN!r})).argmax() == 7
print("an export, a package, a file")
"""


def main(names: Sequence[str]) -> int:
    """Checks these extras, or all; returns how many things went wrong."""
    wrong = 0
    for extra in names or EXTRAS:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            problems = check(extra, Path(folder))
        print(f"extra '{extra}': {len(problems)} problems, {time.perf_counter() - start:.0f} s", flush=True)
        print("\n".join(problems), end="\n" if problems else "", flush=True)
        wrong += len(problems)
    return wrong


def check(extra: str, folder: Path) -> list[str]:
    """What is wrong in an environment that has this extra alone."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", target], check=True)
    (folder / "grey.pgm").write_bytes(b"P5 8 8 255 " + bytes(64))
    has = EXTRAS[extra]
    tries = [([*command.split()], text, True) for part in has for command, text in COMMANDS[part]]
    tries += [(command.split(), text, False) for part, (command, text) in MISSING.items() if part not in has]
    last = []
    if has:
        tries += [(["-c", example()], "[7]", True), (first_command(), "0, 7", True)]
        last = [(["-c", EXPORTED], "an export, a package, a file", True)]  # what commands before it have written
    else:
        tries = [(["-c", WITHOUT], "imports", True), tries[0]]
    if extra == "notebooks":
        tries.append((["-c", f"{imports()}\nprint('imported')"], "imported", True))
    with ThreadPoolExecutor(2) as pool:
        problems = list(pool.map(lambda given: tried(python, folder, *given), tries))
    return [problem for problem in (*problems, *(tried(python, folder, *given) for given in last)) if problem]


def tried(python: Path, folder: Path, arguments: Sequence[str], text: str, works: bool) -> str:
    """Runs Python; what is wrong, or nothing. text: what it prints; works: whether it ends well."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX_", "XLA_"))}
    environment = kept | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [python, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    printed = run.stdout + run.stderr
    if (run.returncode == 0) is works and text in printed and (works or "Traceback" not in printed):
        return ""
    return f"  python {' '.join(arguments):.300}\n    ended with {run.returncode}, without {text!r}:\n{printed[-2000:]}"


def example() -> str:
    """The snippets of the README that need nothing else, with the paths of this checkout."""
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = "\n".join(snippet for snippet in snippets if "import torch" not in snippet)
    return code.replace('"notebooks/', f'"{ROOT}/notebooks/')


def first_command() -> list[str]:
    """What the README's first command runs once it has installed."""
    (line,) = re.findall(r"^pip install .*\[onnx\].* && (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    _, *arguments = line.replace("notebooks/", f"{ROOT}/notebooks/").split()
    return [*arguments, "--cache", "programs"]


def imports() -> str:
    """The imports of all notebooks."""
    found: dict[str, None] = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            lines = "".join(cell["source"]).splitlines() if cell["cell_type"] == "code" else []
            found |= dict.fromkeys(line for line in lines if re.match(r"(import|from) \w", line))
    return "\n".join(found)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
