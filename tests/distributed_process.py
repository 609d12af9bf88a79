"""One of two processes that run models together: `python distributed_process.py PROCESS PORT FOLDER MODEL…`.

`test_distributed.py` starts both, each with two devices, and has written what one process computes to MODEL.npz. Prints
a line of JSON for each model: how many parameters are split, how many bytes of the file with the weights this process
has read, and how many bytes the rows take there of which it has a part.
"""

import io
import json
import os
import sys
import traceback
from pathlib import Path

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import jaxops.onnx
from jaxops.frontend.safe_files import SafeFile
from jaxops.sharding import tensor_parallel


class Counting(io.RawIOBase):
    """A file that counts the bytes that are read from all of its kind."""

    total = 0

    def __init__(self, file):
        self._file = file

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        return self._file.seek(offset, whence)

    def readinto(self, buffer):
        count = self._file.readinto(buffer)
        Counting.total += count
        return count


def count_reads():
    """Counts what is read of files beside a model."""
    opened = SafeFile.open
    SafeFile.open = lambda file, mode: io.BufferedReader(Counting(opened(file, mode).detach()))


def close(got, expected, what):
    """Compares the parts of an array that the devices of this process have."""
    for shard in got.addressable_shards:
        np.testing.assert_allclose(shard.data, expected[shard.index], rtol=1e-3, atol=1e-5, err_msg=what)


def bytes_of_rows(array):
    """The bytes of those rows of a parameter of which this process has a part."""
    rows = {row for shard in array.addressable_shards for row in range(len(array))[shard.index[0]]}
    return len(rows) * array.nbytes // len(array)


def compare(path, kind):
    data = np.load(path.with_suffix(".npz"))
    mesh = jax.make_mesh((2, 2), ("model", "data"), axis_types=(kind, kind))  # each process has half of a matrix
    with jax.set_mesh(mesh):
        model = jaxops.onnx.load(path, sharding=tensor_parallel("model"))
        Counting.total = 0
        params = model.params
        read = Counting.total
        batch = NamedSharding(mesh, P("data"))
        inputs = {v.name: jax.make_array_from_process_local_data(batch, data[f"in:{v.name}"]) for v in model.inputs}

        def loss(params):
            outputs = model.apply(params, inputs)
            return (jax.tree.leaves(outputs)[0] ** 2).mean(), outputs

        gradients, outputs = jax.jit(jax.grad(loss, has_aux=True))(params)
        for how, ys in (("apply", outputs), ("call", model(inputs))):
            for k, y in enumerate(jax.tree.leaves(ys)):
                close(y, data[f"out:{k}"], f"{how}, output {k}")
    for name, gradient in gradients.items():
        if kind is AxisType.Explicit:  # under Auto the compiler decides
            assert gradient.sharding.is_equivalent_to(params[name].sharding, gradient.ndim), name
        close(gradient, data[f"grad:{name}"], f"gradient of {name}")
    split = sum(not x.is_fully_replicated for x in params.values())
    rows = sum(bytes_of_rows(x) for x in params.values() if x.ndim)
    print(json.dumps({"model": path.stem, "kind": kind.name, "split": split, "read": read, "rows": rows}), flush=True)


if __name__ == "__main__":
    process, port, folder, *names = sys.argv[1:]
    jax.distributed.initialize(f"localhost:{port}", 2, int(process))
    count_reads()
    try:
        for name in names:
            for kind in (AxisType.Auto, AxisType.Explicit):
                compare(Path(folder) / f"{name}.onnx", kind)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # at a usual exit, JAX waits for the other process
