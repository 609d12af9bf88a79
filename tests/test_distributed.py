"""Two processes with two devices each run models together, as several machines do: values equal to one process's."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from graphs import model as text

import jaxops.onnx

HERE = Path(__file__).parent
CHILD = HERE / "distributed_process.py"
LAYERS = """main (int64[b, n] ids) => (float[b, m, 64] y) {
  x = Gather (words, ids) h = MatMul (x, up) g = Relu (h) z = MatMul (g, down) y = Add (x, z)
}"""


def layers():
    """A model with weights of 2 MB, whose rows processes can share."""
    rng = np.random.default_rng(0)
    shapes = {"words": (4096, 64), "up": (64, 2048), "down": (2048, 64)}
    return text(LAYERS, initializers={k: (rng.random(s, np.float32) - 0.5) / 8 for k, s in shapes.items()})


def write(folder, name, proto, inputs):
    """The model with its weights in a file of their own, and beside it what one process computes."""
    path = folder / f"{name}.onnx"
    onnx.save(proto, path, save_as_external_data=True, location=f"{name}.bin", size_threshold=0)
    alone = jaxops.onnx.load(path)

    def loss(params):
        outputs = alone.apply(params, {key: jnp.asarray(x) for key, x in inputs.items()})
        return (jax.tree.leaves(outputs)[0] ** 2).mean(), outputs

    gradients, outputs = jax.grad(loss, has_aux=True)(alone.params)
    results = {f"out:{k}": y for k, y in enumerate(jax.tree.leaves(outputs))}
    results |= {f"grad:{key}": x for key, x in gradients.items()}
    np.savez(path.with_suffix(".npz"), **{f"in:{key}": x for key, x in inputs.items()}, **results)


def together(folder, *names, seconds=180):
    """Runs the models in two processes; returns the lines of each. Ends both where one fails, or both take longer."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"  # the last one holds
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(HERE.parent)}
    outputs = [folder / f"output{process}.txt" for process in range(2)]
    children = []
    try:
        for process, output in enumerate(outputs):
            command = [sys.executable, CHILD, str(process), port, folder, *names]
            with output.open("w") as file:
                children.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
        end = time.monotonic() + seconds
        while any(child.poll() is None for child in children) and time.monotonic() < end:
            if any(child.returncode for child in children):
                break  # the other one would wait for it
            time.sleep(0.1)
    finally:
        for child in children:
            child.kill()
            child.wait()
    texts = [output.read_text() for output in outputs]
    shown = "\n".join(f"process {k}: {child.returncode}\n{texts[k][-3000:]}" for k, child in enumerate(children))
    assert [child.returncode for child in children] == [0, 0], shown
    return [[json.loads(line) for line in text.splitlines() if line.startswith("{")] for text in texts]


def test_two_processes_compute_what_one_does(tmp_path):
    data = np.load(HERE / "models" / "bert.npz")
    words = {key[3:]: data[key].astype(np.int32) for key in data if key.startswith("in:")}
    write(tmp_path, "bert", onnx.load(HERE / "models" / "bert.dynamo.onnx"), words)
    ids = np.random.default_rng(1).integers(0, 4096, (4, 6)).astype(np.int32)
    write(tmp_path, "layers", layers(), {"ids": ids})
    for lines in together(tmp_path, "bert", "layers"):
        expected = [(name, kind) for name in ("bert", "layers") for kind in ("Auto", "Explicit")]
        assert [(line["model"], line["kind"]) for line in lines] == expected
        assert all(line["split"] >= 3 for line in lines)
        for line in lines[2:]:  # small parts of a file are read with what is behind them
            assert line["read"] == line["rows"] == 5 * (tmp_path / "layers.bin").stat().st_size // 8


def test_wrong_values_fail(tmp_path):
    write(tmp_path, "layers", layers(), {"ids": np.zeros((4, 6), np.int32)})
    data = dict(np.load(tmp_path / "layers.npz"))
    data["grad:down"][-1, -1] += 1  # the last process alone has it
    np.savez(tmp_path / "layers.npz", **data)
    with pytest.raises(AssertionError, match=r"(?s)process 1: 1\n.*gradient of down"):
        together(tmp_path, "layers")
