"""Peak memory of loading a model onto 8 devices of this host: `python sharded_loading.py [MiB] [folder]`.

Writes a model with matrices of 64 MiB as external data, loads it by each rule in a process of its own, and prints the
peak above what the devices hold, in units of the largest tensor. On CPU the devices' memory is the host's.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

LARGEST = 64 * 2**20
SIDE = 4096


def write(folder: Path, count: int) -> Path:
    """A chain of `count` products with matrices of 64 MiB."""
    nodes, tensors = [], []
    rng = np.random.default_rng(0)
    with (folder / "weights.bin").open("wb") as file:
        for k in range(count):
            tensor = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", k * LARGEST), ("length", LARGEST)):
                tensor.external_data.add(key=key, value=str(value))
            file.write(rng.random((SIDE, SIDE), np.float32).tobytes())
            tensors.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"]))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", SIDE]) for n in ("x0", f"x{count}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


def resident(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def measure(path: str, rule: str) -> None:
    import jax

    import jaxops.onnx
    from jaxops import sharding

    mesh = jax.make_mesh((8,), ("model",))
    jax.block_until_ready(jax.device_put(np.ones(8), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())))
    rules = {"tensor": sharding.tensor_parallel("model"), "data": sharding.data_parallel, "none": None}
    rules["row"] = lambda name, path, shape: jax.sharding.PartitionSpec("model")
    with jax.set_mesh(mesh):
        model = jaxops.onnx.load(path, sharding=rules[rule])
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        params = jax.block_until_ready(model.params)
    held = sum(shard.data.nbytes for x in params.values() for shard in x.addressable_shards)
    largest = max(x.nbytes for x in params.values())
    above = (resident("VmHWM") - before - held) / largest
    print(f"{rule:7} devices hold {held / 2**20:.0f} MiB, peak above that {above:.2f} of the largest tensor")


def main(size: int, folder: Path) -> None:
    path = write(folder, max(1, size * 2**20 // LARGEST))
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    for rule in ("none", "row", "tensor", "data"):
        subprocess.run(
            [sys.executable, __file__, "measure", str(path), rule], env={**os.environ, "XLA_FLAGS": flags}, check=True
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(*sys.argv[2:])
    else:
        with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
            main(int(sys.argv[1]) if len(sys.argv) > 1 else 512, Path(folder))
