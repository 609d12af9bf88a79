"""Compiled programs that the next process finds again."""

import os
import subprocess
import sys

import jax
import pytest
from graphs import model
from jax.experimental.compilation_cache import compilation_cache

import jaxops.onnx
from jaxops.command_line import main
from jaxops.errors import ArgumentError

TEXT = "main (float[n] x) => (float[n] y) { z = Exp(x) y = Add(z, x) }"
CHILD = """
import sys, jax, numpy as np, jaxops.onnx
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
given = open(sys.argv[1], "rb").read()
print(jaxops.onnx.load(given, cache=sys.argv[2])(np.zeros(3, np.float32)).tolist(), len(hits))
"""


@pytest.fixture(autouse=True)
def _as_before():
    """The cache belongs to the process."""
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = {name: getattr(jax.config, name) for name in names}
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_a_second_process_compiles_nothing(tmp_path):
    file, folder = tmp_path / "m.onnx", tmp_path / "programs"
    file.write_bytes(model(TEXT).SerializeToString())
    command = [sys.executable, "-c", CHILD, str(file), str(folder)]
    printed = [subprocess.run(command, text=True, capture_output=True, check=True).stdout.split() for _ in range(2)]
    assert printed[0][:3] == printed[1][:3] == ["[1.0,", "1.0,", "1.0]"]
    assert int(printed[0][3]) == 0
    assert int(printed[1][3]) == len(list(folder.glob("*-cache"))) > 0


def test_one_folder_a_process(tmp_path):
    jaxops.onnx.load(model(TEXT), cache=tmp_path)
    jaxops.onnx.load(model(TEXT), cache=os.fspath(tmp_path) + "/")
    with pytest.raises(ArgumentError, match=r"JAX keeps compiled programs in '.*' already.*one such folder"):
        jaxops.onnx.load(model(TEXT), cache=tmp_path / "other")


def test_run_keeps_programs_in_the_cache_of_the_user(tmp_path, monkeypatch):
    (tmp_path / "m.onnx").write_bytes(model(TEXT).SerializeToString())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["run", str(tmp_path / "m.onnx"), "--size=n=2", "--repeat=1"]) == 0
    assert list((tmp_path / "jaxops").glob("*-cache"))
    assert main(["run", str(tmp_path / "m.onnx"), "--size=n=2", f"--cache={tmp_path / 'jaxops'}"]) == 0
